//! A device that computes nothing and counts the memory asked of it.
//!
//! What a model needs on a device is thereby told by the code that loads it and starts a session, and cannot drift from
//! it. A weight is only a handle here; what loading itself looks at (norms and other vectors) is all that is read.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argon_gguf::Bytes;
use argon_kernels::{Buffer, Device, DeviceError, Op, Storage, Tensor, Weight, Wrapper};

/// Memory asked of `model`'s stand-in so far.
pub struct Meter {
    /// The device that is stood in for: it knows its tile heights and precisions.
    real: Arc<dyn Device>,
    allocated: AtomicUsize,
    constants: AtomicUsize,
}

/// Memory that is not there.
struct Nothing {
    bytes: usize,
}

impl Storage for Nothing {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Meter {
    /// A stand-in for `real` that has been asked for nothing yet.
    pub fn new(real: Arc<dyn Device>) -> Self {
        Meter { real, allocated: AtomicUsize::new(0), constants: AtomicUsize::new(0) }
    }

    /// Bytes of memory to write to.
    pub fn allocated(&self) -> usize {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Bytes of the model file that are used as they are.
    pub fn constants(&self) -> usize {
        self.constants.load(Ordering::Relaxed)
    }

    fn count(&self, counter: &AtomicUsize, bytes: usize) -> Result<Buffer, DeviceError> {
        let add = |sum: usize| sum.checked_add(bytes);
        match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Buffer::new(Nothing { bytes })),
            Err(_) => Err(DeviceError::OutOfMemory { device: self.real.info().id, bytes }),
        }
    }
}

impl Wrapper for Meter {
    fn inner(&self) -> &dyn Device {
        &*self.real
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.count(&self.allocated, bytes)
    }

    fn constant(&self, bytes: Bytes) -> Result<Buffer, DeviceError> {
        self.count(&self.constants, bytes.len())
    }

    fn reads_in_place(&self) -> bool {
        true // nothing is copied, whatever the real one does
    }

    fn prepare(&self, _: &Weight) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write(&self, _: &Tensor, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&self, _: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        bytes.fill(0);
        Ok(())
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        op.check()
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

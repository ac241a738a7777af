//! Host memory behind buffers.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use argon_gguf::Bytes;
use half::f16;

use super::CpuDevice;
use super::view::{Element, View, ViewMut};
use crate::device::DeviceError;
use crate::tensor::{Buffer, DType, Storage, Tensor};

/// Alignment of owned memory: a cache line, and the widest vector register.
const ALIGN: usize = 64;

/// The storage of a [`CpuDevice`].
pub(super) enum HostMemory {
    /// Allocated here, zeroed at first.
    Owned {
        /// Where it is.
        block: Block,
        /// The lock of the device that it belongs to.
        lock: Arc<Mutex<()>>,
    },
    /// Bytes of a model file, where they are.
    Constant(Bytes),
}

impl Storage for HostMemory {
    fn bytes(&self) -> usize {
        match self {
            HostMemory::Owned { block, .. } => block.bytes,
            HostMemory::Constant(bytes) => bytes.len(),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl HostMemory {
    /// `bytes` zeroed bytes guarded by `lock`; `None` where the system has no such memory.
    pub(super) fn zeroed(bytes: usize, lock: Arc<Mutex<()>>) -> Option<Self> {
        Some(HostMemory::Owned { block: Block::zeroed(bytes)?, lock })
    }

    /// A copy of `bytes`, guarded by `lock`; `None` where the system has no such memory.
    pub(super) fn copied(bytes: &[u8], lock: Arc<Mutex<()>>) -> Option<Self> {
        let block = Block::zeroed(bytes.len())?;
        // SAFETY: the block is as long as `bytes`, new, and nobody else's.
        unsafe { block.start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Some(HostMemory::Owned { block, lock })
    }

    /// The first byte of a buffer that an op of `device` reads, or writes: its own, or, to be read, a constant.
    pub(super) fn first_byte(device: &CpuDevice, buffer: &Buffer, write: bool) -> Result<*const u8, DeviceError> {
        let refuse = |what: &str| Err(DeviceError::Failed { device: device.id().into(), what: what.into() });
        match buffer.storage() {
            Some(HostMemory::Owned { block, lock }) if device.owns(lock) => Ok(block.start.as_ptr().cast_const()),
            Some(HostMemory::Constant(bytes)) if !write => Ok(bytes.as_ptr()),
            Some(HostMemory::Constant(_)) => refuse("constant memory as an output"),
            _ => refuse("memory of another device"),
        }
    }
}

/// An owned allocation.
pub(super) struct Block {
    /// What the allocator gave.
    allocation: NonNull<u8>,
    layout: Layout,
    /// The first aligned byte in it.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block is plain memory of which this is the only owner; who reads and writes it when is up to the views.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block gives out nothing but its address.
unsafe impl Sync for Block {}

impl Block {
    fn zeroed(bytes: usize) -> Option<Self> {
        // Room to align in, instead of an aligned layout: for that one the standard allocator clears every page by hand,
        // while pages that come zeroed from the system cost nothing until they are used (a long, half-empty cache).
        let layout = Layout::array::<u8>(bytes.checked_add(ALIGN)?).ok()?;
        // SAFETY: the layout's size is at least ALIGN.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: align_offset is below ALIGN, and the allocation is ALIGN longer than the block.
        let start = unsafe { allocation.add(allocation.align_offset(ALIGN)) };
        Some(Self { allocation, layout, start, bytes })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

/// Copies `bytes` to the elements of `dst`.
pub(super) fn write(device: &CpuDevice, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
    match dst.dtype {
        DType::F32 => write_as::<f32>(device, dst, bytes),
        DType::F16 => write_as::<f16>(device, dst, bytes),
        DType::I32 => write_as::<i32>(device, dst, bytes),
        DType::U32 => write_as::<u32>(device, dst, bytes),
    }
}

fn write_as<T: Element>(device: &CpuDevice, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
    check_length::<T>("write", dst, bytes.len())?;
    let mut view = ViewMut::<T>::of(device, dst)?;
    let mut groups = bytes.chunks_exact((dst.cols * size_of::<T>()).max(1));
    for (row, group) in (0..dst.rows).flat_map(|r| (0..dst.groups).map(move |g| (r, g))) {
        let to = bytemuck::cast_slice_mut(view.at_mut(row, group));
        to.copy_from_slice(groups.next().unwrap_or_default());
    }
    Ok(())
}

/// Copies the elements of `src` to `bytes`.
pub(super) fn read(device: &CpuDevice, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
    match src.dtype {
        DType::F32 => read_as::<f32>(device, src, bytes),
        DType::F16 => read_as::<f16>(device, src, bytes),
        DType::I32 => read_as::<i32>(device, src, bytes),
        DType::U32 => read_as::<u32>(device, src, bytes),
    }
}

fn read_as<T: Element>(device: &CpuDevice, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
    check_length::<T>("read", src, bytes.len())?;
    let view = View::<T>::of(device, src)?;
    let mut groups = bytes.chunks_exact_mut((src.cols * size_of::<T>()).max(1));
    for (row, group) in (0..src.rows).flat_map(|r| (0..src.groups).map(move |g| (r, g))) {
        groups.next().unwrap_or_default().copy_from_slice(bytemuck::cast_slice(view.at(row, group)));
    }
    Ok(())
}

fn check_length<T>(op: &'static str, t: &Tensor, bytes: usize) -> Result<(), DeviceError> {
    if t.len().checked_mul(size_of::<T>()) == Some(bytes) {
        return Ok(());
    }
    Err(DeviceError::Shape {
        op,
        what: format!("{bytes} bytes for [{}, {}, {}] {:?}", t.rows, t.groups, t.cols, t.dtype),
    })
}

//! The device trait: memory, and ops in program order.

use std::time::Instant;

use argon_gguf::Bytes;

use crate::op::{Op, Precision};
use crate::tensor::{Buffer, DType, Tensor, Weight};

/// What a device says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// The name a user types after `--device`: `cpu`, `cuda:0`, `wgpu:0`.
    pub id: String,
    /// What it is: the name of the processor or adapter, and what a reader of its times must know.
    pub name: String,
    /// What else a report of a mistake is to say: driver, kernels in use, limits; empty where the name says all.
    pub details: String,
    /// Memory that it can hold, in bytes, as far as the system tells.
    pub memory: u64,
    /// The largest tensor that its kernels see whole, in bytes; constants may be larger. As large as any where memory is the limit.
    pub largest_tensor: u64,
    /// The precision modes that it has; the first is its default.
    pub precisions: Vec<Precision>,
}

/// Who says how long work took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The host, from before the work is enqueued until the device has done it.
    Host,
    /// The device itself, by events in its queue.
    Device,
}

/// Why a device could not do what it was asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DeviceError {
    /// The operands of an op do not fit each other: a mistake of the model file.
    #[error("{op}: {what}")]
    Shape {
        /// The op.
        op: &'static str,
        /// What does not fit.
        what: String,
    },
    /// The device cannot give that much memory.
    #[error("{device}: out of memory: {bytes} bytes asked for")]
    OutOfMemory {
        /// The device's id.
        device: String,
        /// The size asked for.
        bytes: usize,
    },
    /// The device has no kernel for this.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device's id.
        device: String,
        /// What is missing.
        what: String,
    },
    /// A router saw a logit that is not a number.
    #[error("layer {layer}: the router's logits of token {token} are not numbers")]
    NanLogit {
        /// The layer.
        layer: usize,
        /// The token, counted from the start of the chunk.
        token: usize,
    },
    /// An id outside the table it indexes.
    #[error("{op}: id {id} at entry {entry} is outside 0..{limit}")]
    IdOutOfRange {
        /// The op.
        op: &'static str,
        /// Index of the id in its tensor.
        entry: usize,
        /// The id.
        id: i64,
        /// One past the largest allowed id.
        limit: usize,
    },
    /// The device or its driver failed.
    #[error("{device}: {what}")]
    Failed {
        /// The device's id.
        device: String,
        /// What the driver said.
        what: String,
    },
}

/// A machine that holds tensors and runs ops on them.
///
/// Work is enqueued in program order and may run later and overlap, as long as every op sees what the ops before it
/// wrote; what it reads and writes it declares itself ([`Op::accesses`]), so nothing outside a device ever places a
/// barrier. Nothing comes back to the host but through [`Device::read`].
///
/// An error of an op that ran later (a NaN router logit, a lost device) is reported by the next `read` or `sync`.
pub trait Device: Send + Sync {
    /// What this device is.
    fn info(&self) -> DeviceInfo;

    /// The tile height (rows of one expert that one tile of a routed [`Gemm`](crate::op::Gemm) covers) that suits this
    /// device when `entries` (T*K) rows spread over `experts`. A pure function of its arguments and the device.
    fn tile_rows(&self, entries: usize, experts: usize) -> usize;

    /// Memory of `bytes` bytes with every byte zero.
    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError>;

    /// Constant bytes of a model file. A device that can read them where they are keeps the handle, others copy.
    fn constant(&self, bytes: Bytes) -> Result<Buffer, DeviceError>;

    /// Whether constant bytes stay where they are, to be read when an op needs them. A device that copies them has read all
    /// of them before the first op.
    fn reads_in_place(&self) -> bool;

    /// Told of a weight that ops will use, a device may find out what it needs to know of it. Nothing depends on it but the time
    /// that the first of these ops takes.
    fn prepare(&self, weight: &Weight) -> Result<(), DeviceError>;

    /// Enqueues a copy from the host to the elements of `dst`, a dense tensor of exactly these bytes.
    fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Waits for the work enqueued so far, then copies the elements of `src` to the host, rows and groups without gaps.
    fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Bytes that came from this device's memory to the host so far, for whatever reason; 0 where both are the same memory.
    /// While ops are enqueued it does not grow.
    fn bytes_to_host(&self) -> u64;

    /// Enqueues one op. Operands are checked here ([`Op::check`]); a kernel assumes them right.
    fn enqueue(&self, op: &Op) -> Result<(), DeviceError>;

    /// Waits for everything enqueued so far.
    fn sync(&self) -> Result<(), DeviceError>;

    /// The clock of [`Device::elapsed`].
    fn clock(&self) -> Clock;

    /// The seconds from the start to the end of what `work` enqueues, on a device that had nothing else to do.
    fn elapsed(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError>;
}

/// [`Device::elapsed`] by [`Clock::Host`].
///
/// # Errors
/// Those of `work`, and of the device while it waits.
pub fn host_elapsed(
    device: &dyn Device,
    work: &mut dyn FnMut() -> Result<(), DeviceError>,
) -> Result<f64, DeviceError> {
    device.sync()?;
    let start = Instant::now();
    work()?;
    device.sync()?;
    Ok(start.elapsed().as_secs_f64())
}

/// A zeroed dense tensor `[rows, groups, cols]` on `device`.
pub fn tensor(
    device: &dyn Device,
    dtype: DType,
    rows: usize,
    groups: usize,
    cols: usize,
) -> Result<Tensor, DeviceError> {
    let bytes = rows
        .checked_mul(groups)
        .and_then(|n| n.checked_mul(cols))
        .and_then(|n| n.checked_mul(dtype.bytes()))
        .filter(|&n| n <= isize::MAX as usize)
        .ok_or(DeviceError::OutOfMemory { device: device.info().id, bytes: usize::MAX })?;
    Ok(Tensor::dense(device.alloc(bytes)?, dtype, rows, groups, cols))
}

/// A dense tensor `[rows, groups, cols]` on `device` that holds these bytes.
pub fn upload(device: &dyn Device, dtype: DType, shape: [usize; 3], bytes: &[u8]) -> Result<Tensor, DeviceError> {
    let [rows, groups, cols] = shape;
    let t = tensor(device, dtype, rows, groups, cols)?;
    device.write(&t, bytes)?;
    Ok(t)
}

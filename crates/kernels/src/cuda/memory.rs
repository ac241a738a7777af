//! Device memory behind buffers, and tensors as kernels see them.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon_gguf::Format;

use super::driver::Driver;
use super::range::Range;
use crate::device::DeviceError;
use crate::tensor::{Buffer, Storage, Tensor, Weight};

/// Bytes behind every allocation that kernels may read (never use): they load 16 bytes at a time.
const SLACK: usize = 256;

/// The storage of a [`CudaDevice`](super::CudaDevice).
pub(super) struct DeviceMemory {
    driver: Arc<Driver>,
    address: u64,
    bytes: usize,
    constant: bool,
    /// What is known of the weights in it.
    ranges: Mutex<Vec<Known>>,
}

/// What is known of the weights from one byte to before another.
struct Known {
    format: Format,
    from: usize,
    to: usize,
    range: Arc<Range>,
}

impl Storage for DeviceMemory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // If the device is lost, so is its memory; whoever works on it is told.
        let _ = self.driver.free(self.address);
    }
}

impl DeviceMemory {
    /// Zeroed memory.
    pub fn zeroed(driver: &Arc<Driver>, bytes: usize) -> Result<Self, DeviceError> {
        let out_of_memory = || DeviceError::OutOfMemory { device: driver.id().into(), bytes };
        let size = bytes.checked_add(SLACK).ok_or_else(out_of_memory)?;
        let address = driver.alloc(size).map_err(|error| match error {
            DeviceError::OutOfMemory { .. } => out_of_memory(),
            error => error,
        })?;
        let memory = Self { driver: driver.clone(), address, bytes, constant: false, ranges: Mutex::default() };
        // SAFETY: the whole new allocation.
        unsafe { driver.zero(address, size) }?;
        Ok(memory)
    }

    /// A panic of another holder leaves no half entry.
    fn ranges(&self) -> MutexGuard<'_, Vec<Known>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// A copy of bytes that never change.
    pub fn constant(driver: &Arc<Driver>, bytes: &[u8]) -> Result<Self, DeviceError> {
        let mut memory = Self::zeroed(driver, bytes.len())?;
        memory.constant = true;
        // SAFETY: the allocation is longer than the copy.
        unsafe { driver.upload(memory.address, bytes.len(), bytes.len(), bytes) }?;
        Ok(memory)
    }
}

/// What the kernels are told of tensors (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[("VIEW_BYTES", size_of::<View>())];

/// A tensor as kernels see it (`View` in view.cuh).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    pub first: u64,
    pub row_stride: u64,
    pub group_stride: u64,
    pub rows: u32,
    pub groups: u32,
    pub cols: u32,
    pub half: u32,
}

impl View {
    /// A dense f32 matrix in memory of the device's own.
    pub fn matrix(first: u64, rows: usize, cols: usize) -> Self {
        let stride = cols as u64;
        Self {
            first,
            row_stride: stride,
            group_stride: stride,
            rows: rows as u32,
            groups: 1,
            cols: cols as u32,
            half: 0,
        }
    }
}

/// The device memory behind a buffer.
fn storage<'a>(driver: &Arc<Driver>, buffer: &'a Buffer) -> Result<&'a DeviceMemory, DeviceError> {
    let memory = buffer.storage::<DeviceMemory>().filter(|memory| Arc::ptr_eq(&memory.driver, driver));
    memory.ok_or_else(|| driver.failed("memory of another device"))
}

/// A tensor of this device; its elements are inside its buffer.
fn locate(driver: &Arc<Driver>, t: &Tensor, write: bool) -> Result<View, DeviceError> {
    let memory = storage(driver, &t.buffer)?;
    if t.end().is_none_or(|end| end > memory.bytes) {
        return Err(driver.failed(format!("{t:?} is not inside its buffer")));
    }
    if write && memory.constant {
        return Err(driver.failed("constant memory as an output"));
    }
    if write {
        memory.ranges().iter().for_each(|known| known.range.written());
    }
    let size = |n: usize| u32::try_from(n).map_err(|_| driver.failed(format!("{t:?} has an axis beyond 32 bits")));
    Ok(View {
        first: memory.address + (t.offset * t.dtype.bytes()) as u64,
        row_stride: t.row_stride as u64,
        group_stride: t.group_stride as u64,
        rows: size(t.rows)?,
        groups: size(t.groups)?,
        cols: size(t.cols)?,
        half: u32::from(t.dtype.bytes() == 2),
    })
}

/// A tensor that the op at hand reads.
pub(super) fn input(driver: &Arc<Driver>, t: &Tensor) -> Result<View, DeviceError> {
    locate(driver, t, false)
}

/// A tensor that the op at hand writes.
pub(super) fn output(driver: &Arc<Driver>, t: &Tensor) -> Result<View, DeviceError> {
    locate(driver, t, true)
}

/// The view of an operand that the op reads where it has one.
pub(super) fn optional(driver: &Arc<Driver>, t: Option<&Tensor>) -> Result<View, DeviceError> {
    t.map_or(Ok(View::default()), |t| input(driver, t))
}

/// Address of a weight's first row.
pub(super) fn weight(driver: &Arc<Driver>, w: &Weight) -> Result<u64, DeviceError> {
    let memory = storage(driver, &w.buffer)?;
    if w.end().is_none_or(|end| end > memory.bytes) {
        return Err(driver.failed("a weight is not inside its buffer"));
    }
    Ok(memory.address + w.offset as u64)
}

/// What is known of the range of a weight, or of a larger one that it is part of, `new` at first; its address, and its length in
/// bytes.
pub(super) fn range(
    driver: &Arc<Driver>,
    w: &Weight,
    new: impl FnOnce() -> Result<Range, DeviceError>,
) -> Result<(Arc<Range>, u64, usize), DeviceError> {
    let first = weight(driver, w)?;
    let end = w.end().unwrap_or(w.offset);
    let mut ranges = storage(driver, &w.buffer)?.ranges();
    let holds = |known: &&Known| known.format == w.format && known.from <= w.offset && end <= known.to;
    if let Some(known) = ranges.iter().find(holds) {
        return Ok((known.range.clone(), first, end - w.offset));
    }
    let range = Arc::new(new()?);
    ranges.push(Known { format: w.format, from: w.offset, to: end, range: range.clone() });
    Ok((range, first, end - w.offset))
}

/// Runs of a tensor that one copy can move: offset and pitch on the device, width and height, all in bytes.
fn pieces(t: &Tensor, first: u64) -> Vec<(u64, usize, usize, usize)> {
    let size = t.dtype.bytes();
    if t.is_empty() {
        return Vec::new();
    }
    if t.is_row_dense() || t.rows == 1 {
        let (pitch, width, height) = match t.is_row_dense() {
            true => (t.row_stride, t.width(), t.rows),
            false => (t.group_stride, t.cols, t.groups),
        };
        return vec![(first, pitch * size, width * size, height)];
    }
    let row = |r: usize| (first + (r * t.row_stride * size) as u64, t.group_stride * size, t.cols * size, t.groups);
    (0..t.rows).map(row).collect()
}

fn length(op: &'static str, t: &Tensor, bytes: usize) -> Result<(), DeviceError> {
    let want = t.len() * t.dtype.bytes();
    if bytes == want { Ok(()) } else { Err(DeviceError::Shape { op, what: format!("{bytes} bytes for {want}") }) }
}

/// Enqueues a copy from the host.
pub(super) fn write(driver: &Arc<Driver>, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
    length("write", dst, bytes.len())?;
    let view = output(driver, dst)?;
    let mut rest = bytes;
    for (address, pitch, width, height) in pieces(dst, view.first) {
        let (piece, after) = rest.split_at(width * height);
        // SAFETY: `output` found every element of the tensor inside its allocation.
        unsafe { driver.upload(address, pitch, width, piece) }?;
        rest = after;
    }
    Ok(())
}

/// Waits, then copies to the host.
pub(super) fn read(driver: &Arc<Driver>, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
    length("read", src, bytes.len())?;
    let view = input(driver, src)?;
    let mut rest = bytes;
    for (address, pitch, width, height) in pieces(src, view.first) {
        let (piece, after) = rest.split_at_mut(width * height);
        // SAFETY: `input` found every element of the tensor inside its allocation.
        unsafe { driver.download(piece, address, pitch, width) }?;
        rest = after;
    }
    Ok(())
}

/// Memory of the device's own between kernels, which grows with what is asked of it.
#[derive(Default)]
pub(super) struct Scratch(Option<DeviceMemory>);

impl Scratch {
    /// At least `bytes` bytes; what they held before is lost when it grows.
    pub fn at_least(&mut self, driver: &Arc<Driver>, bytes: usize) -> Result<u64, DeviceError> {
        if self.0.as_ref().is_none_or(|memory| memory.bytes < bytes) {
            self.0 = None; // first give back what is too small
            self.0 = Some(DeviceMemory::zeroed(driver, bytes)?);
        }
        Ok(self.0.as_ref().map_or(0, |memory| memory.address))
    }
}

//! Memory behind buffers, and tensors and weights as kernels see them.
//!
//! An adapter limits how large a buffer is and how much of it a kernel can bind. What a model file holds may be larger, so
//! constants lie in several buffers, each a little longer than the distance to the next: a row never lies in two.

use std::any::Any;
use std::sync::Arc;

use wgpu::BufferUsages;

use super::core::Core;
use super::device::State;
use super::queue::Call;
use super::shader::{File, Kernel};
use crate::device::DeviceError;
use crate::tensor::{Buffer, DType, Storage, Tensor, Weight};

/// Bytes behind every buffer that kernels may read, never use: weights are fetched in whole words, and up to 64 at a time.
pub(super) const SLACK: usize = 160;

/// The longest row of a weight that may begin at the end of a buffer.
const MAX_OVERLAP: usize = 1 << 20;

/// Bytes that travel to or from the host at a time.
const TRANSFER: usize = 32 << 20;

/// The storage of a [`WgpuDevice`](super::WgpuDevice).
pub(super) struct WgpuMemory {
    /// Whose it is.
    owner: Arc<()>,
    parts: Vec<wgpu::Buffer>,
    /// Bytes from the start of a part to the start of the next.
    distance: usize,
    bytes: usize,
    constant: bool,
}

impl Storage for WgpuMemory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The part of a buffer that a kernel sees.
#[derive(Clone)]
pub(super) struct Window {
    pub buffer: wgpu::Buffer,
    pub offset: u64,
    pub size: u64,
}

/// Rows of a weight that lie in one buffer (`Part` in decode.wgsl).
pub(super) struct Part {
    pub window: Window,
    pub words: [u32; 8],
}

impl Core {
    /// A buffer of so many bytes and some more, zeroed.
    pub(super) fn create(&self, bytes: usize) -> Result<wgpu::Buffer, DeviceError> {
        let out_of_memory = || DeviceError::OutOfMemory { device: self.id.clone(), bytes };
        let size = bytes.checked_add(SLACK).ok_or_else(out_of_memory)?.next_multiple_of(16) as u64;
        if size > self.max_buffer {
            return Err(out_of_memory());
        }
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validity = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let (invalid, full) = (pollster::block_on(validity.pop()), pollster::block_on(memory.pop()));
        match (full, invalid) {
            (Some(_), _) => Err(out_of_memory()),
            (None, Some(error)) => Err(self.failed(error.to_string())),
            (None, None) => Ok(buffer),
        }
    }

    /// Zeroed memory of the device.
    pub(super) fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        let parts = vec![self.create(bytes)?];
        Ok(Buffer::new(WgpuMemory { owner: self.owner.clone(), parts, distance: usize::MAX, bytes, constant: false }))
    }

    /// A copy of bytes that never change, in as many buffers as it takes.
    pub(super) fn constant(&self, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        let limit = self.max_binding.min(self.max_buffer) as usize - 2 * SLACK;
        let (distance, length) = if bytes.len() <= limit {
            (usize::MAX, bytes.len())
        } else {
            let overlap = (limit / 4).min(MAX_OVERLAP) / 256 * 256;
            ((limit - overlap) / 256 * 256, limit)
        };
        let mut parts = Vec::new();
        let mut first = 0;
        loop {
            let part = &bytes[first..bytes.len().min(first + length)];
            let buffer = self.create(part.len())?;
            self.upload(&buffer, 0, part);
            parts.push(buffer);
            first = first.saturating_add(distance);
            if first >= bytes.len() {
                break;
            }
        }
        let bytes = bytes.len();
        Ok(Buffer::new(WgpuMemory { owner: self.owner.clone(), parts, distance, bytes, constant: true }))
    }

    /// Copies bytes to a place that is a multiple of four; up to three bytes behind them are overwritten.
    fn upload(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        for piece in bytes.chunks(TRANSFER) {
            match piece.len() % 4 {
                0 => self.queue.write_buffer(buffer, at, piece),
                rest => {
                    let (whole, last) = piece.split_at(piece.len() - rest);
                    let mut word = [0; 4];
                    word[..rest].copy_from_slice(last);
                    self.queue.write_buffer(buffer, at, whole);
                    self.queue.write_buffer(buffer, at + whole.len() as u64, &word);
                }
            }
            at += piece.len() as u64;
            if bytes.len() > TRANSFER {
                // What is on its way takes host memory until the driver has it.
                self.queue.submit([]);
                self.wait();
            }
        }
    }

    fn memory<'b>(&self, buffer: &'b Buffer) -> Result<&'b WgpuMemory, DeviceError> {
        let memory = buffer.storage::<WgpuMemory>().filter(|memory| Arc::ptr_eq(&memory.owner, &self.owner));
        memory.ok_or_else(|| self.failed("memory of another device"))
    }

    /// The one buffer that a tensor lies in.
    fn whole<'b>(&self, t: &'b Tensor, written: bool) -> Result<&'b wgpu::Buffer, DeviceError> {
        let memory = self.memory(&t.buffer)?;
        if written && memory.constant {
            return Err(self.failed("constant memory as an output"));
        }
        if t.end().is_none_or(|end| end > memory.bytes) {
            return Err(self.failed("a tensor that is not inside its buffer"));
        }
        match &memory.parts[..] {
            [buffer] => Ok(buffer),
            _ => Err(self.unsupported(format!("a tensor in a constant of {} bytes, beyond one buffer", memory.bytes))),
        }
    }

    /// What a kernel binds for a tensor, and the tensor's view (`View` in prelude.wgsl).
    pub(super) fn window(&self, t: &Tensor, written: bool) -> Result<(Window, [u32; 4]), DeviceError> {
        let buffer = self.whole(t, written)?;
        let element = t.dtype.bytes() as u64;
        let (mut offset, mut size) = (0, buffer.size());
        if size > self.max_binding {
            let end = (t.offset + t.span()) as u64 * element;
            offset = t.offset as u64 * element / self.alignment * self.alignment;
            size = (end - offset).next_multiple_of(16).max(16);
            if size > self.max_binding {
                let what = format!("a tensor of {size} bytes: a kernel of this adapter sees {}", self.max_binding);
                return Err(self.unsupported(what));
            }
        }
        let first = self.word("an offset", (t.offset as u64 - offset / element) as usize)?;
        // A stride that is never used may be anything.
        let stride = |count: usize, stride: usize| self.word("a stride", if count <= 1 { 0 } else { stride });
        let view =
            [first, stride(t.rows, t.row_stride)?, stride(t.groups, t.group_stride)?, self.word("a width", t.cols)?];
        Ok((Window { buffer: buffer.clone(), offset, size }, view))
    }

    /// All of a buffer of the device's own.
    pub(super) fn all_of(&self, buffer: &Buffer) -> Result<Window, DeviceError> {
        let words = Tensor::dense(buffer.clone(), DType::U32, 1, 1, buffer.bytes() / 4);
        Ok(self.window(&words, true)?.0)
    }

    /// The rows of a weight, buffer by buffer.
    pub(super) fn parts(&self, w: &Weight) -> Result<Vec<Part>, DeviceError> {
        let memory = self.memory(&w.buffer)?;
        let rows = w.experts * w.rows;
        let row_bytes = w.format.row_bytes(w.cols).ok_or_else(|| self.failed("a weight whose blocks do not fit"))?;
        if w.experts > 1 && w.expert_bytes < w.rows.saturating_sub(1).saturating_mul(w.row_bytes) {
            return Err(self.unsupported("a weight whose experts interleave"));
        }
        let start = |number: usize| w.offset + number / w.rows * w.expert_bytes + number % w.rows * w.row_bytes;
        // The least row number that begins at or behind a byte: starts rise with the number.
        let at_or_behind = |byte: usize| {
            let (mut low, mut high) = (0, rows);
            while low < high {
                let middle = low + (high - low) / 2;
                (low, high) = if start(middle) < byte { (middle + 1, high) } else { (low, middle) };
            }
            low
        };
        let mut parts = Vec::new();
        for (i, buffer) in memory.parts.iter().enumerate() {
            let base = if i == 0 { 0 } else { i * memory.distance };
            let (first, last) = (at_or_behind(base), at_or_behind(base.saturating_add(memory.distance)));
            if first == last {
                continue;
            }
            if start(last - 1) - base + row_bytes > buffer.size() as usize {
                return Err(self.unsupported(format!("a weight with rows of {row_bytes} bytes in several buffers")));
            }
            let (expert, row) = (first / w.rows, first % w.rows);
            // Modulo 2^32, as kernels compute it; the address of a row that is here is below it.
            let at = ((start(first) - base) as u32).wrapping_sub((row as u32).wrapping_mul(w.row_bytes as u32));
            let words = [
                self.word("a weight's rows", first)?,
                self.word("a weight's rows", last)?,
                at,
                w.row_bytes as u32,
                expert as u32,
                w.expert_bytes as u32,
                w.rows as u32,
                0,
            ];
            parts.push(Part { window: Window { buffer: buffer.clone(), offset: 0, size: buffer.size() }, words });
        }
        Ok(parts)
    }

    /// Enqueues a copy from the host.
    pub(super) fn write(&self, state: &mut State, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
        length("write", dst, bytes.len())?;
        let buffer = self.whole(dst, true)?;
        state.queue.submit(self); // it comes after what was enqueued before
        let start = dst.offset * dst.dtype.bytes();
        if dst.span() == dst.len() && start.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            self.upload(buffer, start as u64, bytes);
            return Ok(());
        }
        let source = self.alloc(bytes.len())?;
        let dense = Tensor::dense(source, dst.dtype, dst.rows, dst.groups, dst.cols);
        self.upload(self.whole(&dense, false)?, 0, bytes);
        let half = dst.dtype == DType::F16;
        let entry = if half { "scatter_half" } else { "copy" };
        let items = dst.rows * dst.groups * if half { dst.cols / 2 + 1 } else { dst.cols };
        let groups = self.word("a number of groups", dst.groups)?;
        let call = Call::new(self, Kernel::plain(File::Copy, entry)).input(&dense)?.output(dst)?;
        call.parameters(&[("groups", groups), ("src_groups", groups), ("value", 0)]).threads(state, items)
    }

    /// Copies elements to the host, after everything that was submitted.
    pub(super) fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        length("read", src, bytes.len())?;
        self.memory(&src.buffer)?;
        if src.is_empty() {
            return Ok(());
        }
        let buffer = self.whole(src, false)?;
        let element = src.dtype.bytes();
        let run = src.cols * element;
        // Rows whose span is about one transfer.
        let rows = (TRANSFER / (src.row_stride * element).max(1)).clamp(1, src.rows);
        let mut rest = bytes;
        for first in (0..src.rows).step_by(rows) {
            let part = src.rows(first..src.rows.min(first + rows));
            let start = part.offset * element / 4 * 4;
            let end = (part.offset + part.span()) * element;
            let data = self.download(buffer, start as u64, end - start)?;
            for r in 0..part.rows {
                for g in 0..part.groups {
                    let at = (part.offset + r * part.row_stride + g * part.group_stride) * element - start;
                    let (piece, after) = rest.split_at_mut(run);
                    piece.copy_from_slice(&data[at..at + run]);
                    rest = after;
                }
            }
        }
        Ok(())
    }

    /// Waits for so many bytes of a buffer.
    pub(super) fn download(&self, buffer: &wgpu::Buffer, start: u64, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        let size = bytes.next_multiple_of(4) as u64;
        self.downloaded.fetch_add(size, std::sync::atomic::Ordering::Relaxed);
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("to the host"),
            size,
            usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(buffer, start, &staging, 0, size);
        self.queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.wait();
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let view = staging.get_mapped_range(..).map_err(|error| self.failed(error.to_string()))?;
        Ok(view[..bytes].to_vec())
    }
}

fn length(op: &'static str, t: &Tensor, bytes: usize) -> Result<(), DeviceError> {
    if bytes == t.len() * t.dtype.bytes() {
        return Ok(());
    }
    let shape = [t.rows, t.groups, t.cols];
    Err(DeviceError::Shape { op, what: format!("{bytes} bytes for {shape:?} {:?}", t.dtype) })
}

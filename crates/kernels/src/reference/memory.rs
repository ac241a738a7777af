//! Memory of the reference device: bytes behind a lock, decoded whenever an operand is read.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

use argon_gguf::{Bytes, decode_row};
use half::f16;

use super::Array;
use crate::device::DeviceError;
use crate::tensor::{DType, Storage, Tensor, Weight};

/// The storage of a [`ReferenceDevice`](super::ReferenceDevice).
pub(super) enum Memory {
    Owned(Mutex<Vec<u8>>),
    Constant(Bytes),
}

impl Storage for Memory {
    fn bytes(&self) -> usize {
        match self {
            Memory::Owned(bytes) => bytes.lock().unwrap_or_else(PoisonError::into_inner).len(),
            Memory::Constant(bytes) => bytes.len(),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Memory {
    /// Zeroed bytes; `None` where the system has no such memory.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, 0);
        Some(Memory::Owned(Mutex::new(bytes)))
    }

    fn with<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Memory::Owned(bytes) => f(&bytes.lock().unwrap_or_else(PoisonError::into_inner)),
            Memory::Constant(bytes) => f(bytes),
        }
    }
}

fn failed(what: impl Into<String>) -> DeviceError {
    DeviceError::Failed { device: super::ID.into(), what: what.into() }
}

fn storage(buffer: &crate::tensor::Buffer) -> Result<&Memory, DeviceError> {
    buffer.storage().ok_or_else(|| failed("memory of another device"))
}

/// First byte of each group of a tensor, in order, and the bytes of a group.
fn groups(t: &Tensor) -> Result<(impl Iterator<Item = usize> + use<>, usize), DeviceError> {
    if t.end().is_none_or(|end| end > t.buffer.bytes()) {
        return Err(failed(format!("{t:?} is not inside its buffer")));
    }
    let (offset, size, rows, groups) = (t.offset, t.dtype.bytes(), t.rows, t.groups);
    let (row_stride, group_stride) = (t.row_stride, t.group_stride);
    let starts =
        (0..rows).flat_map(move |r| (0..groups).map(move |g| (offset + r * row_stride + g * group_stride) * size));
    Ok((starts, t.cols * size))
}

/// The bytes of all elements, without gaps.
pub(super) fn read_bytes(t: &Tensor) -> Result<Vec<u8>, DeviceError> {
    let (starts, len) = groups(t)?;
    let mut bytes = Vec::with_capacity(t.len() * t.dtype.bytes());
    storage(&t.buffer)?.with(|memory| {
        for start in starts.take(if len == 0 { 0 } else { usize::MAX }) {
            bytes.extend_from_slice(&memory[start..start + len]);
        }
    });
    Ok(bytes)
}

/// Writes the bytes of all elements.
pub(super) fn write_bytes(t: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
    let (starts, len) = groups(t)?;
    if bytes.len() != t.len() * t.dtype.bytes() {
        let shape = [t.rows, t.groups, t.cols];
        return Err(DeviceError::Shape {
            op: "write",
            what: format!("{} bytes for {shape:?} {:?}", bytes.len(), t.dtype),
        });
    }
    let Memory::Owned(memory) = storage(&t.buffer)? else {
        return Err(failed("constant memory as an output"));
    };
    let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    for (start, bytes) in starts.zip(bytes.chunks_exact(len.max(1))) {
        memory[start..start + len].copy_from_slice(bytes);
    }
    Ok(())
}

fn array<T>(t: &Tensor, data: Vec<T>) -> Array<T> {
    Array { shape: [t.rows, t.groups, t.cols], data }
}

/// A tensor of either float type.
pub(super) fn read(t: &Tensor) -> Result<Array, DeviceError> {
    let bytes = read_bytes(t)?;
    Ok(array(
        t,
        match t.dtype {
            DType::F16 => bytes.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f64()).collect(),
            _ => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b).into()).collect(),
        },
    ))
}

/// A tensor of signed integers.
pub(super) fn read_ints(t: &Tensor) -> Result<Array<i32>, DeviceError> {
    Ok(array(t, read_bytes(t)?.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b)).collect()))
}

/// A tensor of words, or the bits of a tensor of floats.
pub(super) fn read_words(t: &Tensor) -> Result<Array<u32>, DeviceError> {
    Ok(array(t, read_bytes(t)?.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect()))
}

/// Rounds to the tensor's type, to nearest, ties to even.
pub(super) fn write(t: &Tensor, values: &Array) -> Result<(), DeviceError> {
    let bytes: Vec<u8> = match t.dtype {
        DType::F16 => values.data.iter().flat_map(|&x| f16::from_f64(x).to_le_bytes()).collect(),
        _ => values.data.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
    };
    write_bytes(t, &bytes)
}

/// Integers or words.
pub(super) fn write_ints<T: bytemuck::Pod>(t: &Tensor, values: &[T]) -> Result<(), DeviceError> {
    write_bytes(t, bytemuck::cast_slice(values))
}

/// A row of one of a weight's matrices, decoded.
pub(super) fn weight_row(w: &Weight, expert: usize, row: usize) -> Result<Vec<f64>, DeviceError> {
    let len = w.format.row_bytes(w.cols).ok_or_else(|| failed("a weight whose blocks do not fit"))?;
    let start = w.offset + expert * w.expert_bytes + row * w.row_bytes;
    let mut values = vec![0.0; w.cols];
    storage(&w.buffer)?.with(|bytes| decode_row(w.format, &bytes[start..start + len], &mut values));
    Ok(values.into_iter().map(f64::from).collect())
}

//! A small product by the adapter's matrices, compared with the exact answer: decides whether f16 operands are staged at all.

use argon_gguf::{Format, encode_row};

use super::device::WgpuDevice;
use crate::device::{Device, DeviceError, tensor};
use crate::op::{Epilogue, Gemm, Precision, RowMap};
use crate::tensor::{DType, Weight};

/// Rows and columns of the output that are no multiple of a tile, and several steps of k.
const ROWS: usize = 19;
const COLUMNS: usize = 70;
const DEPTH: usize = 96;

/// Whether every element is right: integers whose products and sums f16 and f32 hold exactly.
pub(super) fn passes(device: &WgpuDevice) -> Result<bool, DeviceError> {
    let small = |i: usize, j: usize| ((7 * i + 3 * j) % 9) as f32 - 4.0;
    let x: Vec<f32> = (0..ROWS * DEPTH).map(|i| small(i / DEPTH, i % DEPTH)).collect();
    let w: Vec<f32> = (0..COLUMNS * DEPTH).map(|i| small(i % DEPTH, 5 * (i / DEPTH))).collect();
    let mut bytes = vec![0; 2 * w.len()];
    encode_row(Format::F16, &w, &mut bytes).map_err(|error| device.core().failed(error.to_string()))?;
    let buffer = device.constant(bytes.into())?;
    let weight = Weight::dense(buffer, Format::F16, 1, COLUMNS, DEPTH);
    let input = tensor(device, DType::F32, ROWS, 1, DEPTH)?;
    let out = tensor(device, DType::F32, ROWS, 1, COLUMNS)?;
    device.write(&input, bytemuck::cast_slice(&x))?;
    device.enqueue(
        &Gemm {
            x: input,
            w: weight.ok_or_else(|| device.core().failed("the self-test's weight does not fit"))?,
            bias: None,
            rows: RowMap::Identity,
            epilogue: Epilogue::Store,
            precision: Precision::F16,
            out: out.clone(),
        }
        .into(),
    )?;
    let mut found = vec![0f32; ROWS * COLUMNS];
    device.read(&out, bytemuck::cast_slice_mut(&mut found))?;
    let exact = |i: usize| -> f32 {
        let (x, w) = (&x[i / COLUMNS * DEPTH..][..DEPTH], &w[i % COLUMNS * DEPTH..][..DEPTH]);
        x.iter().zip(w).map(|(x, w)| x * w).sum()
    };
    Ok(found.iter().enumerate().all(|(i, &found)| found == exact(i)))
}

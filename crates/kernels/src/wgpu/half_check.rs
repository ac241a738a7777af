//! Small products of f16 operands, compared with the exact answer: decides whether an adapter's matrices are used, and whether
//! tiles of f16 are staged at all.

use argon_gguf::{Bytes, Format, decode_row, encode_row};
use half::f16;

use super::device::WgpuDevice;
use super::tier::Products;
use crate::device::{Device, DeviceError, tensor, upload};
use crate::op::{Epilogue, Gemm, Precision, RowMap};
use crate::tensor::{DType, Weight};

/// Rows and columns of the output that are no multiple of a tile, and several steps of k.
const ROWS: usize = 19;
const COLUMNS: usize = 70;
const DEPTH: usize = 96;

/// Whether products in f16 that are made so are right: exact, and tiles of f16 also rounded as they have to be.
pub(super) fn passes(device: &WgpuDevice, products: Products) -> Result<bool, DeviceError> {
    Ok(multiplies(device)? && (products != Products::F16Tiles || rounds(device)?))
}

/// Whether a product in f16 of what f16 and f32 hold exactly, and its sums, is exact.
fn multiplies(device: &WgpuDevice) -> Result<bool, DeviceError> {
    let small = |i: usize, j: usize| ((7 * i + 3 * j) % 9) as f32 - 4.0;
    let x: Vec<f32> = (0..ROWS * DEPTH).map(|i| small(i / DEPTH, i % DEPTH)).collect();
    let w: Vec<f32> = (0..COLUMNS * DEPTH).map(|i| small(i % DEPTH, 5 * (i / DEPTH))).collect();
    let mut bytes = vec![0; 2 * w.len()];
    encode_row(Format::F16, &w, &mut bytes).map_err(|error| device.core().failed(error.to_string()))?;
    Ok(product(device, &x, bytes, Format::F16)? == exact(&x, &w))
}

/// Whether inputs keep what f16 has of them, and weights are rounded to the nearest f16, ties to even, subnormals kept: each
/// row of the input has one number that is not 0, a power of two.
fn rounds(device: &WgpuDevice) -> Result<bool, DeviceError> {
    let block = Format::Q8_0.block_len();
    // Numbers q * d that f16 has not: with a last bit of d in the middle between two of its numbers, and below the least normal.
    let scales = [0x3c01u16, 0x3801, 0x5bff, 0x0401, 0x0101, 0x0001];
    let weight: Vec<u8> = (0..COLUMNS * DEPTH / block)
        .flat_map(|i| {
            let codes = (0..block).map(move |j| (37 * i + 11 * j) as u8);
            scales[i % scales.len()].to_le_bytes().into_iter().chain(codes)
        })
        .collect();
    let mut w = vec![0.0; COLUMNS * DEPTH];
    decode_row(Format::Q8_0, &weight, &mut w);
    w.iter_mut().for_each(|w| *w = f16::from_f32(*w).to_f32());
    let mut x = vec![0.0; ROWS * DEPTH];
    for (r, row) in x.chunks_exact_mut(DEPTH).enumerate() {
        row[5 * r] = [1.0, f16::from_bits(1).to_f32(), -0.5][r % 3];
    }
    Ok(product(device, &x, weight, Format::Q8_0)? == exact(&x, &w))
}

/// In f16, of x `[ROWS, DEPTH]` and a weight of COLUMNS rows.
fn product(device: &WgpuDevice, x: &[f32], weight: Vec<u8>, format: Format) -> Result<Vec<f32>, DeviceError> {
    let buffer = device.constant(Bytes::from(weight))?;
    let weight = Weight::dense(buffer, format, 1, COLUMNS, DEPTH);
    let x = upload(device, DType::F32, [ROWS, 1, DEPTH], bytemuck::cast_slice(x))?;
    let out = tensor(device, DType::F32, ROWS, 1, COLUMNS)?;
    device.enqueue(
        &Gemm {
            x,
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
    Ok(found)
}

fn exact(x: &[f32], w: &[f32]) -> Vec<f32> {
    let dot = |(x, w): (&[f32], &[f32])| x.iter().zip(w).map(|(x, w)| x * w).sum();
    let rows = x.chunks_exact(DEPTH).flat_map(|x| w.chunks_exact(DEPTH).map(move |w| (x, w)));
    rows.map(dot).collect()
}

//! The operands of a device's products, seen through the products themselves.
//!
//! A sum that has one term is that term: rows times the unit matrix are the activations as the device multiplies them, and
//! the unit matrix times weights are the weights. Reference B multiplies these in float64, so what is left of a device's
//! distance to it is how it adds up. A device may multiply few rows in another way than many, and so those of a plan of low
//! tiles: as many rows go through a product here as through the case's own, or a plan with as high tiles.

use argon_gguf::Format;

use argon_plan::Shape;

use super::arena::{Result, weight};
use crate::device::{Device, DeviceError, tensor, upload};
use crate::op::{Epilogue, Gemm, Plan, PlanBuffers, Precision, RowMap};
use crate::tensor::{DType, Tensor, Weight};

/// Rows of `cols` activations as `device` multiplies them with weights of `format`, `at_once` of them in a product.
///
/// # Errors
/// Those of the device.
pub fn activations(
    device: &dyn Device,
    precision: Precision,
    format: Format,
    values: &[f32],
    cols: usize,
    at_once: usize,
) -> Result<Vec<f32>> {
    let (rows, format, bytes) = (values.len() / cols.max(1), unit_format(format), unit_rows(format, cols));
    let unit = weight(device, format, bytes, 1, cols, cols)?;
    let x = upload(device, DType::F32, [rows, 1, cols], bytemuck::cast_slice(values))?;
    product(device, precision, &x, &unit, at_once)
}

/// All values of `w`, one matrix on `device`, as it multiplies them with `at_once` rows.
///
/// # Errors
/// Those of the device.
pub fn weights(device: &dyn Device, precision: Precision, w: &Weight, at_once: usize) -> Result<Vec<f32>> {
    let columns = product(device, precision, &unit(device, w.cols)?, w, at_once)?;
    Ok(transposed(&columns, w))
}

/// The same in the tiles of a plan, `tile` rows each.
///
/// # Errors
/// Those of the device.
pub fn routed_weights(device: &dyn Device, precision: Precision, w: &Weight, tile: usize) -> Result<Vec<f32>> {
    let x = unit(device, w.cols)?;
    // All rows go to the one expert, in their order.
    let impossible = |_| DeviceError::Shape { op: "plan", what: format!("{} rows in tiles of {tile}", x.rows) };
    let shape = Shape::new(x.rows, 1, 1, tile).map_err(impossible)?;
    let plan = PlanBuffers::new(device, shape)?;
    let zeros = vec![0; 4 * x.rows];
    let [ids, weights] = [DType::I32, DType::F32].map(|dtype| upload(device, dtype, [x.rows, 1, 1], &zeros));
    device.enqueue(&Plan { ids: ids?, weights: weights?, plan: plan.clone() }.into())?;
    let out = tensor(device, DType::F32, shape.max_rows(), 1, w.rows)?;
    let (rows, epilogue) = (RowMap::Gather(plan), Epilogue::Store);
    device.enqueue(&Gemm { x, w: w.clone(), bias: None, rows, epilogue, precision, out: out.clone() }.into())?;
    let mut columns = vec![0f32; out.len()];
    device.read(&out, bytemuck::cast_slice_mut(&mut columns))?;
    Ok(transposed(&columns, w))
}

fn unit(device: &dyn Device, cols: usize) -> Result<Tensor> {
    let unit: Vec<f32> = (0..cols * cols).map(|i| f32::from(u8::from(i / cols == i % cols))).collect();
    upload(device, DType::F32, [cols, 1, cols], bytemuck::cast_slice(&unit))
}

/// The matrix whose columns these are.
fn transposed(columns: &[f32], w: &Weight) -> Vec<f32> {
    (0..w.rows * w.cols).map(|i| columns[i % w.cols * w.rows + i / w.cols]).collect()
}

/// The format of a unit matrix that is multiplied as weights of `format` are: plain numbers, MXFP4, whose range is beyond that
/// of f16, or blocks of integers.
fn unit_format(format: Format) -> Format {
    if format.block_len() == 1 || format == Format::MXFP4 { format } else { Format::Q8_0 }
}

/// The unit matrix `[cols, cols]`; whole blocks.
pub(super) fn unit_rows(format: Format, cols: usize) -> Vec<u8> {
    let one: &[u8] = match format {
        Format::F32 => &1f32.to_le_bytes(),
        Format::BF16 => &half::bf16::ONE.to_le_bytes(),
        Format::F16 => &half::f16::ONE.to_le_bytes(),
        Format::MXFP4 => return (0..cols).flat_map(|row| mxfp4_row(row, cols)).collect(),
        _ => return (0..cols).flat_map(|row| integer_row(row, cols)).collect(),
    };
    let zero = vec![0; one.len()];
    (0..cols * cols).flat_map(|i| if i / cols == i % cols { one } else { &zero }).copied().collect()
}

/// A row of blocks of 32 integers, each with the scale 1.
fn integer_row(row: usize, cols: usize) -> impl Iterator<Item = u8> {
    (0..cols / 32).flat_map(move |block| {
        let integers = (0..32).map(move |i| u8::from(32 * block + i == row));
        half::f16::ONE.to_le_bytes().into_iter().chain(integers)
    })
}

/// The same in MXFP4: the exponent of 1, then nibbles, of which 2 is 1; those of weights 16 apart share a byte.
fn mxfp4_row(row: usize, cols: usize) -> impl Iterator<Item = u8> {
    (0..cols / 32).flat_map(move |block| {
        let mut bytes = [0; 17];
        bytes[0] = 127;
        if row / 32 == block {
            bytes[1 + row % 16] = 2 << (row % 32 / 16 * 4);
        }
        bytes
    })
}

fn product(device: &dyn Device, precision: Precision, x: &Tensor, w: &Weight, at_once: usize) -> Result<Vec<f32>> {
    let out = tensor(device, DType::F32, x.rows, 1, w.rows)?;
    for first in (0..x.rows).step_by(at_once.max(1)) {
        let rows = first..x.rows.min(first.saturating_add(at_once.max(1)));
        let gemm = Gemm {
            x: x.rows(rows.clone()),
            w: w.clone(),
            bias: None,
            rows: RowMap::Identity,
            epilogue: Epilogue::Store,
            precision,
            out: out.rows(rows),
        };
        device.enqueue(&gemm.into())?;
    }
    let mut values = vec![0f32; out.len()];
    device.read(&out, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

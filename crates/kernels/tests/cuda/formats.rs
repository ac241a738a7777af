//! What the matrix products make of every format's weights, bit by bit: a product with the unit matrix has one term in
//! each sum, so its output is the decoded weight itself.

use argon_gguf::{Bytes, Format, decode_row};
use argon_kernels::device::tensor;
use argon_kernels::op::{Embed, Epilogue, Gemm, RowMap};
use argon_kernels::{DType, Device, Precision, Weight};
use half::f16;

use crate::gpu;
use crate::support::weights::{Rng, random};

/// How far the operand may be from the exact weight.
enum Operand {
    /// It is the exact weight, rounded once to f16.
    Rounded,
    /// It is rounded more than once: at most so many units in the last place of f16 of the weight itself, or of the largest
    /// weight of the block.
    Within { ulps: f32, of_block: bool },
}

/// What decode.cuh declares.
fn operand(format: Format) -> Operand {
    match format {
        // d * n in two numbers: of scales of 0.001 and more, the second is off by up to 2^-25, its product likewise.
        Format::IQ4_XS | Format::Q6_K => Operand::Within { ulps: 0.65, of_block: false },
        // A difference, then what the minimum has beyond f16, itself off by up to 2^-25.
        Format::Q2_K | Format::Q4_K | Format::Q5_K => Operand::Within { ulps: 1.6, of_block: false },
        // The definition rounds q * d and the sum with m to f32, the operand once to f16: ties may fall differently.
        Format::Q4_1 | Format::Q5_1 => Operand::Within { ulps: 0.51, of_block: true },
        _ => Operand::Rounded,
    }
}

/// The weights of `rows` rows, as the products see them.
pub fn operands(device: &dyn Device, w: &Weight) -> Vec<f32> {
    let (n, k) = (w.rows, w.cols);
    let unit: Vec<f32> = (0..k * k).map(|i| if i / k == i % k { 1.0 } else { 0.0 }).collect();
    let x = tensor(device, DType::F32, k, 1, k).unwrap();
    device.write(&x, bytemuck::cast_slice(&unit)).unwrap();
    let out = tensor(device, DType::F32, k, 1, n).unwrap();
    let gemm = Gemm {
        x,
        w: w.clone(),
        bias: None,
        rows: RowMap::Identity,
        epilogue: Epilogue::Store,
        precision: Precision::F16,
        out: out.clone(),
    };
    device.enqueue(&gemm.into()).unwrap();
    let mut columns = vec![0f32; k * n];
    device.read(&out, bytemuck::cast_slice_mut(&mut columns)).unwrap();
    (0..n * k).map(|i| columns[i % k * n + i / k]).collect()
}

/// Operands and embeddings of a format.
pub fn check(format: Format) {
    let Some(device) = gpu() else { return };
    let (rows, cols) = (40, 512);
    let bytes = random(format, rows * cols, &mut Rng::new(format as u64));
    let mut exact = vec![0f32; rows * cols];
    decode_row(format, &bytes, &mut exact);
    let weight = Weight::dense(device.constant(Bytes::from(bytes)).unwrap(), format, 1, rows, cols).unwrap();

    for (i, (got, exact)) in embeddings(&*device, &weight).iter().zip(&exact).enumerate() {
        assert_eq!(got.to_bits(), exact.to_bits(), "{format} weight {i}: {got} for {exact}");
    }
    if format == Format::F32 {
        return; // multiplied as it is
    }
    let block = format.block_len().max(32);
    for (b, (got, exact)) in operands(&*device, &weight).chunks(block).zip(exact.chunks(block)).enumerate() {
        let largest = exact.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (i, (&got, &exact)) in got.iter().zip(exact).enumerate() {
            let at = format!("{format}, block {b}, weight {i}: {got} for {exact}");
            match operand(format) {
                Operand::Rounded => assert_eq!(got, f16::from_f32(exact).to_f32(), "{at}"),
                Operand::Within { ulps, of_block } => {
                    let ulp = (if of_block { largest } else { exact.abs() } * 2f32.powi(-10)).max(2f32.powi(-24));
                    assert!((got - exact).abs() <= ulps * ulp, "{at}, {} ulp", (got - exact).abs() / ulp);
                }
            }
        }
    }
}

/// All rows of a table, by the op that decodes exactly.
fn embeddings(device: &dyn Device, table: &Weight) -> Vec<f32> {
    let (rows, cols) = (table.rows, table.cols);
    let ids = tensor(device, DType::I32, rows, 1, 1).unwrap();
    device.write(&ids, bytemuck::cast_slice(&(0..rows as i32).collect::<Vec<_>>())).unwrap();
    let out = tensor(device, DType::F32, rows, 1, cols).unwrap();
    device.enqueue(&Embed { table: table.clone(), ids, out: out.clone() }.into()).unwrap();
    let mut values = vec![0f32; rows * cols];
    device.read(&out, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

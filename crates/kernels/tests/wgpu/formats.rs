//! What the kernels make of every format's weights: rows of a table are decoded to the bit.

use argon_gguf::{Bytes, Format, decode_row};
use argon_kernels::device::tensor;
use argon_kernels::op::Embed;
use argon_kernels::wgpu::WgpuOptions;
use argon_kernels::{DType, Device, Weight};

use crate::support::weights::{Rng, random};
use crate::{devices, open, options};

#[test]
fn every_format() {
    for format in Format::weights() {
        for device in devices() {
            check(&*device.device, format, 40, 512);
        }
    }
}

/// Tables in two buffers and more.
#[test]
fn every_format_in_several_buffers() {
    let Some(low) = open(WgpuOptions { max_binding: Some(16 << 10), ..options() }) else { return };
    for format in Format::weights() {
        check(&*low, format, 400, 256);
    }
}

/// All rows of a random table, to the bit.
fn check(device: &dyn Device, format: Format, rows: usize, cols: usize) {
    let bytes = random(format, rows * cols, &mut Rng::new(format as u64));
    let mut exact = vec![0f32; rows * cols];
    decode_row(format, &bytes, &mut exact);
    let table = device.constant(Bytes::from(bytes)).unwrap();
    let table = Weight::dense(table, format, 1, rows, cols).unwrap();
    for (i, (got, exact)) in embeddings(device, &table).iter().zip(&exact).enumerate() {
        assert_eq!(got.to_bits(), exact.to_bits(), "{format} weight {i}: {got} for {exact}");
    }
}

/// Rows that are asked for at a time.
const AT_ONCE: usize = 14;

/// All rows of a table.
fn embeddings(device: &dyn Device, table: &Weight) -> Vec<f32> {
    let mut values = Vec::new();
    for first in (0..table.rows).step_by(AT_ONCE) {
        let rows: Vec<i32> = (first..table.rows.min(first + AT_ONCE)).map(|row| row as i32).collect();
        let ids = tensor(device, DType::I32, rows.len(), 1, 1).unwrap();
        device.write(&ids, bytemuck::cast_slice(&rows)).unwrap();
        let out = tensor(device, DType::F32, rows.len(), 1, table.cols).unwrap();
        device.enqueue(&Embed { table: table.clone(), ids, out: out.clone() }.into()).unwrap();
        let mut some = vec![0f32; out.len()];
        device.read(&out, bytemuck::cast_slice_mut(&mut some)).unwrap();
        values.extend(some);
    }
    values
}

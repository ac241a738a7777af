//! What the kernels make of every format's weights: rows of a table are decoded to the bit.

use argon_gguf::{Bytes, Format, decode_row};
use argon_kernels::device::tensor;
use argon_kernels::op::Embed;
use argon_kernels::{DType, Device, Weight};

use crate::devices;
use crate::weights::{Rng, random};

#[test]
fn every_format() {
    let (rows, cols) = (40, 512);
    for format in Format::weights() {
        let bytes = random(format, rows * cols, &mut Rng::new(format as u64));
        let mut exact = vec![0f32; rows * cols];
        decode_row(format, &bytes, &mut exact);
        for device in devices().into_iter().map(|tested| tested.device) {
            let table = device.constant(Bytes::from(bytes.clone())).unwrap();
            let table = Weight::dense(table, format, 1, rows, cols).unwrap();
            for (i, (got, exact)) in embeddings(&*device, &table).iter().zip(&exact).enumerate() {
                assert_eq!(got.to_bits(), exact.to_bits(), "{format} weight {i}: {got} for {exact}");
            }
        }
    }
}

/// All rows of a table.
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

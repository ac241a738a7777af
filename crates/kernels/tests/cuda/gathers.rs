//! The rows of a plan, laid out: bit by bit what the definition says.

use argon_kernels::cuda::CudaDevice;
use argon_kernels::device::tensor;
use argon_kernels::op::{Plan as PlanOp, PlanBuffers};
use argon_kernels::{DType, Device, Tensor};
use argon_plan::{Plan, Shape, Variant};
use half::f16;

use crate::gpu;
use crate::weights::Rng;

const POLLUTION: u16 = 0xbeef;

fn filled(device: &CudaDevice, dtype: DType, rows: usize, cols: usize, bytes: &[u8]) -> Tensor {
    let t = tensor(device, dtype, rows, 1, cols).unwrap();
    device.write(&t, bytes).unwrap();
    t
}

/// The least s that brings a row inside the range of f16.
fn exponent(row: &[f32]) -> i32 {
    let most = row.iter().fold(0f32, |most, x| most.max(x.abs()));
    (0..128).find(|&s| most * 2f32.powi(-s) < 65520.0).unwrap()
}

fn check(device: &CudaDevice, [tokens, top_k, experts, tile, cols]: [usize; 5]) {
    let shape = Shape::new(tokens, top_k, experts, tile).unwrap();
    let mut rng = Rng::new((tokens * 31 + cols) as u64);
    let ids: Vec<i32> = (0..shape.entries()).map(|_| rng.below(experts + 1) as i32 - 1).collect();
    // Some rows are beyond the range of f16, some numbers below it.
    let size = |i: usize| [1.0, 1e6, 1e-7, 65519.0][i / cols % 4];
    let x: Vec<f32> = (0..tokens * cols).map(|i| rng.normal() * size(i)).collect();
    let plan = Plan::build_lenient(shape, &ids, &vec![0; ids.len()], Variant::default()).unwrap();

    let buffers = PlanBuffers::new(device, shape).unwrap();
    let ids = filled(device, DType::I32, tokens, top_k, bytemuck::cast_slice(&ids));
    let weights = tensor(device, DType::F32, tokens, 1, top_k).unwrap();
    device.enqueue(&PlanOp { ids, weights, plan: buffers.clone() }.into()).unwrap();
    let halves: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
    let rows = shape.max_rows();
    let sources = [
        filled(device, DType::F32, tokens, cols, bytemuck::cast_slice(&x)),
        filled(device, DType::F16, tokens, cols, bytemuck::cast_slice(&halves)),
    ];
    for source in sources {
        let out = filled(device, DType::F16, rows, cols, &POLLUTION.to_ne_bytes().repeat(rows * cols));
        let exponents = tensor(device, DType::I32, rows, 1, 1).unwrap();
        let scaled = source.dtype == DType::F32;
        device.gather(&source, &buffers, &out, scaled.then_some(&exponents)).unwrap();
        let (mut got, mut got_exponents) = (vec![0u16; rows * cols], vec![0i32; rows]);
        device.read(&out, bytemuck::cast_slice_mut(&mut got)).unwrap();
        device.read(&exponents, bytemuck::cast_slice_mut(&mut got_exponents)).unwrap();
        for (r, row) in got.chunks_exact(cols).enumerate() {
            let at = format!("row {r} of {shape:?} from {:?}", source.dtype);
            let want: Vec<u16> = match plan.stok().get(r) {
                Some(&token) if token >= 0 => {
                    let of = token as usize * cols..(token as usize + 1) * cols;
                    let s = if scaled { exponent(&x[of.clone()]) } else { 0 };
                    assert_eq!(got_exponents[r], s, "{at}");
                    match scaled {
                        true => x[of].iter().map(|&x| f16::from_f32(x * 2f32.powi(-s)).to_bits()).collect(),
                        false => halves[of].iter().map(|x| x.to_bits()).collect(),
                    }
                }
                Some(_) => vec![0; cols],
                None => vec![POLLUTION; cols],
            };
            assert_eq!(row, want, "{at}");
        }
    }
}

#[test]
fn gathers_are_exact() {
    let Some(device) = gpu() else { return };
    for case in [[1, 1, 1, 1, 8], [37, 3, 5, 8, 64], [64, 4, 33, 16, 37], [300, 10, 129, 8, 2560]] {
        check(&device, case);
    }
}

//! Ops that run side by side, where their declared reads and writes allow it: the same bytes as one after another.

use argon_gguf::{Bytes, Format};
use argon_kernels::cuda::{CudaDevice, CudaOptions};
use argon_kernels::device::tensor;
use argon_kernels::op::*;
use argon_kernels::{DType, Device, Op, Precision, Tensor, Weight};
use argon_plan::Shape;

use crate::support::weights::{Rng, random};
use crate::{gpu, options};

const TOKENS: usize = 70;
const TOP_K: usize = 3;
const EXPERTS: usize = 9;
const D: usize = 512;
const F: usize = 256;

/// One layer after another, each with a shared expert, on the same memory: a layer's result is the next one's input.
fn run(device: &CudaDevice, layers: usize) -> Vec<u32> {
    let mut rng = Rng::new(17);
    let f32s = |rows, cols| tensor(device, DType::F32, rows, 1, cols).unwrap();
    let shape = Shape::new(TOKENS, TOP_K, EXPERTS, 16).unwrap();
    let plan = PlanBuffers::new(device, shape).unwrap();
    let x = f32s(TOKENS, D);
    let numbers: Vec<f32> = (0..TOKENS * D).map(|_| rng.normal()).collect();
    device.write(&x, bytemuck::cast_slice(&numbers)).unwrap();
    let ids = tensor(device, DType::I32, TOKENS, 1, TOP_K).unwrap();
    let (logits, weights) = (f32s(TOKENS, EXPERTS), f32s(TOKENS, TOP_K));
    let (hidden, rows) = (f32s(shape.max_rows(), F), f32s(shape.max_rows(), D));
    let (shared_hidden, shared, share) = (f32s(TOKENS, F), f32s(TOKENS, D), f32s(TOKENS, 1));
    let norm = f32s(1, D);
    device.write(&norm, bytemuck::cast_slice(&[1.0f32; D])).unwrap();
    let config = RouteConfig {
        gating: Gating::Softmax,
        top_k: TOP_K,
        groups: None,
        renormalise: true,
        scale: 1.0,
        tail_share: None,
    };
    for layer in 0..layers {
        let mut weight = |format: Format, experts: usize, rows: usize, cols: usize| {
            let bytes = random(format, experts * rows * cols, &mut rng);
            Weight::dense(device.constant(Bytes::from(bytes)).unwrap(), format, experts, rows, cols).unwrap()
        };
        let product = |x: &Tensor, w: Weight, rows, epilogue, precision, out: &Tensor| -> Op {
            Gemm { x: x.clone(), w, bias: None, rows, epilogue, precision, out: out.clone() }.into()
        };
        let (gather, segments) = (RowMap::Gather(plan.clone()), RowMap::Segments(plan.clone()));
        let ops: Vec<Op> = vec![
            RmsNorm { x: x.clone(), weight: norm.clone(), eps: 1e-6, out: x.clone() }.into(),
            product(&x, weight(Format::F32, 1, EXPERTS, D), RowMap::Identity, Epilogue::Store, Precision::F32, &logits),
            Route { logits: logits.clone(), bias: None, config, layer, ids: ids.clone(), weights: weights.clone() }
                .into(),
            product(
                &x,
                weight(Format::Q8_0, 1, F, D),
                RowMap::Identity,
                Epilogue::SwiGlu { up: weight(Format::Q8_0, 1, F, D) },
                Precision::F16,
                &shared_hidden,
            ),
            product(
                &shared_hidden,
                weight(Format::Q8_0, 1, D, F),
                RowMap::Identity,
                Epilogue::Store,
                Precision::F16,
                &shared,
            ),
            product(&x, weight(Format::F32, 1, 1, D), RowMap::Identity, Epilogue::Store, Precision::F32, &share),
            Plan { ids: ids.clone(), weights: weights.clone(), plan: plan.clone() }.into(),
            product(
                &x,
                weight(Format::IQ2_XS, EXPERTS, F, D),
                gather,
                Epilogue::SwiGlu { up: weight(Format::IQ2_XS, EXPERTS, F, D) },
                Precision::F16,
                &hidden,
            ),
            product(&hidden, weight(Format::IQ4_NL, EXPERTS, D, F), segments, Epilogue::Store, Precision::F16, &rows),
            Combine {
                rows: rows.clone(),
                weights: weights.clone(),
                plan: plan.clone(),
                shared: Some(Shared { y: shared.clone(), gate: Some(share.clone()) }),
                accumulate: true,
                out: x.clone(),
            }
            .into(),
        ];
        ops.iter().for_each(|op| device.enqueue(op).unwrap());
    }
    let mut bits = vec![0u32; x.len()];
    device.read(&x, bytemuck::cast_slice_mut(&mut bits)).unwrap();
    bits
}

/// Two layers, for the memory checkers.
pub fn a_few() {
    if let Some(gpu) = gpu() {
        run(&gpu, 2);
    }
}

#[test]
fn two_streams_write_the_bytes_of_one() {
    let Some(gpu) = gpu() else { return };
    let one = CudaDevice::new(CudaOptions { one_stream: true, ..options() }).unwrap();
    let want = run(&one, 6);
    assert!(want.iter().all(|&bits| f32::from_bits(bits).is_finite()));
    for time in 0..10 {
        assert!(run(&gpu, 6) == want, "run {time}");
    }
}

/// A recording forks and joins like the ops themselves.
#[test]
fn a_recording_has_both_streams() {
    let Some(gpu) = gpu() else { return };
    let [x, a, b, sum] = std::array::from_fn(|_| tensor(&*gpu, DType::F32, 300, 1, 300).unwrap());
    let add = |src: &Tensor, dst: &Tensor| gpu.enqueue(&Add { src: src.clone(), dst: dst.clone() }.into());
    let ops = || {
        gpu.enqueue(&Fill { dst: x.clone(), value: 1.0 }.into())?;
        add(&x, &a)?;
        add(&x, &b)?;
        add(&a, &sum)?;
        add(&b, &sum)
    };
    ops().unwrap();
    let graph = gpu.record(ops).unwrap();
    for _ in 0..3 {
        gpu.replay(&graph).unwrap();
    }
    let mut values = vec![0f32; sum.len()];
    gpu.read(&sum, bytemuck::cast_slice_mut(&mut values)).unwrap();
    // a and b are 1, 2, 3 and 4 when they are added.
    assert!(values.iter().all(|&value| value == 20.0), "{}", values[0]);
}

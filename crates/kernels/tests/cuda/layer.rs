//! A whole MoE layer after routing, against the exact answer (A) and against one that rounds what the kernels declare (B).

use argon_gguf::{Bytes, Format};
use argon_kernels::device::{tensor, upload};
use argon_kernels::op::{Combine, Epilogue, Gemm, Plan, PlanBuffers, RowMap};
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::{DType, Device, Op, Precision, Tensor, Weight};
use argon_plan::Shape;
use half::f16;

use crate::formats::operands;
use crate::gpu;
use crate::support::weights::{Rng, enlarge, random};

const TOKENS: usize = 150;
const TOP_K: usize = 4;
const EXPERTS: usize = 12;
const D: usize = 512;
const F: usize = 160;

/// What a layer is computed from.
struct Input {
    ids: Vec<i32>,
    weights: Vec<f32>,
    x: Vec<f32>,
    gate: (Format, Vec<u8>),
    up: (Format, Vec<u8>),
    down: (Format, Vec<u8>),
}

fn input(outlier: f32) -> Input {
    let mut rng = Rng::new(11);
    let draw = |rng: &mut Rng| (rng.below(EXPERTS) * rng.below(EXPERTS) / EXPERTS) as i32;
    let ids = (0..TOKENS * TOP_K).map(|_| draw(&mut rng)).collect();
    let weights = (0..TOKENS * TOP_K).map(|_| rng.uniform() / TOP_K as f32).collect();
    let mut x: Vec<f32> = (0..TOKENS * D).map(|_| rng.normal()).collect();
    x[7 * D + 100] = outlier;
    let mut weight = |format, rows: usize, cols: usize| (format, random(format, EXPERTS * rows * cols, &mut rng));
    let (gate, up) = (weight(Format::IQ2_XS, F, D), weight(Format::IQ2_XS, F, D));
    Input { ids, weights, x, gate, up, down: weight(Format::IQ4_NL, D, F) }
}

fn floats(device: &dyn Device, t: &Tensor) -> Vec<f32> {
    let mut values = vec![0f32; t.len()];
    device.read(t, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

fn weight(device: &dyn Device, (format, bytes): &(Format, Vec<u8>), rows: usize, cols: usize) -> Weight {
    Weight::dense(device.constant(Bytes::from(bytes.clone())).unwrap(), *format, EXPERTS, rows, cols).unwrap()
}

/// y `[T, D]`; `between`, if there is one, changes the rows between the two products.
fn layer(device: &dyn Device, input: &Input, precision: Precision, between: Option<fn(&mut [f32])>) -> Vec<f32> {
    let shape = Shape::new(TOKENS, TOP_K, EXPERTS, 64).unwrap();
    let plan = PlanBuffers::new(device, shape).unwrap();
    let ids = upload(device, DType::I32, [TOKENS, 1, TOP_K], bytemuck::cast_slice(&input.ids)).unwrap();
    let weights = upload(device, DType::F32, [TOKENS, 1, TOP_K], bytemuck::cast_slice(&input.weights)).unwrap();
    let x = upload(device, DType::F32, [TOKENS, 1, D], bytemuck::cast_slice(&input.x)).unwrap();
    let zeros = |cols| tensor(device, DType::F32, shape.max_rows(), 1, cols).unwrap();
    let (h, rows, y) = (zeros(F), zeros(D), tensor(device, DType::F32, TOKENS, 1, D).unwrap());
    let up = weight(device, &input.up, F, D);
    let gemm = |x: &Tensor, w, rows, epilogue, out: &Tensor| -> Op {
        Gemm { x: x.clone(), w, bias: None, rows, epilogue, precision, out: out.clone() }.into()
    };
    let enqueue = |op: Op| device.enqueue(&op).unwrap();
    enqueue(Plan { ids, weights: weights.clone(), plan: plan.clone() }.into());
    let gate = weight(device, &input.gate, F, D);
    enqueue(gemm(&x, gate, RowMap::Gather(plan.clone()), Epilogue::SwiGlu { up }, &h));
    if let Some(between) = between {
        let mut values = floats(device, &h);
        between(&mut values);
        device.write(&h, bytemuck::cast_slice(&values)).unwrap();
    }
    let down = weight(device, &input.down, D, F);
    enqueue(gemm(&h, down, RowMap::Segments(plan.clone()), Epilogue::Store, &rows));
    enqueue(Combine { rows, weights, plan, shared: None, accumulate: false, out: y.clone() }.into());
    floats(device, &y)
}

/// Each row to f16, with the row's power of two where it exceeds the range.
fn round_rows(values: &mut [f32], cols: usize) {
    for row in values.chunks_exact_mut(cols) {
        let most = row.iter().fold(0f32, |most, x| most.max(x.abs()));
        let s = (0..128).find(|&s| most * 2f32.powi(-s) < 65520.0).unwrap();
        for x in row {
            *x = f16::from_f32(*x * 2f32.powi(-s)).to_f32() * 2f32.powi(s);
        }
    }
}

/// The same weights as the kernels' operands.
fn rounded(device: &dyn Device, w: &(Format, Vec<u8>), rows: usize, cols: usize) -> (Format, Vec<u8>) {
    let buffer = device.constant(Bytes::from(w.1.clone())).unwrap();
    let all = Weight::dense(buffer, w.0, 1, EXPERTS * rows, cols).unwrap();
    let values = operands(device, &all);
    (Format::F16, values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect())
}

/// The relative L2 error of a token, as the root of the mean over tokens of its square: one with an outlier counts like
/// any other.
fn error(got: &[f32], want: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let of_token = |(got, want): (&[f32], &[f32])| -> f64 {
        let difference: f64 = got.iter().zip(want).map(|(&g, &w)| square(f64::from(g) - f64::from(w))).sum();
        difference / want.iter().map(|&w| square(w.into())).sum::<f64>()
    };
    let all = got.chunks_exact(D).zip(want.chunks_exact(D));
    (all.map(of_token).sum::<f64>() / TOKENS as f64).sqrt()
}

#[test]
fn a_layer_is_as_exact_as_its_precision_says() {
    let Some(gpu) = gpu() else { return };
    let reference = ReferenceDevice::default();
    for outlier in [1.0, 1e5] {
        let input = input(outlier);
        let a = layer(&reference, &input, Precision::F32, None);
        let exact = layer(&*gpu, &input, Precision::F32, None);
        assert!(error(&exact, &a) <= 5e-6, "f32 against A: {:.2e}", error(&exact, &a));

        let got = layer(&*gpu, &input, Precision::F16, None);
        assert!(got.iter().all(|x| x.is_finite()));
        assert_eq!(got, layer(&*gpu, &input, Precision::F16, None), "two runs");
        let mut x = input.x.clone();
        round_rows(&mut x, D);
        let declared = Input {
            x,
            gate: rounded(&*gpu, &input.gate, F, D),
            up: rounded(&*gpu, &input.up, F, D),
            down: rounded(&*gpu, &input.down, D, F),
            ids: input.ids.clone(),
            weights: input.weights.clone(),
        };
        let b = layer(&reference, &declared, Precision::F32, Some(|h| round_rows(h, F)));
        println!("outlier {outlier}: f16 against A {:.2e}, against B {:.2e}", error(&got, &a), error(&got, &b));
        assert!(error(&got, &a) <= 6e-4, "f16 against A: {:.2e}", error(&got, &a));
        assert!(error(&got, &b) <= 3e-5, "f16 against B: {:.2e}", error(&got, &b));
    }
}

/// Weights whose scale times their integer is more than 65504. The host does not know it while it enqueues these ops.
#[test]
fn weights_beyond_the_range_of_f16() {
    let Some(gpu) = gpu() else { return };
    let reference = ReferenceDevice::default();
    for which in 0..3 {
        let mut input = input(1.0);
        let (format, bytes) = [&mut input.gate, &mut input.up, &mut input.down].into_iter().nth(which).unwrap();
        enlarge(*format, bytes, &mut Rng::new(5));
        let a = layer(&reference, &input, Precision::F32, None);
        let got = layer(&*gpu, &input, Precision::F16, None);
        assert!(error(&got, &a) <= 6e-4, "weight {which}: {:.2e}", error(&got, &a));
        assert_eq!(got, layer(&*gpu, &input, Precision::F16, None), "weight {which}: two runs");
    }
}

//! Times the routed part of one MoE layer on a GPU behind wgpu, and compares its tiers: plan, gate and up with SwiGLU, down,
//! combine.
//!
//! ```text
//! cargo run --release -p argon-kernels --features wgpu --example wgpu_layer -- [T ...]
//! ```
//!
//! The shape is that of Qwen3.8-Flash-Next (E 512, K 10, D 2560, F 640; gate and up IQ2_XS, down IQ4_NL) with random weights
//! and uniform routing. Times are those of many calls enqueued together, divided by their number.

#[path = "../tests/support/weights.rs"]
mod weights;

use std::time::Instant;

use argon_gguf::{Bytes, Format};
use argon_kernels::device::tensor;
use argon_kernels::op::{Combine, Epilogue, Gemm, Plan, PlanBuffers, RowMap};
use argon_kernels::wgpu::{Tier, WgpuDevice, WgpuOptions};
use argon_kernels::{DType, Device, DeviceError, Op, Precision, Tensor, Weight};
use argon_plan::Shape;
use weights::{Rng, random};

const E: usize = 512;
const K: usize = 10;
const D: usize = 2560;
const F: usize = 640;

fn main() -> Result<(), DeviceError> {
    let tokens: Vec<usize> = std::env::args().skip(1).map(|t| t.parse().expect("a number of tokens")).collect();
    let tokens = if tokens.is_empty() { vec![128, 512, 2048, 8192] } else { tokens };
    let best = WgpuDevice::new(WgpuOptions::default())?;
    let portable = WgpuDevice::new(WgpuOptions { tier: Some(Tier::Portable), ..WgpuOptions::default() })?;
    let exact = layer(&portable, &tokens, Precision::F32)?;
    let fast = layer(&best, &tokens, Precision::F16)?;
    for (t, (exact, fast)) in tokens.iter().zip(exact.iter().zip(&fast)) {
        let distance: f64 = fast.iter().zip(exact).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let size: f64 = exact.iter().map(|b| f64::from(*b).powi(2)).sum();
        println!("T {t}: f16 from f32 {:.2e} (relative L2)", (distance / size).sqrt());
    }
    Ok(())
}

/// Prints the times of a tier; gives the layer's output for each T.
fn layer(device: &WgpuDevice, tokens: &[usize], precision: Precision) -> Result<Vec<Vec<f32>>, DeviceError> {
    println!("{}, {}", device.info().name, precision.name());
    println!("{:>6} {:>9} {:>9} {:>9} {:>9} {:>9}  ms", "T", "plan", "gate, up", "down", "combine", "all");
    let mut rng = Rng::new(1);
    let mut weight = |format, rows, cols| {
        // One expert's bytes, repeated: making gigabytes takes long.
        let expert = random(format, rows * cols, &mut rng);
        let buffer = device.constant(Bytes::from(expert.repeat(E)))?;
        Ok::<_, DeviceError>(Weight::dense(buffer, format, E, rows, cols).expect("as large as that"))
    };
    let weights = [weight(Format::IQ2_XS, F, D)?, weight(Format::IQ2_XS, F, D)?, weight(Format::IQ4_NL, D, F)?];
    tokens.iter().map(|&t| time(device, &weights, precision, t)).collect()
}

fn time(
    device: &WgpuDevice,
    [gate, up, down]: &[Weight; 3],
    precision: Precision,
    t: usize,
) -> Result<Vec<f32>, DeviceError> {
    let mut rng = Rng::new(t as u64);
    let shape = Shape::new(t, K, E, device.tile_rows(t * K, E)).expect("a valid shape");
    let plan = PlanBuffers::new(device, shape)?;
    let ids: Vec<i32> = (0..t).flat_map(|_| distinct(&mut rng)).collect();
    let x: Vec<f32> = (0..t * D).map(|_| rng.normal()).collect();
    let ids = filled(device, DType::I32, [t, K], bytemuck::cast_slice(&ids))?;
    let weights = filled(device, DType::F32, [t, K], bytemuck::cast_slice(&vec![0.1f32; t * K]))?;
    let x = filled(device, DType::F32, [t, D], bytemuck::cast_slice(&x))?;
    let h = tensor(device, DType::F32, shape.max_rows(), 1, F)?;
    let rows = tensor(device, DType::F32, shape.max_rows(), 1, D)?;
    let out = tensor(device, DType::F32, t, 1, D)?;
    let gemm = |x: &Tensor, w: &Weight, rows, epilogue, out: &Tensor| {
        Op::from(Gemm { x: x.clone(), w: w.clone(), bias: None, rows, epilogue, precision, out: out.clone() })
    };
    let ops = [
        Plan { ids, weights: weights.clone(), plan: plan.clone() }.into(),
        gemm(&x, gate, RowMap::Gather(plan.clone()), Epilogue::SwiGlu { up: up.clone() }, &h),
        gemm(&h, down, RowMap::Segments(plan.clone()), Epilogue::Store, &rows),
        Combine { rows, weights, plan, shared: None, accumulate: false, out: out.clone() }.into(),
    ];
    let mut line = format!("{t:>6}");
    for ops in ops.chunks(1).chain([&ops[..]]) {
        run(device, ops, 2)?;
        let once = run(device, ops, 1)?;
        // About a third of a second.
        let times = ((0.3 / once) as usize).clamp(1, 50);
        line += &format!(" {:>9.3}", run(device, ops, times)? / times as f64 * 1e3);
    }
    println!("{line}");
    let mut values = vec![0.0; t * D];
    device.read(&out, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

/// Seconds for so many rounds of the ops.
fn run(device: &WgpuDevice, ops: &[Op], rounds: usize) -> Result<f64, DeviceError> {
    device.sync()?;
    let start = Instant::now();
    for op in (0..rounds).flat_map(|_| ops) {
        device.enqueue(op)?;
    }
    device.sync()?;
    Ok(start.elapsed().as_secs_f64())
}

fn filled(device: &WgpuDevice, dtype: DType, [rows, cols]: [usize; 2], bytes: &[u8]) -> Result<Tensor, DeviceError> {
    let t = tensor(device, dtype, rows, 1, cols)?;
    device.write(&t, bytes)?;
    Ok(t)
}

/// K different experts.
fn distinct(rng: &mut Rng) -> Vec<i32> {
    let mut chosen: Vec<i32> = Vec::with_capacity(K);
    while chosen.len() < K {
        let expert = rng.below(E) as i32;
        if !chosen.contains(&expert) {
            chosen.push(expert);
        }
    }
    chosen
}

//! Times the routed part of one MoE layer on the CPU: plan, gate and up with SwiGLU, down, combine.
//!
//! ```text
//! cargo run --release -p argon-kernels --example moe_layer -- [precision] [gate format] [down format] [T ...]
//! ```
//!
//! The shape is that of Qwen3.8-Flash-Next (E 512, K 10, D 2560, F 640) with random weights and uniform routing. Two layers
//! take turns, so that no weight is in a cache when it is needed.

#[path = "../tests/support/weights.rs"]
mod weights;

use std::num::NonZero;
use std::time::Instant;

use argon_gguf::{Bytes, Format};
use argon_kernels::cpu::{CpuDevice, CpuOptions};
use argon_kernels::device::tensor;
use argon_kernels::op::{Combine, Epilogue, Gemm, Plan, PlanBuffers, RowMap};
use argon_kernels::{DType, Device, DeviceError, Op, Precision, Tensor, Weight};
use argon_plan::Shape;
use weights::{Rng, random};

const E: usize = 512;
const K: usize = 10;
const D: usize = 2560;
const F: usize = 640;
const LAYERS: usize = 2;

struct Layer {
    gate: Weight,
    up: Weight,
    down: Weight,
}

fn main() -> Result<(), DeviceError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |i: usize, default: &'static str| args.get(i).map_or(default, |arg| arg.as_str());
    let precisions = [Precision::F32, Precision::F16, Precision::Int8];
    let precision = precisions.into_iter().find(|p| p.name() == arg(0, "int8")).expect("f32, f16 or int8");
    let format = |name: &str| Format::from_name(name).expect("a format");
    let (gate, down) = (format(arg(1, "IQ2_XS")), format(arg(2, "IQ4_NL")));
    let tokens: Vec<usize> = args.iter().skip(3).map(|t| t.parse().expect("a number of tokens")).collect();
    let tokens = if tokens.is_empty() { vec![128, 512, 2048] } else { tokens };

    let device = CpuDevice::new(CpuOptions { threads: NonZero::new(2), ..CpuOptions::default() })?;
    println!("{}, {}, gate and up {gate}, down {down}", device.info().name, precision.name());
    let mut rng = Rng::new(1);
    let layers = (0..LAYERS).map(|_| layer(&device, gate, down, &mut rng)).collect::<Result<Vec<_>, _>>()?;
    println!("{:>6} {:>9} {:>9} {:>9} {:>9} {:>9}  ms, medians", "T", "plan", "gate, up", "down", "combine", "all");
    for t in tokens {
        let times = time(&device, &layers, precision, t, &mut rng)?;
        let [plan, up, down, combine, all] = times.map(|t| t * 1e3);
        println!("{t:>6} {plan:>9.2} {up:>9.2} {down:>9.2} {combine:>9.2} {all:>9.2}");
    }
    Ok(())
}

fn layer(device: &CpuDevice, gate: Format, down: Format, rng: &mut Rng) -> Result<Layer, DeviceError> {
    let mut weight = |format, rows, cols| {
        // One expert's bytes, repeated: the arithmetic does not mind, and making gigabytes takes long.
        let expert = random(format, rows * cols, rng);
        let buffer = device.constant(Bytes::from(expert.repeat(E)))?;
        Ok(Weight::dense(buffer, format, E, rows, cols).expect("as large as that"))
    };
    Ok(Layer { gate: weight(gate, F, D)?, up: weight(gate, F, D)?, down: weight(down, D, F)? })
}

/// Median seconds of each op, and of all together.
fn time(
    device: &CpuDevice,
    layers: &[Layer],
    precision: Precision,
    t: usize,
    rng: &mut Rng,
) -> Result<[f64; 5], DeviceError> {
    let shape = Shape::new(t, K, E, device.tile_rows(t * K, E)).expect("a valid shape");
    let plan = PlanBuffers::new(device, shape)?;
    let rows = shape.max_rows();
    let ids: Vec<i32> = (0..t).flat_map(|_| distinct(rng)).collect();
    let x: Vec<f32> = (0..t * D).map(|_| rng.normal()).collect();
    let f32s = |rows, cols| tensor(device, DType::F32, rows, 1, cols);
    let (x, ids) = (filled(device, DType::F32, t, D, &x)?, filled(device, DType::I32, t, K, &ids)?);
    let weights = filled(device, DType::F32, t, K, &vec![0.1f32; t * K])?;
    let (h, products, y) = (f32s(rows, F)?, f32s(rows, D)?, f32s(t, D)?);
    let mut times: [Vec<f64>; 5] = Default::default();
    let repeats = (40 * 128 / t).clamp(7, 25);
    for i in 0..repeats {
        let Layer { gate, up, down } = &layers[i % layers.len()];
        let gemm = |x: &Tensor, w: &Weight, rows, epilogue, out: &Tensor| -> Op {
            Gemm { x: x.clone(), w: w.clone(), bias: None, rows, epilogue, precision, out: out.clone() }.into()
        };
        let ops = [
            Plan { ids: ids.clone(), weights: weights.clone(), plan: plan.clone() }.into(),
            gemm(&x, gate, RowMap::Gather(plan.clone()), Epilogue::SwiGlu { up: up.clone() }, &h),
            gemm(&h, down, RowMap::Segments(plan.clone()), Epilogue::Store, &products),
            Combine {
                rows: products.clone(),
                weights: weights.clone(),
                plan: plan.clone(),
                shared: None,
                accumulate: false,
                out: y.clone(),
            }
            .into(),
        ];
        let mut all = 0.0;
        for (op, times) in ops.iter().zip(&mut times) {
            let start = Instant::now();
            device.enqueue(op)?;
            device.sync()?;
            let seconds = start.elapsed().as_secs_f64();
            times.push(seconds);
            all += seconds;
        }
        times[4].push(all);
    }
    // The first rounds touch the memory for the first time.
    Ok(times.map(|mut times| {
        times.drain(..2);
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

/// K different experts.
fn distinct(rng: &mut Rng) -> Vec<i32> {
    let mut ids: Vec<i32> = vec![];
    while ids.len() < K {
        let id = rng.below(E) as i32;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

fn filled<T: bytemuck::NoUninit>(
    device: &CpuDevice,
    dtype: DType,
    rows: usize,
    cols: usize,
    values: &[T],
) -> Result<Tensor, DeviceError> {
    let t = tensor(device, dtype, rows, 1, cols)?;
    device.write(&t, bytemuck::cast_slice(values))?;
    Ok(t)
}

//! Times of the operations beside the products, at the shapes of a qwen4exp of the released size (hidden 2560, 4 streams,
//! 24 query and 2 key heads of 256, DeltaNet with 48 value and 16 key heads of 128, 512 experts, top 10).
//!
//!     cargo bench -p argon-kernels --bench ops [-- [FILTER] [T=512] [POS=0] [THREADS=n] [ISA=name|all] [SECONDS=0.5]]
//!
//! One line per op: instruction set, median and minimum of the runs that fit the time, in milliseconds. `ISA=all` takes every
//! instruction set in turn: an elementwise kernel's variants are the copies that are compiled for each. The products at the
//! end are there for what follows them, fused or in a pass of its own: `product` alone, with an epilogue, and what a pass over
//! its result takes at least (`add` where there is one).

use std::num::NonZero;
use std::time::{Duration, Instant};

use argon_gguf::{Bytes, Format};
use argon_kernels::DType::{F16, F32, I32};
use argon_kernels::cpu::{CpuDevice, CpuOptions, Isa};
use argon_kernels::op::*;
use argon_kernels::{DType, Device, Op, Precision, Tensor, Weight};
use argon_plan::Shape;

const D: usize = 2560;
const S: usize = 4;

struct Bench {
    device: CpuDevice,
    random: u64,
}

impl Bench {
    fn unit(&mut self) -> f32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn tensor(&mut self, dtype: DType, shape: [usize; 3]) -> Tensor {
        let t = argon_kernels::device::tensor(&self.device, dtype, shape[0], shape[1], shape[2]).unwrap();
        let bytes: Vec<u8> = match dtype {
            F32 => (0..t.len()).flat_map(|_| self.unit().to_ne_bytes()).collect(),
            F16 => (0..t.len()).flat_map(|_| half::f16::from_f32(self.unit()).to_ne_bytes()).collect(),
            _ => vec![0; t.len() * 4],
        };
        self.device.write(&t, &bytes).unwrap();
        t
    }

    fn f32(&mut self, shape: [usize; 3]) -> Tensor {
        self.tensor(F32, shape)
    }

    fn ops(&mut self, t: usize, pos: usize) -> Vec<(&'static str, Op)> {
        let streams = self.f32([t, S, D]);
        let normed = self.f32([t, S, D]);
        let hidden = self.f32([t, 1, D]);
        let mut ops: Vec<(&'static str, Op)> = Vec::new();

        let (inject, weight) = (self.f32([t, 1, S]), self.f32([1, S, D]));
        let norm = RmsNorm { x: streams.clone(), weight, eps: 1e-6, out: normed.clone() };
        ops.push(("rms_norm [T,4,2560]", norm.into()));
        ops.push(("hyper_write", HyperWrite { y: hidden.clone(), inject, x: streams.clone() }.into()));
        ops.push(("add [T,4,2560]", Add { src: normed.clone(), dst: streams.clone() }.into()));
        ops.push(("copy [T,1,2560] x4", Copy { src: hidden.clone(), dst: streams.clone() }.into()));

        let q = self.f32([t, 24, 256]);
        let gate = self.f32([t, 24, 256]);
        let freqs = self.f32([1, 1, 32]);
        ops.push((
            "rope [T,24,256]",
            Rope { x: q.clone(), freqs, pairs: RopePairs::Halves, pos0: pos, step: 1 }.into(),
        ));
        let new_keys = self.f32([t, 2, 256]);
        let (k, v) = (self.tensor(F16, [pos + t, 2, 256]), self.tensor(F16, [pos + t, 2, 256]));
        ops.push(("copy to f16 [T,2,256]", Copy { src: new_keys, dst: k.rows(pos..pos + t) }.into()));
        let out = self.f32([t, 24, 256]);
        let attention = Attention { q, k, v, gate: Some(gate), select: None, pos0: pos, scale: 0.0625, out };
        ops.push(("attention", attention.clone().into()));
        let ratio = 4;
        let (index_q, keys) = (self.f32([t, 4, 128]), self.f32([(pos + t) / ratio, 1, 128]));
        let blocks = self.tensor(I32, [t, 1, 512]);
        let select = SelectBlocks { q: index_q, keys, pos0: pos, ratio, out: blocks.clone() };
        ops.push(("select_blocks 512 of 4", select.into()));
        let selected = Attention { select: Some(Selection { blocks, ratio }), ..attention };
        ops.push(("attention selected", selected.into()));

        let qkv = self.f32([t, 1, 10240]);
        let (weight, state, out) = (self.f32([10240, 1, 4]), self.f32([3, 1, 10240]), self.f32([t, 1, 10240]));
        let conv = Conv { x: qkv, weight, dilation: 1, state, accumulate: false, out: out.clone() };
        ops.push(("conv [T,10240]", conv.into()));
        let (alpha, beta) = (self.f32([t, 1, 48]), self.f32([t, 1, 48]));
        let (a, dt_bias, state) = (self.f32([1, 1, 48]), self.f32([1, 1, 48]), self.f32([48, 128, 128]));
        let bytes: Vec<u8> = (0..48).flat_map(|_| (-0.1f32).to_ne_bytes()).collect();
        self.device.write(&a, &bytes).unwrap();
        let delta = self.f32([t, 48, 128]);
        let delta_net = DeltaNet {
            q: out.cols(0..2048).split(16, 128),
            k: out.cols(2048..4096).split(16, 128),
            v: out.cols(4096..10240).split(48, 128),
            alpha,
            beta,
            a,
            dt_bias,
            heads: HeadMap::Tiled,
            eps: 1e-6,
            state,
            out: delta.clone(),
        };
        ops.push(("delta_net", delta_net.into()));
        let (gate, weight) = (self.f32([t, 48, 128]), self.f32([1, 1, 128]));
        let x = delta.clone();
        let norm = GatedNorm { x, gate, weight, eps: 1e-6, activation: Activation::Sigmoid, out: delta };
        ops.push(("gated_norm [T,48,128]", norm.into()));

        let (value, out) = (self.f32([t, 1, D]), self.f32([t, S, D]));
        let gate = PleGate { key: streams.clone(), query: normed.clone(), value, out: out.clone() };
        ops.push(("ple_gate", gate.into()));
        let (weight, state) = (self.f32([S * D, 1, 4]), self.f32([9, 1, S * D]));
        let conv = Conv { x: normed.flat(), weight, dilation: 3, state, accumulate: true, out: out.flat() };
        ops.push(("conv [T,10240] dilated", conv.into()));

        let logits = self.f32([t, 1, 512]);
        let (ids, weights) = (self.tensor(I32, [t, 1, 10]), self.f32([t, 1, 10]));
        let config = RouteConfig::new(Gating::Softmax, 10);
        let route = Route { logits, bias: None, config, layer: 0, ids: ids.clone(), weights: weights.clone() };
        ops.push(("route 10 of 512", route.into()));
        let shape = Shape::new(t, 10, 512, self.device.tile_rows(t * 10, 512)).unwrap();
        let plan = PlanBuffers::new(&self.device, shape).unwrap();
        ops.push(("plan", Plan { ids, weights: weights.clone(), plan: plan.clone() }.into()));
        let (rows, y, gate) = (self.f32([shape.max_rows(), 1, D]), self.f32([t, 1, D]), self.f32([t, 1, 1]));
        let shared = Some(Shared { y, gate: Some(gate) });
        let combine = Combine { rows, weights, plan: plan.clone(), shared, accumulate: false, out: hidden.clone() };
        ops.push(("combine", combine.into()));

        let (x16, exponents) = (self.tensor(F16, [t, 1, D]), self.tensor(I32, [1, 1, shape.max_rows()]));
        let out = self.tensor(F16, [shape.max_rows(), 1, D]);
        let gather = Gather { x: hidden.clone(), plan: plan.clone(), exponents: Some(exponents), out: out.clone() };
        ops.push(("gather f32", gather.into()));
        ops.push(("gather f16", Gather { x: x16.clone(), plan, exponents: None, out }.into()));
        ops.push(("copy to f16 [T,1,2560]", Copy { src: hidden.clone(), dst: x16 }.into()));

        let table = self.device.constant(Bytes::from(vec![7; 1000 * 10 * 144])).unwrap();
        let table = Weight::dense(table, Format::Q4_K, 1, 1000, D).unwrap();
        let ids = self.tensor(I32, [t, 1, 1]);
        ops.push(("embed Q4_K", Embed { table, ids, out: hidden }.into()));
        self.products(t, &mut ops);
        ops
    }

    /// Products with what follows them.
    fn products(&mut self, t: usize, ops: &mut Vec<(&'static str, Op)>) {
        let mut product = |name, x: &Tensor, w: &Weight, epilogue, out: &Tensor| {
            let (x, w, out, rows) = (x.clone(), w.clone(), out.clone(), RowMap::Identity);
            ops.push((name, Gemm { x, w, bias: None, rows, epilogue, precision: Precision::Int8, out }.into()));
        };
        let (hidden, h, low, normed) =
            (self.f32([t, 1, D]), self.f32([t, 1, 640]), self.f32([t, 1, 320]), self.f32([t, S, D]));
        let [gate, up] = [self.q8(640, D), self.q8(640, D)];
        product("product 640x2560", &hidden, &gate, Epilogue::Store, &h);
        product("product 640x2560, SwiGLU", &hidden, &gate, Epilogue::SwiGlu { up }, &h);
        let down = self.q8(D, 640);
        product("product 2560x640", &h, &down, Epilogue::Store, &hidden);
        product("product 2560x640, add", &h, &down, Epilogue::Accumulate, &hidden);
        let down = self.q8(320, S * D);
        product("product 320x10240", &normed.flat(), &down, Epilogue::Store, &low);
        product("product 320x10240, SiLU", &normed.flat(), &down, Epilogue::Silu { scale: 0.25 }, &low);
        let (up, streams) = (self.q8(S * D, 320), self.f32([t, 1, S * D]));
        product("product 10240x320", &low, &up, Epilogue::Store, &streams);
        product("product 10240x320, mean", &low, &up, Epilogue::GateMean { normed: normed.clone() }, &hidden);
        ops.push(("add [T,1,2560]", Add { src: self.f32([t, 1, D]), dst: hidden }.into()));
        ops.push(("copy [T,4,2560]", Copy { src: normed.flat(), dst: streams }.into()));
    }

    /// A weight in Q8_0.
    fn q8(&mut self, rows: usize, cols: usize) -> Weight {
        let scale = half::f16::from_f32(0.01).to_le_bytes();
        let blocks = 0..rows * cols / 32;
        let bytes: Vec<u8> =
            blocks.flat_map(|_| scale.into_iter().chain([(self.unit() * 127.0) as i8 as u8; 32])).collect();
        let buffer = self.device.constant(Bytes::from(bytes)).unwrap();
        Weight::dense(buffer, Format::Q8_0, 1, rows, cols).unwrap()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |key: &str| arguments.iter().find_map(|a| a.strip_prefix(key)?.parse::<usize>().ok());
    let (t, pos) = (number("T=").unwrap_or(512), number("POS=").unwrap_or(0));
    let filter = arguments.iter().find(|a| !a.contains('=')).cloned().unwrap_or_default();
    let threads = number("THREADS=").and_then(NonZero::new);
    let text = |key: &str| arguments.iter().find_map(|a| a.strip_prefix(key));
    let seconds = text("SECONDS=").map_or(0.5, |seconds| seconds.parse().expect("a number of seconds"));
    let isas = match text("ISA=") {
        None => vec![Isa::detect()],
        Some(name) => Isa::available().into_iter().filter(|isa| name == "all" || isa.name() == name).collect(),
    };
    assert!(!isas.is_empty(), "this processor has no such instruction set");
    for isa in isas {
        let options = CpuOptions { threads, isa: Some(isa), ..CpuOptions::default() };
        let mut bench = Bench { device: CpuDevice::new(options).unwrap(), random: 1 };
        println!("{}, T = {t}, POS = {pos}", bench.device.info().name);
        for (name, op) in bench.ops(t, pos) {
            if matches!(op, Op::Route(_) | Op::Plan(_) | Op::SelectBlocks(_)) {
                bench.device.enqueue(&op).unwrap(); // what follows depends on their integers
            }
            if name.contains(&filter) {
                let times = sorted_times(seconds, || bench.device.enqueue(&op).unwrap());
                println!("{name:26} {:8} {:9.3} {:9.3} ms", isa.name(), times[times.len() / 2], times[0]);
            }
        }
    }
}

/// Milliseconds of the runs that fit the time, at least three.
fn sorted_times(seconds: f64, run: impl Fn()) -> Vec<f64> {
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 3 || start.elapsed() < Duration::from_secs_f64(seconds) {
        let start = Instant::now();
        run();
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    times
}

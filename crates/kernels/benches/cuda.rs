//! Times on an NVIDIA GPU, as CSV: the plan's variants, the report's MoE layer after routing, dense products, and the sweep
//! that the tile choice was made by. `cargo bench --bench cuda -- [plan] [layer] [shared] [parts] [dense] [sweep [T..]]`; all but the sweep
//! where none is named.
//!
//! Medians. Three layers' weights take turns (2.9 GB), so weights are cold, as in a model.

use std::cell::Cell;
use std::env::args;

use argon_gguf::{Bytes, Format};
use argon_kernels::cuda::host::End;
use argon_kernels::cuda::tune::{self, Product, Tile};
use argon_kernels::cuda::{CudaDevice, CudaOptions, Machine, PlanVariant};
use argon_kernels::device::{tensor, upload};
use argon_kernels::op::{
    Combine, Copy, DeltaNet, Epilogue, Gather, Gating, Gemm, HeadMap, Plan, PlanBuffers, RmsNorm, Route, RouteConfig,
    RowMap, Shared,
};
use argon_kernels::parity::weights::Rng;
use argon_kernels::{DType, Device, DeviceError, Op, Precision, Tensor, Weight};
use argon_plan::Shape;

const EXPERTS: usize = 512;
const TOP_K: usize = 10;
const D: usize = 2560;
const F: usize = 640;
/// Of the hyper-connections' gate.
const RANK: usize = 128;
const TOKENS: [usize; 5] = [128, 512, 1024, 2048, 8192];
const LAYERS: usize = 3;
const REPEATS: usize = 15;

type Result<T = ()> = std::result::Result<T, DeviceError>;

fn main() {
    let wanted: Vec<String> = args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let named = |name: &str| wanted.iter().any(|w| w == name);
    let cache = std::env::current_dir().ok().map(|here| here.join("kernels.cache"));
    let options = CudaOptions { cache, ..CudaOptions::default() };
    let device = match CudaDevice::new(options.clone()) {
        Ok(device) => device,
        Err(why) => return println!("skipped: this benchmark needs a GPU: {why}"),
    };
    println!("# {}", device.info().name);
    let run = |name: &str, f: &dyn Fn() -> Result| {
        if wanted.is_empty() && name != "sweep" || named(name) {
            f().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    };
    run("plan", &|| plans(&options));
    run("layer", &|| layers(&device));
    run("shared", &|| shared(&options));
    run("parts", &|| parts(&device));
    run("dense", &|| dense(&device));
    let sizes: Vec<usize> = wanted.iter().filter_map(|arg| arg.parse().ok()).collect();
    run("sweep", &|| sweep(&options, &sizes));
}

/// What the device takes.
fn milliseconds(device: &CudaDevice, mut work: impl FnMut() -> Result) -> Result<f32> {
    Ok(device.elapsed(&mut work)? as f32 * 1e3)
}

fn median(mut times: Vec<f32>) -> f32 {
    times.sort_by(f32::total_cmp);
    times[times.len() / 2]
}

/// K different experts of each token, uniform.
fn ids(tokens: usize, rng: &mut Rng) -> Vec<i32> {
    let mut ids = Vec::with_capacity(tokens * TOP_K);
    for _ in 0..tokens {
        let first = ids.len();
        while ids.len() < first + TOP_K {
            let id = rng.below(EXPERTS) as i32;
            if !ids[first..].contains(&id) {
                ids.push(id);
            }
        }
    }
    ids
}

fn floats(device: &CudaDevice, rows: usize, cols: usize, rng: &mut Rng) -> Result<Tensor> {
    let values: Vec<f32> = (0..rows * cols).map(|_| 2.0 * rng.uniform() - 1.0).collect();
    upload(device, DType::F32, [rows, 1, cols], bytemuck::cast_slice(&values))
}

/// Random blocks with a sane scale, repeated.
fn weight(
    device: &CudaDevice,
    format: Format,
    experts: usize,
    rows: usize,
    cols: usize,
    rng: &mut Rng,
) -> Result<Weight> {
    let block = format.block_bytes();
    let mut pattern: Vec<u8> = (0..8191 * block / 8 + 1).flat_map(|_| rng.bits().to_le_bytes()).collect();
    pattern.truncate(8191 * block);
    for block in pattern.chunks_exact_mut(block) {
        if format == Format::F32 {
            block.copy_from_slice(&(0.01 * (2.0 * rng.uniform() - 1.0)).to_le_bytes());
            continue;
        }
        let scale = half::f16::from_f32(0.01 + 0.005 * (2.0 * rng.uniform() - 1.0)).to_le_bytes();
        let at: &[usize] = match format {
            Format::BF16 | Format::F16 => &[0],
            Format::Q4_K | Format::Q5_K => &[0, 2],
            Format::Q2_K => &[80, 82],
            Format::Q3_K => &[108],
            Format::Q6_K => &[208],
            _ => &[0],
        };
        at.iter().for_each(|&at| block[at..at + 2].copy_from_slice(&scale));
    }
    let bytes = experts * rows * format.row_bytes(cols).expect("whole blocks");
    let mut all = Vec::with_capacity(bytes + pattern.len());
    while all.len() < bytes {
        all.extend_from_slice(&pattern);
    }
    all.truncate(bytes);
    let buffer = device.constant(Bytes::from(all))?;
    Ok(Weight::dense(buffer, format, experts, rows, cols).expect("as long as its rows"))
}

/// Microseconds a layer of 48 in one recorded sequence, for every variant.
fn plans(options: &CudaOptions) -> Result {
    println!("plan_us,{}", TOKENS.map(|t| t.to_string()).join(","));
    for variant in PlanVariant::ALL.into_iter().chain([PlanVariant::Auto]) {
        let device = CudaDevice::new(CudaOptions { plan: variant, ..options.clone() })?;
        let mut times = Vec::new();
        for tokens in TOKENS {
            let shape = Shape::new(tokens, TOP_K, EXPERTS, device.tile_rows(tokens * TOP_K, EXPERTS)).expect("a shape");
            let mut rng = Rng::new(tokens as u64);
            let ids = upload(&device, DType::I32, [tokens, 1, TOP_K], bytemuck::cast_slice(&ids(tokens, &mut rng)))?;
            let weights = floats(&device, tokens, TOP_K, &mut rng)?;
            let op = Op::from(Plan { ids, weights, plan: PlanBuffers::new(&device, shape)? });
            device.enqueue(&op)?;
            let graph = device.record(|| (0..48).try_for_each(|_| device.enqueue(&op)))?;
            device.replay(&graph)?;
            let once = |_| milliseconds(&device, || device.replay(&graph));
            times.push(format!("{:.2}", median((0..REPEATS).map(once).collect::<Result<Vec<_>>>()?) * 1000.0 / 48.0));
        }
        println!("{},{}", variant.name(), times.join(","));
    }
    Ok(())
}

/// One layer's weights.
struct Layer {
    gate: Weight,
    up: Weight,
    down: Weight,
}

fn layer_weights(device: &CudaDevice) -> Result<Vec<Layer>> {
    let mut rng = Rng::new(1);
    let one = |_| {
        Ok(Layer {
            gate: weight(device, Format::IQ2_XS, EXPERTS, F, D, &mut rng)?,
            up: weight(device, Format::IQ2_XS, EXPERTS, F, D, &mut rng)?,
            down: weight(device, Format::IQ4_NL, EXPERTS, D, F, &mut rng)?,
        })
    };
    (0..LAYERS).map(one).collect()
}

/// The ops of a layer after routing, for each layer's weights.
struct Work {
    plan: Op,
    gate_up: Vec<Op>,
    down: Vec<Op>,
    combine: Op,
}

fn work(device: &CudaDevice, layers: &[Layer], tokens: usize) -> Result<Work> {
    let mut rng = Rng::new(tokens as u64);
    let shape = Shape::new(tokens, TOP_K, EXPERTS, device.tile_rows(tokens * TOP_K, EXPERTS)).expect("a shape");
    let plan = PlanBuffers::new(device, shape)?;
    let x = floats(device, tokens, D, &mut rng)?;
    let weights = floats(device, tokens, TOP_K, &mut rng)?;
    let ids = upload(device, DType::I32, [tokens, 1, TOP_K], bytemuck::cast_slice(&ids(tokens, &mut rng)))?;
    let h = tensor(device, DType::F32, shape.max_rows(), 1, F)?;
    let rows = tensor(device, DType::F32, shape.max_rows(), 1, D)?;
    let out = tensor(device, DType::F32, tokens, 1, D)?;
    let gemm = |x: &Tensor, w: &Weight, rows, epilogue, out: &Tensor| {
        let (x, w, out) = (x.clone(), w.clone(), out.clone());
        Op::from(Gemm { x, w, bias: None, rows, epilogue, precision: Precision::F16, out })
    };
    let gate_up = |layer: &Layer| {
        let epilogue = Epilogue::SwiGlu { up: layer.up.clone() };
        gemm(&x, &layer.gate, RowMap::Gather(plan.clone()), epilogue, &h)
    };
    let down = |layer: &Layer| gemm(&h, &layer.down, RowMap::Segments(plan.clone()), Epilogue::Store, &rows);
    Ok(Work {
        gate_up: layers.iter().map(gate_up).collect(),
        down: layers.iter().map(down).collect(),
        plan: Plan { ids, weights: weights.clone(), plan: plan.clone() }.into(),
        combine: Combine { rows: rows.clone(), weights, plan: plan.clone(), shared: None, accumulate: false, out }
            .into(),
    })
}

/// Milliseconds of a layer and of its parts.
fn layers(device: &CudaDevice) -> Result {
    let layers = layer_weights(device)?;
    println!("tokens,layer_ms,plan_ms,gate_up_ms,down_ms,combine_ms");
    for tokens in TOKENS {
        let work = work(device, &layers, tokens)?;
        let whole = |i: usize| -> Result<f32> {
            milliseconds(device, || {
                let ops = [&work.plan, &work.gate_up[i % LAYERS], &work.down[i % LAYERS], &work.combine];
                ops.into_iter().try_for_each(|op| device.enqueue(op))
            })
        };
        (0..LAYERS).try_for_each(|i| whole(i).map(|_| ()))?;
        let all = median((0..REPEATS).map(whole).collect::<Result<Vec<_>>>()?);
        let mut parts = [const { Vec::new() }; 4];
        for i in 0..REPEATS {
            let ops = [&work.plan, &work.gate_up[i % LAYERS], &work.down[i % LAYERS], &work.combine];
            for (op, part) in ops.into_iter().zip(&mut parts) {
                part.push(milliseconds(device, || device.enqueue(op))?);
            }
        }
        println!("{tokens},{all:.4},{}", parts.map(|part| format!("{:.4}", median(part))).join(","));
    }
    Ok(())
}

/// Milliseconds of a layer with its router and a shared expert, one op after another and with what is independent side by side.
fn shared(options: &CudaOptions) -> Result {
    println!("tokens,one_stream_ms,two_streams_ms");
    let devices = [true, false].map(|one_stream| CudaDevice::new(CudaOptions { one_stream, ..options.clone() }));
    let devices = devices.into_iter().collect::<Result<Vec<_>>>()?;
    for tokens in TOKENS {
        let times = devices.iter().map(|device| Ok(format!("{:.4}", layer_with_shared_expert(device, tokens)?)));
        println!("{tokens},{}", times.collect::<Result<Vec<_>>>()?.join(","));
    }
    Ok(())
}

fn layer_with_shared_expert(device: &CudaDevice, tokens: usize) -> Result<f32> {
    let mut rng = Rng::new(5);
    let layers = layer_weights(device)?;
    let work = work(device, &layers, tokens)?;
    let (Op::Plan(plan), Op::Combine(combine), Op::Gemm(gate_up)) = (work.plan, work.combine, &work.gate_up[0]) else {
        unreachable!("`work` makes these")
    };
    let x = gate_up.x.clone();
    let dense = |x: &Tensor, w: Weight, epilogue, precision, out: &Tensor| {
        let (x, out) = (x.clone(), out.clone());
        Op::from(Gemm { x, w, bias: None, rows: RowMap::Identity, epilogue, precision, out })
    };
    let logits = tensor(device, DType::F32, tokens, 1, EXPERTS)?;
    let (hidden, y) = (tensor(device, DType::F32, tokens, 1, F)?, tensor(device, DType::F32, tokens, 1, D)?);
    let share = tensor(device, DType::F32, tokens, 1, 1)?;
    let mut weight = |format, rows, cols| weight(device, format, 1, rows, cols, &mut rng);
    let up = weight(Format::Q8_0, F, D)?;
    let swiglu = Epilogue::SwiGlu { up };
    let config = RouteConfig {
        gating: Gating::Softmax,
        top_k: TOP_K,
        groups: None,
        renormalise: true,
        scale: 1.0,
        tail_share: None,
    };
    let route = Route {
        logits: logits.clone(),
        bias: None,
        config,
        layer: 0,
        ids: plan.ids.clone(),
        weights: plan.weights.clone(),
    };
    let before: Vec<Op> = vec![
        dense(&x, weight(Format::F32, EXPERTS, D)?, Epilogue::Store, Precision::F32, &logits),
        route.into(),
        dense(&x, weight(Format::Q8_0, F, D)?, swiglu, Precision::F16, &hidden),
        dense(&hidden, weight(Format::Q8_0, D, F)?, Epilogue::Store, Precision::F16, &y),
        dense(&x, weight(Format::F32, 1, D)?, Epilogue::Store, Precision::F32, &share),
        plan.into(),
    ];
    let sum = Op::from(Combine { shared: Some(Shared { y, gate: Some(share) }), ..combine });
    let whole = |i: usize| -> Result<f32> {
        milliseconds(device, || {
            let routed = [&work.gate_up[i % LAYERS], &work.down[i % LAYERS], &sum];
            before.iter().chain(routed).try_for_each(|op| device.enqueue(op))
        })
    };
    (0..LAYERS).try_for_each(|i| whole(i).map(|_| ()))?;
    Ok(median((0..REPEATS).map(whole).collect::<Result<Vec<_>>>()?))
}

/// Microseconds of the report's elementwise kernels, for one layer.
fn parts(device: &CudaDevice) -> Result {
    const STREAMS: usize = 4;
    println!("kernel_us,{}", TOKENS.map(|t| t.to_string()).join(","));
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    for tokens in TOKENS {
        let mut rng = Rng::new(tokens as u64);
        let shape = Shape::new(tokens, TOP_K, EXPERTS, device.tile_rows(tokens * TOP_K, EXPERTS)).expect("a shape");
        let plan = PlanBuffers::new(device, shape)?;
        let ids = upload(device, DType::I32, [tokens, 1, TOP_K], bytemuck::cast_slice(&ids(tokens, &mut rng)))?;
        let weights = floats(device, tokens, TOP_K, &mut rng)?;
        device.enqueue(&Plan { ids, weights, plan: plan.clone() }.into())?;
        let x = floats(device, tokens, D, &mut rng)?;
        let half = tensor(device, DType::F16, tokens, 1, D)?;
        let gathered = tensor(device, DType::F16, shape.max_rows(), 1, D)?;
        let (streams, normed) =
            (floats(device, tokens * STREAMS, D, &mut rng)?, tensor(device, DType::F32, tokens, STREAMS, D)?);
        let streams = Tensor { rows: tokens, groups: STREAMS, row_stride: STREAMS * D, group_stride: D, ..streams };
        let ones = floats(device, 1, D, &mut rng)?;
        let low = tensor(device, DType::F32, tokens, 1, RANK)?;
        let (down, up) = (
            weight(device, Format::BF16, 1, RANK, STREAMS * D, &mut rng)?,
            weight(device, Format::BF16, 1, STREAMS * D, RANK, &mut rng)?,
        );
        let flat = Tensor {
            rows: tokens,
            groups: 1,
            cols: STREAMS * D,
            row_stride: STREAMS * D,
            group_stride: STREAMS * D,
            ..normed.clone()
        };
        let mixed = tensor(device, DType::F32, tokens, 1, D)?;
        let gemm = |x: &Tensor, w: &Weight, epilogue, out: &Tensor| {
            let (x, w, out) = (x.clone(), w.clone(), out.clone());
            Op::from(Gemm { x, w, bias: None, rows: RowMap::Identity, epilogue, precision: Precision::F16, out })
        };
        let norm = Op::from(RmsNorm { x: streams, weight: ones, eps: 1e-6, out: normed.clone() });
        let epi_down = gemm(&flat, &down, Epilogue::Silu { scale: 1.0 / STREAMS as f32 }, &low);
        let read = gemm(&low, &up, Epilogue::GateMean { normed: normed.clone() }, &mixed);
        let convert = Op::from(Copy { src: x.clone(), dst: half.clone() });
        let exponents = tensor(device, DType::I32, 1, 1, shape.max_rows())?;
        let gather_from =
            |x: &Tensor, exponents| Gather { x: x.clone(), plan: plan.clone(), out: gathered.clone(), exponents };
        let (gather, gather_h) = (Op::from(gather_from(&x, Some(exponents))), Op::from(gather_from(&half, None)));
        let rule = delta_rule(device, tokens, &mut rng)?;
        let run = |op: &Op| device.enqueue(op);
        let kernels: [(&'static str, &dyn Fn() -> Result); 7] = [
            ("copy to f16", &|| run(&convert)),
            ("gather", &|| run(&gather)),
            ("gather_h", &|| run(&gather_h)),
            ("norm of streams", &|| run(&norm)),
            ("low-rank down with silu", &|| run(&epi_down)),
            ("low-rank up with gate and mean", &|| run(&read)),
            ("delta rule", &|| run(&rule)),
        ];
        for (name, kernel) in kernels {
            kernel()?;
            let times = (0..REPEATS).map(|_| milliseconds(device, kernel)).collect::<Result<Vec<_>>>()?;
            let time = format!("{:.1}", median(times) * 1000.0);
            match rows.iter_mut().find(|(n, _)| *n == name) {
                Some((_, times)) => times.push(time),
                None => rows.push((name, vec![time])),
            }
        }
    }
    rows.iter().for_each(|(name, times)| println!("{name},{}", times.join(",")));
    Ok(())
}

/// The gated delta rule of 16 heads of keys and 48 of values, 128 wide.
fn delta_rule(device: &CudaDevice, tokens: usize, rng: &mut Rng) -> Result<Op> {
    const KEYS: usize = 16;
    const VALUES: usize = 48;
    const WIDTH: usize = 128;
    let heads = |rng: &mut Rng, heads: usize| {
        let flat = floats(device, tokens, heads * WIDTH, rng)?;
        Ok(Tensor { groups: heads, cols: WIDTH, group_stride: WIDTH, ..flat })
    };
    let (q, k, v) = (heads(rng, KEYS)?, heads(rng, KEYS)?, heads(rng, VALUES)?);
    let (alpha, beta) = (floats(device, tokens, VALUES, rng)?, floats(device, tokens, VALUES, rng)?);
    let a = upload(device, DType::F32, [1, 1, VALUES], bytemuck::cast_slice(&[-0.1f32; VALUES]))?;
    let dt_bias = floats(device, 1, VALUES, rng)?;
    let state = tensor(device, DType::F32, VALUES, WIDTH, WIDTH)?;
    let out = tensor(device, DType::F32, tokens, VALUES, WIDTH)?;
    Ok(DeltaNet { q, k, v, alpha, beta, a, dt_bias, heads: HeadMap::Tiled, eps: 1e-6, state, out }.into())
}

/// Dense products of 2048 rows, N = K = 8192.
fn dense(device: &CudaDevice) -> Result {
    const ROWS: usize = 2048;
    const N: usize = 8192;
    use Format::{BF16, IQ2_XS, IQ3_S, IQ4_NL, IQ4_XS, Q2_0, Q3_K, Q4_0, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0};
    println!("format,ms,tflops");
    let mut rng = Rng::new(3);
    let x = floats(device, ROWS, N, &mut rng)?;
    let out = tensor(device, DType::F32, ROWS, 1, N)?;
    for format in [BF16, Q8_0, Q4_0, Q5_0, IQ4_NL, IQ4_XS, Q2_0, IQ3_S, Q3_K, Q4_K, Q5_K, Q6_K, IQ2_XS] {
        let w = weight(device, format, 1, N, N, &mut rng)?;
        let (x, out) = (x.clone(), out.clone());
        let op = Op::from(Gemm {
            x,
            w,
            bias: None,
            rows: RowMap::Identity,
            epilogue: Epilogue::Store,
            precision: Precision::F16,
            out,
        });
        device.enqueue(&op)?;
        let ms =
            median((0..REPEATS).map(|_| milliseconds(device, || device.enqueue(&op))).collect::<Result<Vec<_>>>()?);
        println!("{format},{ms:.4},{:.0}", 2.0 * (ROWS * N * N) as f32 / ms / 1e9);
    }
    Ok(())
}

thread_local! {
    /// What the sweep's device chooses.
    static TILE: Cell<Option<Tile>> = const { Cell::new(None) };
}

fn swept(machine: &Machine, product: &Product) -> Tile {
    TILE.get().unwrap_or_else(|| tune::choose(machine, product))
}

/// Every tile that might be best, for the report's layer.
fn sweep(options: &CudaOptions, sizes: &[usize]) -> Result {
    let device = CudaDevice::new(CudaOptions { tile: swept, ..options.clone() })?;
    let layers = layer_weights(&device)?;
    println!("tokens,product,tile_tokens,chunk,stages,blocks,groups,resident,copies,ms");
    for tokens in [128, 512, 2048, 8192].into_iter().filter(|t| sizes.is_empty() || sizes.contains(t)) {
        TILE.set(None);
        let work = work(&device, &layers, tokens)?;
        device.enqueue(&work.plan)?;
        (0..2).try_for_each(|_| device.enqueue(&work.gate_up[0]).and_then(|()| device.enqueue(&work.down[0])))?;
        let height = device.tile_rows(tokens * TOP_K, EXPERTS) as u32;
        for (name, ops, format, columns) in
            [("gate_up", &work.gate_up, Format::IQ2_XS, D), ("down", &work.down, Format::IQ4_NL, F)]
        {
            for tile in candidates(&device.machine(), format, columns, height) {
                TILE.set(Some(tile));
                device.enqueue(&ops[0])?;
                let once = |i: usize| milliseconds(&device, || device.enqueue(&ops[i % LAYERS]));
                let ms = median((0..9).map(once).collect::<Result<Vec<_>>>()?);
                let Tile { tokens: height, chunk, stages, blocks, groups, resident, copies } = tile;
                println!("{tokens},{name},{height},{chunk},{stages},{blocks},{groups},{resident},{copies},{ms:.4}");
            }
        }
    }
    Ok(())
}

/// Tiles of one height that fit the card.
fn candidates(machine: &Machine, format: Format, columns: usize, tokens: u32) -> Vec<Tile> {
    let chunks: &[u32] = if format.block_len() > 64 { &[256, 512] } else { &[128, 256, 320, 640] };
    // Registers of a thread without which sums and operands do not fit.
    let registers = match tokens {
        ..=16 => 64,
        17..=64 => 80,
        _ => 160,
    };
    let product = Product { format, rows: tokens as usize, end: End::Store, columns };
    let mut tiles = Vec::new();
    for &chunk in chunks {
        for resident in [false, true] {
            let shape =
                if resident { columns.is_multiple_of(chunk as usize) } else { chunk.is_power_of_two() && tokens > 16 };
            for (stages, blocks) in [(2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (2, 3), (3, 3), (2, 4), (3, 4)] {
                for (groups, copies) in [(2, 1), (4, 1), (4, 32)] {
                    let tile = Tile { tokens, chunk, stages, blocks, groups, resident, copies };
                    let warps = blocks * groups * 4;
                    let wanted = if tokens > 64 { 8.. } else { 16.. };
                    let fast = wanted.contains(&warps) && 65536 / (32 * warps) >= registers;
                    let copied = copies == 1 || tokens <= 8 && format == Format::IQ2_XS; // few.cuh
                    if shape && fast && copied && tune::fits(machine, &product, &tile) {
                        tiles.push(tile);
                    }
                }
            }
        }
    }
    tiles
}

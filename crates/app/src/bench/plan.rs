//! `argon bench plan`: the stages of the plan alone, and whole plans of a sequence of layers, variant beside variant.
//!
//! The stages alone are functions of the processor, called on a thread of its device, or what a launch of a CUDA device adds
//! to those before it, without which it would find another layer's numbers. The sequence is what a model enqueues, one plan a
//! layer, from an idle device to an idle device; there the variants of the device stand side by side.

pub mod tables;

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use argon_kernels::cpu::{CpuDevice, CpuOptions};
use argon_kernels::cuda::{CudaDevice, CudaOptions, Graph, PlanVariant};
use argon_kernels::op::{self, PlanBuffers};
use argon_kernels::{DType, Device, DeviceError, Op};
use argon_plan::variants::{fused, packed, parallel, serial};
use argon_plan::{Buffers, Plan, Shape, Variant, stages};
use serde_json::json;

use super::args::{PlanArgs, Routed};
use super::report::{Record, Report, Work};
use super::setup::{Setup, device_failure, object};
use crate::device;
use crate::failure::{Failure, OrFail, stdout_failure};
use crate::measure::layout::{self, Layout, words};
use crate::measure::times::{Times, UNMEASURED};
use crate::settings::within;

/// Entries of all layers together: beyond that, layers share their choices.
const ENTRIES: usize = 1 << 23;

/// Runs the command.
///
/// # Errors
/// Of the input, or of the work.
pub fn run(args: PlanArgs) -> Result<(), Failure> {
    let routed = Routed::try_from(args.routed)?;
    let layers = within("--layers", args.layers, 1, 10_000)?;
    let (experts, top_k) = (routed.routing.experts(), routed.routing.top_k());
    let shapes = routed.tokens.iter().map(|&tokens| shape(tokens, top_k, experts, 1)).collect::<Result<Vec<_>, _>>()?;
    let setup = Setup::new("plan", args.common)?;
    shapes.iter().try_for_each(|shape| {
        let largest = shape.max_rows().max(shape.block_words()).checked_mul(4);
        setup.expect_room(words(shape).and_then(|words| words.checked_mul(12)), largest)
    })?;
    let setting = object(json!({
        "experts": experts, "top_k": top_k, "layers": layers, "routing": routed.routing.name(),
    }));
    let mut notes = vec![
        format!("E {experts}, K {top_k}, routing {}", routed.routing.name()),
        format!("{layers} layers, each with choices of its own; memory is that of one layer, as in a model"),
        "outside the clock: making the choices, allocating, writing them to the device".into(),
    ];
    notes.push(match setup.machine.device.as_str() {
        "cpu" => "a stage alone: one call on one thread of the device (parallel: all), median of calls".into(),
        cuda if cuda.starts_with("cuda:") => {
            "a stage: what its launch adds to those before it, recorded for every layer; variants of one launch have none".into()
        }
        other => format!("no stage alone: {other} enqueues a plan as a whole, so only the whole is timed"),
    });
    let mut report = setup.report(setting, notes);
    let measured = routed.tokens.iter().try_for_each(|&tokens| {
        setup.go_on()?;
        let tile = setup.device.tile_rows(tokens * top_k, experts);
        let chunk = Chunk::new(&routed, shape(tokens, top_k, experts, tile)?, layers);
        report.plans.push(Layout::of(&chunk.plan(0)?));
        if Some(&tokens) == routed.tokens.iter().max() {
            let loads = |layer| chunk.plan(layer).map(|plan| layout::loads(&plan));
            report.loads = (0..chunk.ids.len()).map(loads).collect::<Result<_, _>>()?;
        }
        if setup.machine.device == "cpu" {
            stages_alone(&setup, &chunk, &mut report)?;
        }
        sequences(&setup, &chunk, &mut report)
    });
    let measured = measured.and(print(&report).map_err(stdout_failure));
    setup.finish(report, measured)
}

/// The shape of a plan.
pub fn shape(tokens: usize, top_k: usize, experts: usize, tile: usize) -> Result<Shape, Failure> {
    Shape::new(tokens, top_k, experts, tile).or_input("-T, --topk and --experts")
}

/// Choices for every layer.
struct Chunk {
    shape: Shape,
    layers: usize,
    ids: Vec<Vec<i32>>,
    weights: Vec<u32>,
}

impl Chunk {
    fn new(routed: &Routed, shape: Shape, layers: usize) -> Chunk {
        let different = layers.min((ENTRIES / shape.entries()).max(1));
        Chunk {
            shape,
            layers,
            ids: (0..routed.routing.layers().unwrap_or(layers).min(different))
                .map(|layer| routed.routing.ids(shape.tokens(), layer))
                .collect(),
            weights: (0..shape.entries()).map(|i| (i as f32 / 16.0).to_bits()).collect(),
        }
    }

    /// The plan of a layer that has choices of its own.
    fn plan(&self, layer: usize) -> Result<Plan, Failure> {
        Plan::build(self.shape, &self.ids[layer], &self.weights, Variant::default()).or_work("plan")
    }
}

/// A stage: reads choices and weights, writes buffers.
type Stage = fn(&Shape, &[i32], &[u32], &mut Buffers);

/// The stages of each variant, in their order. `running` is what `auto` stands for while there are few entries.
const STAGES: [(Variant, &[(&str, Stage)]); 5] = [
    (
        Variant::Serial,
        &[
            ("hist", |s, ids, _, b| stages::hist(s, ids, b)),
            ("scan", |s, _, _, b| serial::scan(s, b)),
            ("clear", |_, _, _, b| serial::clear(b)),
            ("place", serial::place),
        ],
    ),
    (
        Variant::Packed,
        &[
            ("hist", |s, ids, _, b| stages::hist(s, ids, b)),
            ("scan", |s, _, _, b| stages::scan(s, b)),
            ("place", packed::place),
        ],
    ),
    (Variant::Fused, &[("hist_scan", |s, ids, _, b| fused::hist_scan(s, ids, b)), ("place", stages::place)]),
    (
        Variant::Running,
        &[
            ("hist", |s, ids, _, b| stages::hist(s, ids, b)),
            ("scan", |s, _, _, b| stages::scan(s, b)),
            ("place", stages::place),
        ],
    ),
    (
        Variant::Parallel,
        &[
            ("hist", |s, ids, _, b| parallel::hist(s, ids, b)),
            ("scan", |s, _, _, b| stages::scan(s, b)),
            ("place", parallel::place),
        ],
    ),
];

/// Times each stage of each variant by itself.
fn stages_alone(setup: &Setup, chunk: &Chunk, report: &mut Report) -> Result<(), Failure> {
    let device = cpu(setup, Variant::Auto)?;
    for (variant, stages) in STAGES {
        let mut plan = Plan::filled(chunk.shape, 0, 0);
        let mut seconds = vec![Vec::new(); stages.len()];
        device.install(|| {
            setup.measure(|run| {
                let ids = &chunk.ids[run % chunk.ids.len()];
                let mut all = 0.0;
                for ((_, stage), seconds) in stages.iter().zip(&mut seconds) {
                    let start = Instant::now();
                    stage(&chunk.shape, ids, &chunk.weights, black_box(&mut plan.buffers()));
                    let took = start.elapsed().as_secs_f64();
                    seconds.push(took);
                    all += took;
                }
                Ok(all)
            })
        })?;
        for ((name, _), seconds) in stages.iter().zip(seconds) {
            let times = Times::of(seconds[UNMEASURED..].to_vec());
            report.records.push(record(setup, chunk, name, variant.name(), times));
        }
    }
    Ok(())
}

/// Of a whole plan the bytes are counted: every word of it once.
fn record(setup: &Setup, chunk: &Chunk, stage: &str, variant: &str, times: Times) -> Record {
    let bytes = words(&chunk.shape).filter(|_| stage == "plan").map(|words| 4.0 * words as f64);
    Record::new(chunk.shape.tokens(), stage, variant, times, Work { bytes, ..Work::default() }, &setup.machine)
}

/// The device of the processor with a variant.
fn cpu(setup: &Setup, plan: Variant) -> Result<CpuDevice, Failure> {
    let options = device::cpu().map_err(device_failure)?;
    CpuDevice::new(CpuOptions { threads: setup.settings.threads, plan, ..options }).map_err(device_failure)
}

/// Times whole plans of all layers, a layer's share of it, for every variant of the device; one that the device refuses is noted.
fn sequences(setup: &Setup, chunk: &Chunk, report: &mut Report) -> Result<(), Failure> {
    if let Some(card) = setup.machine.device.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
        for variant in PlanVariant::ALL.into_iter().chain([PlanVariant::Auto]) {
            let options = CudaOptions { plan: variant, ..device::cuda(card) };
            let device = Arc::new(CudaDevice::new(options).map_err(device_failure)?);
            let stages = match device.plan_stages(&chunk.shape) {
                Err(refusal @ DeviceError::Unsupported { .. }) => {
                    report.warn(Some(format!("T {}: {refusal}", chunk.shape.tokens())));
                    continue;
                }
                other => other.map_err(device_failure)?,
            };
            let card = Card::new(setup, device, chunk)?;
            let mut add = |stage: &str, times| {
                report.records.push(record(setup, chunk, stage, variant.name(), times));
            };
            // One launch is the whole, and what `auto` launches is another's.
            let several = stages.len() > 1 && variant != PlanVariant::Auto;
            for (number, stage) in stages.iter().enumerate().filter(|_| several) {
                add(stage, card.added(number)?);
            }
            add("plan", card.replayed(|device, op| device.enqueue(&op.clone().into()))?);
        }
        return Ok(());
    }
    let mut add = |variant: &str, times| report.records.push(record(setup, chunk, "plan", variant, times));
    if setup.machine.device == "cpu" {
        for variant in Variant::ALL {
            add(variant.name(), enqueued(&setup.with_device(Arc::new(cpu(setup, variant)?)), chunk)?);
        }
    }
    add("auto", enqueued(setup, chunk)?);
    Ok(())
}

/// The ops of all layers that have choices of their own.
fn ops(setup: &Setup, chunk: &Chunk) -> Result<Vec<op::Plan>, Failure> {
    let (tokens, top_k) = (chunk.shape.tokens(), chunk.shape.top_k());
    let plan = PlanBuffers::new(setup.device.as_ref(), chunk.shape).map_err(device_failure)?;
    let weights: Vec<u8> = chunk.weights.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let weights = setup.tensor(DType::F32, tokens, top_k, &weights)?;
    let op = |ids: &Vec<i32>| {
        let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
        let ids = setup.tensor(DType::I32, tokens, top_k, &ids)?;
        Ok(op::Plan { ids, weights: weights.clone(), plan: plan.clone() })
    };
    chunk.ids.iter().map(op).collect()
}

/// A layer's share of a sequence that the host enqueues op by op.
fn enqueued(setup: &Setup, chunk: &Chunk) -> Result<Times, Failure> {
    let ops: Vec<Op> = ops(setup, chunk)?.into_iter().map(Op::from).collect();
    let times = setup.time(|_| (0..chunk.layers).map(|layer| &ops[layer % ops.len()]).collect())?;
    Ok(times.part(chunk.layers))
}

/// A card with the ops of all layers, the first of which it has run.
struct Card<'a> {
    setup: &'a Setup,
    device: Arc<CudaDevice>,
    layers: usize,
    ops: Vec<op::Plan>,
}

impl<'a> Card<'a> {
    fn new(setup: &'a Setup, device: Arc<CudaDevice>, chunk: &Chunk) -> Result<Card<'a>, Failure> {
        let ops = ops(&setup.with_device(device.clone()), chunk)?;
        device.enqueue(&ops[0].clone().into()).map_err(device_failure)?;
        Ok(Card { setup, device, layers: chunk.layers, ops })
    }

    /// A layer's share of a sequence that the card has recorded, so that the host does not hold it up.
    fn replayed(&self, enqueue: impl Fn(&CudaDevice, &op::Plan) -> Result<(), DeviceError>) -> Result<Times, Failure> {
        let graph = self.recorded(enqueue)?;
        Ok(self.setup.measure(|_| self.seconds(&graph))?.part(self.layers))
    }

    /// The share of the same that a stage adds to the stages before it.
    fn added(&self, stage: usize) -> Result<Times, Failure> {
        let up_to = |end: usize| {
            self.recorded(|device, op| (0..end).try_for_each(|stage| device.enqueue_plan_stage(op, stage)))
        };
        let with = up_to(stage + 1)?;
        let without = if stage == 0 { None } else { Some(up_to(stage)?) };
        let once = |_| {
            let without = without.as_ref().map_or(Ok(0.0), |graph| self.seconds(graph))?;
            Ok((self.seconds(&with)? - without).max(0.0))
        };
        Ok(self.setup.measure(once)?.part(self.layers))
    }

    fn recorded(&self, enqueue: impl Fn(&CudaDevice, &op::Plan) -> Result<(), DeviceError>) -> Result<Graph, Failure> {
        let device = self.device.as_ref();
        let all = || (0..self.layers).try_for_each(|layer| enqueue(device, &self.ops[layer % self.ops.len()]));
        device.record(all).map_err(device_failure)
    }

    fn seconds(&self, graph: &Graph) -> Result<f64, Failure> {
        self.device.elapsed(&mut || self.device.replay(graph)).map_err(device_failure)
    }
}

/// Both tables on standard output.
fn print(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if let Some(table) = tables::stages(report) {
        table.write(&mut out)?;
        writeln!(out)?;
    }
    writeln!(out, "a layer of a sequence of {} layers\n", report.setting["layers"])?;
    tables::sequences(report).write(&mut out)
}

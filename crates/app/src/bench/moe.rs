//! `argon bench moe`: the routed part of a layer after routing, stage by stage and as a whole.

use std::io::{self, Write};

use argon_gguf::Format;
use argon_kernels::op::{self, Combine, Epilogue, Gemm, PlanBuffers, RowMap};
use argon_kernels::{DType, Op, Tensor, Weight};
use argon_plan::{Plan, Variant};
use serde_json::json;

use super::args::{self, MoeArgs, Routed};
use super::cold::{self, Cold};
use super::machine::Machine;
use super::plan;
use super::report::{Record, Report, Work};
use super::setup::{Setup, device_failure, normal, object};
use super::stage::OF_LAYER;
use crate::failure::{Failure, OrFail, stdout_failure};
use crate::measure::layout::{Layout, words};
use crate::measure::times::{Times, UNMEASURED, time};
use crate::settings::within;

/// The sizes of a layer.
#[derive(Clone, Copy)]
struct Layer {
    experts: usize,
    top_k: usize,
    hidden: usize,
    ffn: usize,
    gate_up: Format,
    down: Format,
    /// How many in one go.
    layers: usize,
}

/// Runs the command.
///
/// # Errors
/// Of the input, or of the work.
pub fn run(args: MoeArgs) -> Result<(), Failure> {
    let routed = Routed::try_from(args.routed)?;
    let (hidden, ffn) = (args::width("--hidden", args.hidden.hidden)?, args::width("--ffn", args.ffn)?);
    let layer = Layer {
        experts: routed.routing.experts(),
        top_k: routed.routing.top_k(),
        hidden,
        ffn,
        gate_up: args::format("--gu", &args.gu, hidden)?,
        down: args::format("--dn", &args.dn, ffn)?,
        layers: within("--layers", args.layers, 1, 10_000)?,
    };
    let pool = within("--pool", args.cold.pool, 0, 1 << 20)? << 20;
    let one = layer.bytes().ok_or_else(|| Failure::input("--experts, -D and -F: a layer larger than any memory"))?;
    let cold = Cold::new(one, pool);
    let most = routed.tokens.iter().copied().max().unwrap_or(0);
    let largest = plan::shape(most, layer.top_k, layer.experts, 1)?;
    let setup = Setup::new("moe", args.common)?;
    let tile = setup.device.tile_rows(largest.entries(), layer.experts);
    let rows = plan::shape(most, layer.top_k, layer.experts, tile)?.max_rows();
    setup.expect_room(
        layer.activation_bytes(largest.entries()).and_then(|bytes| bytes.checked_add(cold.bytes)),
        rows.checked_mul(4 * hidden.max(ffn)),
    )?;
    let setting = object(json!({
        "experts": layer.experts, "top_k": layer.top_k, "hidden": hidden, "ffn": ffn,
        "layers": layer.layers,
        "gate_up": layer.gate_up.name(), "down": layer.down.name(), "routing": routed.routing.name_of_one(),
    }));
    let (gate_up, down, name) = (layer.gate_up, layer.down, routed.routing.name_of_one());
    let (experts, top_k) = (layer.experts, layer.top_k);
    let notes = vec![
        format!("E {experts}, K {top_k}, D {hidden}, F {ffn}, gate and up {gate_up}, down {down}, routing {name}"),
        cold.describe(setup.machine.cache_bytes),
        "outside the clock: routing, allocating, making weights and activations".into(),
        match layer.layers {
            1 => "layer: all stages in one go".into(),
            layers => format!("layer: all stages in one go, a layer's share of a sequence of {layers}"),
        },
        "gather: none; gate and up read their rows through the plan".into(),
    ];
    let mut report = setup.report(setting, notes);
    let sets = (0..cold.copies).map(|copy| Weights::new(&setup, &layer, copy)).collect::<Result<Vec<_>, _>>()?;
    header().map_err(stdout_failure)?;
    let mut one = |tokens| {
        let chunk = Chunk::new(&setup, &layer, &routed, tokens, &sets)?;
        let used = chunk.weight_bytes(&layer).into_iter().sum();
        report.warn(cold.warning(used, setup.machine.cache_bytes).map(|what| format!("T {tokens}: {what}")));
        chunk.measure(&setup, &layer, &mut report)?;
        row(&report, tokens).map_err(stdout_failure)
    };
    let measured = routed.tokens.iter().try_for_each(|&tokens| one(tokens));
    setup.finish(report, measured)
}

impl Layer {
    /// Bytes of its weights.
    fn bytes(&self) -> Option<usize> {
        let gate_up = self.gate_up.row_bytes(self.hidden)?.checked_mul(self.ffn)?.checked_mul(2)?;
        let down = self.down.row_bytes(self.ffn)?.checked_mul(self.hidden)?;
        gate_up.checked_add(down)?.checked_mul(self.experts)
    }

    /// Bytes of activations and plan, about: two rows and a half for each entry, and padding.
    fn activation_bytes(&self, entries: usize) -> Option<usize> {
        let row = self.hidden.checked_add(self.ffn)?.checked_mul(4)?;
        entries.checked_add(self.experts.checked_mul(8)?.min(entries.checked_mul(7)?))?.checked_mul(row)?.checked_mul(2)
    }
}

/// One set of weights.
struct Weights {
    gate: Weight,
    up: Weight,
    down: Weight,
}

impl Weights {
    fn new(setup: &Setup, layer: &Layer, copy: usize) -> Result<Weights, Failure> {
        let Layer { experts, hidden, ffn, gate_up, down, .. } = *layer;
        let weight = |format, rows, cols, name: &str| {
            setup.go_on()?;
            cold::weight(setup.device.as_ref(), format, [experts, rows, cols], copy as u64, name)
        };
        Ok(Weights {
            gate: weight(gate_up, ffn, hidden, "gate")?,
            up: weight(gate_up, ffn, hidden, "up")?,
            down: weight(down, hidden, ffn, "down")?,
        })
    }
}

/// The ops of a chunk, for every set of weights, and what they have to do.
struct Chunk {
    plan: Plan,
    planning: Op,
    gate_up: Vec<Op>,
    down: Vec<Op>,
    combine: Op,
}

impl Chunk {
    fn new(setup: &Setup, layer: &Layer, routed: &Routed, tokens: usize, sets: &[Weights]) -> Result<Chunk, Failure> {
        let Layer { experts, top_k, hidden, ffn, .. } = *layer;
        let shape = plan::shape(tokens, top_k, experts, setup.device.tile_rows(tokens * top_k, experts))?;
        let ids = routed.routing.ids(tokens, 0);
        let weights = vec![1.0 / top_k as f32; ids.len()];
        let words: Vec<u32> = weights.iter().map(|weight| weight.to_bits()).collect();
        let plan = Plan::build(shape, &ids, &words, Variant::default()).or_work("plan")?;

        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let ids: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
        let ids = setup.tensor(DType::I32, tokens, top_k, &bytes(&ids))?;
        let weights = setup.tensor(DType::F32, tokens, top_k, &bytes(&words))?;
        let x = setup.tensor(DType::F32, tokens, hidden, &normal(tokens * hidden, 1))?;
        let buffers = PlanBuffers::new(setup.device.as_ref(), shape).map_err(device_failure)?;
        let h = setup.zeros(DType::F32, shape.max_rows(), ffn)?;
        let rows = setup.zeros(DType::F32, shape.max_rows(), hidden)?;
        let out = setup.zeros(DType::F32, tokens, hidden)?;

        let precision = setup.precision;
        let gemm = |x: &Tensor, w: &Weight, rows, epilogue, out: &Tensor| {
            Op::from(Gemm { x: x.clone(), w: w.clone(), bias: None, rows, epilogue, precision, out: out.clone() })
        };
        let gate_up = |set: &Weights| {
            gemm(&x, &set.gate, RowMap::Gather(buffers.clone()), Epilogue::SwiGlu { up: set.up.clone() }, &h)
        };
        let down = |set: &Weights| gemm(&h, &set.down, RowMap::Segments(buffers.clone()), Epilogue::Store, &rows);
        Ok(Chunk {
            plan,
            gate_up: sets.iter().map(gate_up).collect(),
            down: sets.iter().map(down).collect(),
            planning: op::Plan { ids, weights: weights.clone(), plan: buffers.clone() }.into(),
            combine: Combine {
                rows: rows.clone(),
                weights,
                plan: buffers.clone(),
                shared: None,
                accumulate: false,
                out,
            }
            .into(),
        })
    }

    /// Layers as a whole, one after the other, then each stage by itself, both in the order of a layer.
    fn measure(&self, setup: &Setup, layer: &Layer, report: &mut Report) -> Result<(), Failure> {
        let tokens = self.plan.shape().tokens();
        let stages = |i: usize| {
            let set = i % self.gate_up.len();
            [&self.planning, &self.gate_up[set], &self.down[set], &self.combine]
        };
        let layers = layer.layers;
        let whole = setup.time(|i| (i * layers..(i + 1) * layers).flat_map(stages).collect())?.part(layers);
        let mut seconds = [const { Vec::new() }; 4];
        let device = setup.device.as_ref();
        setup.measure(|i| {
            let mut all = 0.0;
            for (op, seconds) in stages(i).into_iter().zip(&mut seconds) {
                let took = device.elapsed(&mut || device.enqueue(op)).map_err(device_failure)?;
                seconds.push(took);
                all += took;
            }
            Ok(all)
        })?;
        let work = self.work(layer, &setup.machine);
        for ((stage, seconds), work) in OF_LAYER.iter().zip(seconds).zip(work) {
            let times = Times::of(seconds[UNMEASURED..].to_vec());
            report.records.push(Record::new(tokens, stage.key, "", times, work, &setup.machine));
        }
        let sum = |part: fn(&Work) -> Option<f64>| Some(work.iter().filter_map(part).sum());
        let (bytes, operations) = (sum(|work| work.bytes), sum(|work| work.operations));
        let all = Work { bytes, operations, ceiling: None };
        report.records.push(Record::new(tokens, "layer", "", whole, all, &setup.machine));
        report.plans.push(Layout::of(&self.plan));
        Ok(())
    }

    /// Bytes of the weights of the experts that got a token: of gate and up, and of down.
    fn weight_bytes(&self, layer: &Layer) -> [f64; 2] {
        let active = f64::from(Layout::of(&self.plan).active);
        let of = |format: Format, rows: usize, cols| (format.row_bytes(cols).unwrap_or(0) * rows) as f64 * active;
        [2.0 * of(layer.gate_up, layer.ffn, layer.hidden), of(layer.down, layer.hidden, layer.ffn)]
    }

    /// The least that each stage has to do: every active expert's weights are read once, every row once.
    fn work(&self, layer: &Layer, machine: &Machine) -> [Work; 4] {
        let shape = Layout::of(&self.plan);
        let (kept, tokens) = (f64::from(shape.kept), shape.tokens as f64);
        let (hidden, ffn) = (layer.hidden as f64, layer.ffn as f64);
        let [gate_up, down] = self.weight_bytes(layer);
        let work = |bytes, operations, ceiling| Work { bytes: Some(bytes), operations: Some(operations), ceiling };
        let of = |format| Some(machine.operations_of(format));
        [
            Work { bytes: words(self.plan.shape()).map(|words| 4.0 * words as f64), operations: None, ceiling: None },
            work(gate_up + 4.0 * (tokens * hidden + kept * ffn), 4.0 * kept * hidden * ffn, of(layer.gate_up)),
            work(down + 4.0 * kept * (ffn + hidden), 2.0 * kept * hidden * ffn, of(layer.down)),
            work(4.0 * (kept + tokens) * hidden, 2.0 * kept * hidden, machine.float_operations_per_s),
        ]
    }
}

fn header() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let names = [
        "T",
        "plan",
        "gate, up",
        "down",
        "combine",
        "layer",
        "p10 to p90",
        "µs/token",
        "GB/s",
        "of memory",
        "GOP/s",
        "of products",
    ];
    let widths = WIDTHS;
    let cells: Vec<String> = names.iter().zip(widths).map(|(name, width)| format!("{name:>width$}")).collect();
    let rule: Vec<String> = widths.iter().map(|width| format!("{:->w$}:", "", w = width - 1)).collect();
    writeln!(out, "| {} |\n| {} |", cells.join(" | "), rule.join(" | "))
}

/// Widths of the columns of the table, which is written row by row.
const WIDTHS: [usize; 12] = [6, 8, 8, 8, 8, 8, 20, 8, 6, 9, 6, 12];

fn row(report: &Report, tokens: usize) -> io::Result<()> {
    let records: Vec<&Record> = report.records.iter().filter(|record| record.tokens == tokens).collect();
    let Some(layer) = records.last() else { return Ok(()) };
    let mut cells = vec![tokens.to_string()];
    cells.extend(records.iter().map(|record| time(record.times.median)));
    cells.push(format!("{} to {}", time(layer.times.p10), time(layer.times.p90)));
    cells.push(format!("{:.2}", 1e6 * layer.times.median / tokens as f64));
    cells.extend([layer.gigabytes(), layer.of_memory(), layer.gigaoperations(), layer.of_products()]);
    let cells: Vec<String> = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}")).collect();
    let mut out = io::stdout().lock();
    writeln!(out, "| {} |", cells.join(" | "))?;
    out.flush()
}

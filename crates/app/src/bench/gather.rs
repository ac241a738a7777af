//! `argon bench gather`: what it costs to copy tokens to the rows of their experts, from f32 and from f16. No product here
//! needs that copy; this is what they save.

use std::io::{self, Write};

use argon_kernels::op::{self, Gather, PlanBuffers};
use argon_kernels::{DType, Op, Tensor};
use argon_plan::{Plan, Variant};
use half::f16;
use serde_json::json;

use super::args::{self, GatherArgs, Routed};
use super::plan;
use super::report::{Record, Report, Work};
use super::setup::{Setup, device_failure, normal, object};
use crate::failure::{Failure, OrFail, stdout_failure};
use crate::measure::layout::Layout;
use crate::measure::times::{digits, time};
use crate::table;

/// Runs the command.
///
/// # Errors
/// Of the input, or of the work.
pub fn run(args: GatherArgs) -> Result<(), Failure> {
    let routed = Routed::try_from(args.routed)?;
    let hidden = args::width("--hidden", args.hidden.hidden)?;
    let (experts, top_k) = (routed.routing.experts(), routed.routing.top_k());
    let setup = Setup::new("gather", args.common)?;
    for &tokens in &routed.tokens {
        let rows = plan::shape(tokens, top_k, experts, setup.device.tile_rows(tokens * top_k, experts))?.max_rows();
        let bytes = tokens.checked_mul(6).and_then(|n| n.checked_add(rows.checked_mul(2)?)?.checked_mul(hidden));
        setup.expect_room(bytes, tokens.max(rows.div_ceil(2)).checked_mul(4 * hidden))?;
    }
    let name = routed.routing.name_of_one();
    let setting = object(json!({"experts": experts, "top_k": top_k, "hidden": hidden, "routing": name}));
    let notes = vec![
        format!("E {experts}, K {top_k}, D {hidden}, routing {name}; rows in f16"),
        "from f32 and from the f16 copy that a producer may have made, same bits; from f32 with each row's exponent"
            .into(),
        "outside the clock: routing, the plan, allocating, making activations".into(),
    ];
    let mut report = setup.report(setting, notes);
    let one = |&tokens: &usize| measure(&setup, &routed, tokens, hidden, &mut report);
    let measured = routed.tokens.iter().try_for_each(one);
    let measured = measured.and(print(&report).map_err(stdout_failure));
    setup.finish(report, measured)
}

/// Both gathers of one chunk.
fn measure(setup: &Setup, routed: &Routed, tokens: usize, hidden: usize, report: &mut Report) -> Result<(), Failure> {
    let (experts, top_k) = (routed.routing.experts(), routed.routing.top_k());
    let shape = plan::shape(tokens, top_k, experts, setup.device.tile_rows(tokens * top_k, experts))?;
    let ids = routed.routing.ids(tokens, 0);
    let plan = Plan::build(shape, &ids, &vec![0; ids.len()], Variant::default()).or_work("plan")?;
    let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
    let ids = setup.tensor(DType::I32, tokens, top_k, &ids)?;
    let device = setup.device.as_ref();
    let buffers = PlanBuffers::new(device, shape).map_err(device_failure)?;
    let weights = setup.zeros(DType::F32, tokens, top_k)?;
    device.enqueue(&op::Plan { ids, weights, plan: buffers.clone() }.into()).map_err(device_failure)?;

    let numbers = normal(tokens * hidden, 1);
    let x = setup.tensor(DType::F32, tokens, hidden, &numbers)?;
    let halves = numbers.as_chunks().0.iter().flat_map(|x| f16::from_f32(f32::from_ne_bytes(*x)).to_ne_bytes());
    let xh = setup.tensor(DType::F16, tokens, hidden, &halves.collect::<Vec<u8>>())?;
    let exponents = setup.zeros(DType::I32, 1, shape.max_rows())?;
    let out = setup.zeros(DType::F16, shape.max_rows(), hidden)?;
    let timed = |x: Tensor, exponents| {
        let op = Op::from(Gather { x, plan: buffers.clone(), out: out.clone(), exponents });
        setup.time(|_| vec![&op])
    };
    let (f32s, f16s) = (timed(x, Some(exponents))?, timed(xh, None)?);

    let (kept, rows, width) = (plan.stok().iter().filter(|token| **token >= 0).count(), plan.rows(), hidden as f64);
    for (variant, times, source) in [("f32", f32s, 4.0), ("f16", f16s, 2.0)] {
        let bytes = Some((source * kept as f64 + 2.0 * rows as f64) * width);
        let work = Work { bytes, ..Work::default() };
        report.records.push(Record::new(tokens, "gather", variant, times, work, &setup.machine));
    }
    report.plans.push(Layout::of(&plan));
    Ok(())
}

fn print(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let header = ["T", "padded rows", "from f32", "GB/s", "from f16", "GB/s", "f32 / f16"];
    let rows = report.plans.iter().zip(report.records.chunks_exact(2)).map(|(plan, records)| {
        let cells = records
            .iter()
            .flat_map(|record| [time(record.times.median), digits(record.bytes_per_s.unwrap_or(0.0) / 1e9)]);
        let faster = format!("{:.2}x", records[0].times.median / records[1].times.median);
        [plan.tokens.to_string(), plan.rows.to_string()].into_iter().chain(cells).chain([faster]).collect()
    });
    table::markdown(&mut out, &header, &[true; 7], &rows.collect::<Vec<Vec<String>>>())?;
    out.flush()
}

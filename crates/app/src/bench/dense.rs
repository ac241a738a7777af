//! `argon bench dense`: products of rows of activations with one weight, format by format.

use std::io::{self, Write};

use argon_gguf::Format;
use argon_kernels::op::{Epilogue, Gemm, RowMap};
use argon_kernels::{DType, Op, Weight};
use serde_json::json;

use super::args::{self, DenseArgs};
use super::cold::{self, Cold};
use super::report::{Record, Report, Work};
use super::setup::{Setup, normal, object};
use crate::failure::{Failure, stdout_failure};
use crate::measure::times::time;
use crate::settings::within;

/// Runs the command.
///
/// # Errors
/// Of the input, or of the work.
pub fn run(args: DenseArgs) -> Result<(), Failure> {
    let cols = args::width("--hidden", args.hidden.hidden)?;
    let rows = args::width("--outputs", args.outputs.unwrap_or(cols))?;
    let tokens = args::tokens_within(args.tokens, usize::MAX)?;
    let formats =
        args.formats.iter().map(|name| args::format("--formats", name.trim(), cols)).collect::<Result<Vec<_>, _>>()?;
    let pool = within("--pool", args.cold.pool, 0, 1 << 20)? << 20;
    let setup = Setup::new("dense", args.common)?;
    let sizes = formats.iter().map(|format| Some(Cold::new(format.row_bytes(cols)?.checked_mul(rows)?, pool)));
    let colds = sizes.collect::<Option<Vec<_>>>().unwrap_or_default();
    let largest = colds.iter().map(|cold| cold.bytes).max();
    let most = tokens.iter().copied().max().unwrap_or(0);
    let activations = most.checked_mul(cols + rows).and_then(|n| n.checked_mul(12));
    setup.expect_room(
        largest.zip(activations).and_then(|(weights, activations)| weights.checked_add(activations)),
        most.checked_mul(4 * cols.max(rows)),
    )?;
    let setting = object(json!({"cols": cols, "rows": rows, "seed": args.seed}));
    let notes = vec![
        format!("x [T, {cols}] times the transpose of w [{rows}, {cols}]"),
        format!("copies of each weight take turns, {} MiB or more in all", pool >> 20),
        "outside the clock: allocating, making weights and activations".into(),
    ];
    let mut report = setup.report(setting, notes);
    header().map_err(stdout_failure)?;
    let measured = formats.iter().zip(&colds).try_for_each(|(&format, cold)| {
        let weights = Weights { format, cold, rows, cols, seed: args.seed };
        measure(&setup, &weights, &tokens, &mut report)
    });
    setup.finish(report, measured)
}

/// Weights of one format.
struct Weights<'a> {
    format: Format,
    cold: &'a Cold,
    rows: usize,
    cols: usize,
    seed: u64,
}

/// Times products with them, for each number of rows of activations.
fn measure(setup: &Setup, weights: &Weights, tokens: &[usize], report: &mut Report) -> Result<(), Failure> {
    let Weights { format, cold, rows, cols, seed } = *weights;
    let weight_bytes = (cold.bytes / cold.copies) as f64;
    report.warn(cold.warning(weight_bytes, setup.machine.cache_bytes).map(|what| format!("{format}: {what}")));
    let weight = |copy: usize| {
        setup.go_on()?;
        cold::weight(setup.device.as_ref(), format, [1, rows, cols], seed.wrapping_add(copy as u64), "dense")
    };
    let weights = (0..cold.copies).map(weight).collect::<Result<Vec<_>, _>>()?;
    for &tokens in tokens {
        let x = setup.tensor(DType::F32, tokens, cols, &normal(tokens * cols, seed))?;
        let out = setup.zeros(DType::F32, tokens, rows)?;
        let op = |w: &Weight| {
            let (x, w, out) = (x.clone(), w.clone(), out.clone());
            let (rows, epilogue, precision) = (RowMap::Identity, Epilogue::Store, setup.precision);
            Op::from(Gemm { x, w, bias: None, rows, epilogue, precision, out })
        };
        let ops: Vec<Op> = weights.iter().map(op).collect();
        let times = setup.time(|i| vec![&ops[i % ops.len()]])?;
        let work = Work {
            bytes: Some(weight_bytes + 4.0 * (tokens * (cols + rows)) as f64),
            operations: Some(2.0 * tokens as f64 * cols as f64 * rows as f64),
            ceiling: Some(setup.machine.operations_of(format)),
        };
        let record = Record::new(tokens, "dense", format.name(), times, work, &setup.machine);
        row(&record).map_err(stdout_failure)?;
        report.records.push(record);
    }
    Ok(())
}

fn header() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "| {:<8} | {:>6} | {:>8} | {:>20} | {:>6} | {:>9} | {:>6} | {:>12} |\n| {:-<8} | {:->5}: | {:->7}: | {:->19}: | {:->5}: | {:->8}: | {:->5}: | {:->11}: |",
        "format",
        "T",
        "median",
        "p10 to p90",
        "GB/s",
        "of memory",
        "GOP/s",
        "of products",
        "",
        "",
        "",
        "",
        "",
        "",
        "",
        ""
    )
}

fn row(record: &Record) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let spread = format!("{} to {}", time(record.times.p10), time(record.times.p90));
    writeln!(
        out,
        "| {:<8} | {:>6} | {:>8} | {spread:>20} | {:>6} | {:>9} | {:>6} | {:>12} |",
        record.variant,
        record.tokens,
        time(record.times.median),
        record.gigabytes(),
        record.of_memory(),
        record.gigaoperations(),
        record.of_products(),
    )?;
    out.flush()
}

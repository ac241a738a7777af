//! Rows: decoded from tables of every format, laid out by a plan, and taken through a plan by products.

use argon_gguf::Format;

use super::List;
use super::plan::{Ids, plan, shape};
use crate::op::{Embed, Epilogue, Gather, Gemm, PlanBuffers, Precision, RowMap};
use crate::parity::rounded::unit_rows;
use crate::parity::{Arena, Bound, Result};
use crate::tensor::{DType, Weight};

/// Columns of a row that a product takes.
const COLUMNS: usize = 160;

/// Sizes of a token's numbers: within the range of f16, below it, at its edge, and far beyond.
const SIZES: [f32; 5] = [1.0, 1e-7, 65519.0, 1e6, 1e37];

/// What the first tokens begin with: numbers that f16 just holds, just does not, and does not after a division by their size; the
/// largest that there is.
const EDGES: [f32; 5] = [65519.0, 65520.0, -131_040.0, f32::MAX, -0.0];

pub(super) fn cases(list: &mut List) {
    for format in Format::weights() {
        list.add(format!("rows of a table, {format}"), Bound::Exact, move |a| table(a, format));
    }
    let [tokens, top_k, experts] =
        [list.request.tokens.unwrap_or(61), list.request.top_k.unwrap_or(3), list.request.experts.unwrap_or(5)];
    for cols in [1, 37, 2560] {
        for source in [DType::F32, DType::F16] {
            let kernel = if source == DType::F16 { "gather_h" } else { "gather" };
            let name = format!("{kernel}, T {tokens}, K {top_k}, E {experts}, {cols} columns");
            list.add(name, Bound::Exact, move |a| gather(a, [tokens, top_k, experts], source, cols));
        }
    }
    for &precision in list.precisions {
        for map in ["by stok", "of the plan"] {
            let bound = match precision {
                Precision::F32 => Bound::Exact,
                // A row is rounded to nearest: 2^-11 / sqrt(3) of its numbers at most in f16, where all of their mantissas
                // are the worst.
                Precision::F16 => Bound::Within { a: 2.9e-4, b: None },
                // 1/127 of the largest of 32, which is about two standard deviations, evenly spread.
                Precision::Int8 => Bound::Within { a: 7e-3, b: None },
            };
            list.push(format!("rows {map}"), bound, Some(precision), move |a| {
                multiply(a, [tokens, top_k, experts], map == "by stok")
            });
        }
    }
}

/// Rows in a mixed order, the last one of the table first.
fn table(a: &Arena, format: Format) -> Result {
    let (rows, cols, tokens) = (37, 2 * format.block_len().max(64), 41);
    let table = a.weight(format, 1, rows, cols)?;
    let ids: Vec<i32> = (0..tokens).map(|i| if i == 0 { rows - 1 } else { a.below(rows) } as i32).collect();
    embed(a, table, &ids, 1)
}

/// The rows of these ids, so many for each token.
///
/// # Errors
/// Those of the device, here and in what follows.
pub fn embed(a: &Arena, table: Weight, ids: &[i32], groups: usize) -> Result {
    let (tokens, cols) = (ids.len() / groups, table.cols);
    let ids = a.ints([tokens, 1, groups], ids)?;
    a.run(Embed { table, ids, out: a.output("rows", DType::F32, [tokens, groups, cols])? })
}

/// Tokens of every size, in both types that they come in.
fn gather(a: &Arena, [tokens, top_k, experts]: [usize; 3], source: DType, cols: usize) -> Result {
    let (plan, _) = plan(a, shape([tokens, top_k, experts, 8])?, Ids::Bad, |_| a.unit())?;
    a.run(rows(a, plan, source, cols, |i| match (i / cols, i % cols) {
        _ if source == DType::F16 => a.unit(),
        (token, 0) if token < EDGES.len() => EDGES[token],
        (token, _) if token < EDGES.len() => a.normal(),
        (token, _) => a.normal() * SIZES[token % SIZES.len()],
    })?)
}

/// The rows of a plan from tokens of type `source`; with exponents from f32.
pub fn rows(
    a: &Arena,
    plan: PlanBuffers,
    source: DType,
    cols: usize,
    number: impl FnMut(usize) -> f32,
) -> Result<Gather> {
    let rows = plan.shape.max_rows();
    let x = a.input(source, [plan.shape.tokens(), 1, cols], number)?;
    let out = a.output("xs", DType::F16, [rows, 1, cols])?;
    let exponents = (source == DType::F32).then(|| a.output("exponents", DType::I32, [1, 1, rows])).transpose()?;
    Ok(Gather { x, plan, out, exponents })
}

/// Every expert is the unit matrix, so that each product is the row itself.
fn multiply(a: &Arena, [tokens, top_k, experts]: [usize; 3], by_stok: bool) -> Result {
    let (plan, _) = plan(a, shape([tokens, top_k, experts, 8])?, Ids::Bad, |_| a.unit())?;
    let rows = if by_stok { tokens } else { plan.shape.max_rows() };
    let out = a.output("gathered", DType::F32, [plan.shape.max_rows(), 1, COLUMNS])?;
    let x = a.input(DType::F32, [rows, 1, COLUMNS], |_| a.normal())?;
    // Plain numbers would be multiplied as they are.
    let format = if a.precision == Precision::F32 { Format::F32 } else { Format::Q8_0 };
    let w = a.constant(format, unit_rows(format, COLUMNS).repeat(experts), experts, COLUMNS, COLUMNS)?;
    a.run(Gemm {
        x,
        w,
        bias: None,
        rows: if by_stok { RowMap::Gather(plan) } else { RowMap::Segments(plan) },
        epilogue: Epilogue::Store,
        precision: a.precision,
        out,
    })
}

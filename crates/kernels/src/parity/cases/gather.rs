//! Rows: decoded from tables of every format, laid out by a plan, and taken through a plan by products.

use argon_gguf::Format;

use super::List;
use super::plan::{Ids, shape};
use crate::op::{Embed, Epilogue, Gather, Gemm, Plan, PlanBuffers, Precision, RowMap};
use crate::parity::desk::Made;
use crate::parity::operands::unit_rows;
use crate::parity::{Bound, Desk};
use crate::tensor::DType;

/// Columns of a row that a product takes.
const COLUMNS: usize = 160;

/// Sizes of a token's numbers: within the range of f16, below it, at its edge, and far beyond.
const SIZES: [f32; 5] = [1.0, 1e-7, 65519.0, 1e6, 1e37];

/// What the first tokens begin with: numbers that f16 just holds, just does not, and does not after a division by their size; the
/// largest that there is.
const EDGES: [f32; 5] = [65519.0, 65520.0, -131_040.0, f32::MAX, -0.0];

pub(super) fn cases(list: &mut List) {
    for format in Format::weights() {
        list.add(format!("rows of a table, {format}"), Bound::Exact, move |desk| table(desk, format));
    }
    let [tokens, top_k, experts] =
        [list.request.tokens.unwrap_or(61), list.request.top_k.unwrap_or(3), list.request.experts.unwrap_or(5)];
    for cols in [1, 37, 2560] {
        for source in [DType::F32, DType::F16] {
            let kernel = if source == DType::F16 { "gather_h" } else { "gather" };
            let name = format!("{kernel}, T {tokens}, K {top_k}, E {experts}, {cols} columns");
            list.add(name, Bound::Exact, move |desk| gather(desk, [tokens, top_k, experts], source, cols));
        }
    }
    for &precision in list.precisions {
        for map in ["by stok", "of the plan"] {
            let bound = match precision {
                Precision::F32 => Bound::Exact,
                // A row is rounded to nearest: 2^-11 / sqrt(3) of its numbers at most in f16, where all of their mantissas are the worst.
                Precision::F16 => Bound::Within { a: 2.9e-4, b: None },
                // 1/127 of the largest of 32, which is about two standard deviations, evenly spread.
                Precision::Int8 => Bound::Within { a: 7e-3, b: None },
            };
            list.push(format!("rows {map}"), bound, Some(precision), move |desk| {
                multiply(desk, [tokens, top_k, experts], map == "by stok")
            });
        }
    }
}

/// Rows in a mixed order, the last one of the table first.
fn table(desk: &Desk, format: Format) -> Made<()> {
    let (rows, cols, tokens) = (37, 2 * format.block_len().max(64), 41);
    let table = desk.weight(format, 1, rows, cols)?;
    let ids: Vec<i32> = (0..tokens).map(|i| if i == 0 { rows - 1 } else { desk.below(rows) } as i32).collect();
    let (ids, out) = (desk.ints([tokens, 1, 1], &ids)?, desk.output("rows", DType::F32, [tokens, 1, cols])?);
    desk.run(Embed { table, ids, out })
}

/// A plan in which some entries are skipped or name no expert.
fn plan(desk: &Desk, [tokens, top_k, experts]: [usize; 3]) -> Made<PlanBuffers> {
    let shape = shape([tokens, top_k, experts, 8])?;
    let plan = PlanBuffers::new(desk.device(), shape)?;
    let ids = desk.ints([tokens, 1, top_k], &Ids::Bad.draw(desk, shape.entries(), experts))?;
    let weights = desk.units([tokens, 1, top_k])?;
    desk.run(Plan { ids, weights, plan: plan.clone() })?;
    Ok(plan)
}

/// Tokens of every size, in both types that they come in.
fn gather(desk: &Desk, sizes: [usize; 3], source: DType, cols: usize) -> Made<()> {
    let (plan, tokens) = (plan(desk, sizes)?, sizes[0]);
    let rows = plan.shape.max_rows();
    let out = desk.output("xs", DType::F16, [rows, 1, cols])?;
    let (x, exponents) = match source {
        DType::F16 => (desk.halves([tokens, 1, cols])?, None),
        _ => {
            let number = |i: usize| match (i / cols, i % cols) {
                (token, 0) if token < EDGES.len() => EDGES[token],
                (token, _) if token < EDGES.len() => desk.normal(),
                (token, _) => desk.normal() * SIZES[token % SIZES.len()],
            };
            let x = desk.numbers(tokens * cols, number);
            (desk.floats([tokens, 1, cols], &x)?, Some(desk.output("exponents", DType::I32, [1, 1, rows])?))
        }
    };
    desk.run(Gather { x, plan, out, exponents })
}

/// Every expert is the unit matrix, so that each product is the row itself.
fn multiply(desk: &Desk, sizes: [usize; 3], by_stok: bool) -> Made<()> {
    let ([tokens, _, experts], plan) = (sizes, plan(desk, sizes)?);
    let rows = if by_stok { tokens } else { plan.shape.max_rows() };
    let out = desk.output("gathered", DType::F32, [plan.shape.max_rows(), 1, COLUMNS])?;
    let x = desk.floats([rows, 1, COLUMNS], &desk.numbers(rows * COLUMNS, |_| desk.normal()))?;
    // Plain numbers would be multiplied as they are.
    let format = if desk.precision == Precision::F32 { Format::F32 } else { Format::Q8_0 };
    let w = desk.constant(format, unit_rows(format, COLUMNS).repeat(experts), experts, COLUMNS, COLUMNS)?;
    desk.run(Gemm {
        x,
        w,
        bias: None,
        rows: if by_stok { RowMap::Gather(plan) } else { RowMap::Segments(plan) },
        epilogue: Epilogue::Store,
        precision: desk.precision,
        out,
    })
}

//! Rows: decoded from tables of every format, and gathered by a plan.

use argon_gguf::Format;

use super::plan::{Ids, shape};
use super::{List, formats};
use crate::op::{Embed, Epilogue, Gemm, Plan, PlanBuffers, Precision, RowMap};
use crate::parity::desk::Made;
use crate::parity::operands::unit_rows;
use crate::parity::{Bound, Desk};
use crate::tensor::DType;

/// Columns of a gathered row.
const COLUMNS: usize = 160;

pub(super) fn cases(list: &mut List) {
    for format in formats() {
        list.add(format!("rows of a table, {format}"), Bound::Exact, move |desk| table(desk, format));
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
            let [tokens, top_k, experts] =
                [list.request.tokens.unwrap_or(61), list.request.top_k.unwrap_or(3), list.request.experts.unwrap_or(5)];
            list.push(format!("rows {map}"), bound, Some(precision), move |desk| {
                gather(desk, [tokens, top_k, experts], map == "by stok")
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

/// Every expert is the unit matrix, so that each product is the row itself.
fn gather(desk: &Desk, [tokens, top_k, experts]: [usize; 3], by_stok: bool) -> Made<()> {
    let shape = shape([tokens, top_k, experts, 8])?;
    let plan = PlanBuffers::new(desk.device(), shape)?;
    let ids = desk.ints([tokens, 1, top_k], &Ids::Bad.draw(desk, shape.entries(), experts))?;
    let weights = desk.units([tokens, 1, top_k])?;
    desk.run(Plan { ids, weights, plan: plan.clone() })?;
    let rows = if by_stok { tokens } else { shape.max_rows() };
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
        out: desk.output("gathered", DType::F32, [shape.max_rows(), 1, COLUMNS])?,
    })
}

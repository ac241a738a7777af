//! The plan and the weighted sum at its other end.

use argon_kernels::DType::{F32, I32, U32};
use argon_kernels::Op;
use argon_kernels::op::{Combine, Plan, PlanBuffers, Shared};
use argon_plan::Shape;

use crate::harness::{Arena, EXACT, Layout, parity_in, within};

/// Plans are dense by contract.
pub const DENSE: [Layout; 1] = [Layout::Dense];

/// Polluted memory for a plan.
pub fn buffers(a: &Arena, shape: Shape) -> PlanBuffers {
    PlanBuffers {
        shape,
        bcnt: a.output("bcnt", U32, [shape.blocks(), 1, shape.experts()]),
        boff: a.output("boff", U32, [shape.blocks(), 1, shape.experts()]),
        eoff: a.output("eoff", U32, [1, 1, shape.experts() + 1]),
        tiles: a.output("tiles", U32, [shape.max_tiles(), 1, 3]),
        stok: a.output("stok", I32, [1, 1, shape.max_rows()]),
        sw: a.output("sw", U32, [1, 1, shape.max_rows()]),
        pos: a.output("pos", I32, [1, 1, shape.entries()]),
        meta: a.output("meta", U32, [1, 1, argon_plan::meta::WORDS]),
    }
}

/// Ids with repeats, skipped entries and some outside the experts.
fn ids(a: &Arena, shape: Shape) -> Vec<i32> {
    (0..shape.entries()).map(|_| (a.word() % (shape.experts() as u64 + 3)) as i32 - 2).collect()
}

/// A plan's op, its memory, and the entries' weights.
pub fn plan(a: &Arena, shape: Shape) -> (Op, PlanBuffers, argon_kernels::Tensor) {
    let ids = ids(a, shape);
    let ids = a.ints("ids", [shape.tokens(), 1, shape.top_k()], &ids);
    let weights = a.floats("weights", [shape.tokens(), 1, shape.top_k()]);
    let plan = buffers(a, shape);
    (Plan { ids, weights: weights.clone(), plan: plan.clone() }.into(), plan, weights)
}

#[test]
fn plans() {
    for (tokens, top_k, experts, tile) in
        [(0, 2, 8, 4), (1, 1, 1, 1), (7, 1, 3, 16), (40, 10, 129, 16), (300, 4, 257, 8), (600, 10, 512, 32)]
            // One block, filled, then two; as many experts as wgpu's subgroups count at a time, and one more.
            .into_iter()
            .chain([(128, 8, 2048, 4), (129, 8, 512, 16), (128, 8, 2049, 4), (205, 5, 2049, 4)])
    {
        let shape = Shape::new(tokens, top_k, experts, tile).unwrap();
        parity_in(&DENSE, EXACT, |a, _| vec![plan(a, shape).0]);
    }
}

#[test]
fn combine() {
    for (tokens, top_k, cols) in [(0, 2, 8), (1, 1, 1), (9, 3, 15), (33, 10, 64), (5, 4, 2560)] {
        for shared in 0..3 {
            for accumulate in [false, true] {
                let shape = Shape::new(tokens, top_k, 16, 4).unwrap();
                // Up to eleven products of numbers up to 1.
                parity_in(&DENSE, within(2e-6), |a, _| {
                    let (op, plan, weights) = plan(a, shape);
                    let rows = a.floats("rows", [shape.max_rows(), 1, cols]);
                    let y = a.floats("shared", [tokens, 1, cols]);
                    let gate = (shared == 2).then(|| a.floats("gate", [tokens, 1, 1]));
                    let shared = (shared > 0).then_some(Shared { y, gate });
                    let out = match accumulate {
                        true => a.floats("out", [tokens, 1, cols]),
                        false => a.output("out", F32, [tokens, 1, cols]),
                    };
                    vec![op, Combine { rows, weights, plan, shared, accumulate, out }.into()]
                });
            }
        }
    }
}

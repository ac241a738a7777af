//! The plan and the weighted sum at its other end.

use argon_kernels::DType::F32;
use argon_kernels::Tensor;
use argon_kernels::op::{Combine, PlanBuffers, Shared};
use argon_kernels::parity::cases::plan::{self, Ids};
use argon_plan::Shape;

use super::harness::{Arena, DENSE, EXACT, Result, parity_in, within};

/// A plan of ids with repeats, skipped entries and some outside the experts; and the entries' weights.
pub fn plan(a: &Arena, shape: Shape) -> Result<(PlanBuffers, Tensor)> {
    plan::plan(a, shape, Ids::Bad, |_| a.unit())
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
        parity_in(&DENSE, EXACT, |a, _| plan(a, shape).map(drop));
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
                    let (plan, weights) = plan(a, shape)?;
                    let rows = a.units(F32, [shape.max_rows(), 1, cols])?;
                    let y = a.units(F32, [tokens, 1, cols])?;
                    let gate = (shared == 2).then(|| a.units(F32, [tokens, 1, 1])).transpose()?;
                    let shared = (shared > 0).then_some(Shared { y, gate });
                    let out = match accumulate {
                        true => a.in_out("out", [tokens, 1, cols], |_| a.unit())?,
                        false => a.output("out", F32, [tokens, 1, cols])?,
                    };
                    a.run(Combine { rows, weights, plan, shared, accumulate, out })
                });
            }
        }
    }
}

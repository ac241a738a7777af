//! The rows of a plan, laid out: bit by bit what the definition says.

use argon_kernels::DType::{F16, F32, I32};
use argon_kernels::Tensor;
use argon_kernels::op::{Copy, Gather};
use argon_kernels::parity::cases::gather::rows;
use argon_plan::Shape;

use super::harness::{Arena, DENSE, EXACT, is_refused, parity_in};
use super::plan::plan;

/// Numbers within the range of f16, below it, at its edge, and far beyond, side by side; the first at the edge itself.
fn number(a: &Arena, i: usize) -> f32 {
    const EDGES: [f32; 6] = [65519.0, 65520.0, -131_040.0, f32::MAX, 2.98e-8, -0.0];
    EDGES.get(i).copied().unwrap_or_else(|| a.unit() * [1.0, 1e-7, 65519.0, 1e6, 1e37][i / 3 % 5])
}

#[test]
fn gathers() {
    for (tokens, top_k, experts, tile, cols) in
        [(0, 2, 8, 4, 8), (1, 1, 1, 1, 1), (37, 3, 5, 8, 320), (64, 4, 33, 16, 37), (130, 10, 33, 8, 64)]
    {
        let shape = Shape::new(tokens, top_k, experts, tile).unwrap();
        for source in [F32, F16] {
            parity_in(&DENSE, EXACT, |a, _| {
                let (plan, _) = plan(a, shape)?;
                a.run(rows(a, plan, source, cols, |i| number(a, i))?)
            });
        }
    }
}

/// Within the range of f16, `gather` makes the rows that `gather_h` makes of the same numbers rounded before.
#[test]
fn both_sources_give_the_same_rows() {
    for (tokens, top_k, experts, tile, cols) in [(1, 1, 1, 1, 1), (37, 3, 5, 8, 320), (130, 10, 33, 8, 37)] {
        let shape = Shape::new(tokens, top_k, experts, tile).unwrap();
        parity_in(&DENSE, EXACT, |a, rounded_before| {
            let (plan, _) = plan(a, shape)?;
            let edges = [65519.0, 2.98e-8, 6.0e-8, -0.0];
            let x = a.input(F32, [tokens, 1, cols], |i| {
                *edges.get(i).unwrap_or(&(a.unit() * [1.0, 1e-7, 65519.0][i % 3]))
            })?;
            let halves = a.output("x, rounded", F16, [tokens, 1, cols])?;
            let out = a.output("out", F16, [shape.max_rows(), 1, cols])?;
            a.run(Copy { src: x.clone(), dst: halves.clone() })?;
            // Not among the outputs that are compared: only one of the two sources has them.
            let exponents = a.device().alloc(4 * shape.max_rows().max(1))?;
            let exponents = Tensor::dense(exponents, I32, 1, 1, shape.max_rows());
            a.run(match rounded_before {
                true => Gather { x: halves, plan, out, exponents: None },
                false => Gather { x, plan, out, exponents: Some(exponents) },
            })
        });
    }
}

/// From f32 there are exponents, from f16 there are none.
#[test]
fn sources_and_exponents_that_do_not_fit() {
    for (source, other) in [(F32, F16), (F16, F32)] {
        let shape = Shape::new(5, 2, 3, 4).unwrap();
        is_refused("exponents", |a| {
            let (plan, _) = plan(a, shape)?;
            let [gather, other] = [source, other].map(|source| rows(a, plan.clone(), source, 8, |i| number(a, i)));
            a.run(Gather { exponents: other?.exponents, ..gather? })
        });
    }
}

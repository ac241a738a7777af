//! The rows of a plan, laid out: bit by bit what the definition says.

use argon_kernels::DType::{self, F16, F32, I32};
use argon_kernels::Op;
use argon_kernels::op::Gather;
use argon_plan::Shape;

use crate::harness::{Arena, EXACT, outcomes, parity_in};
use crate::plan::{DENSE, plan};

/// Numbers within the range of f16, below it, at its edge, and far beyond; the first at the edge itself.
fn number(a: &Arena, i: usize) -> f32 {
    const EDGES: [f32; 6] = [65519.0, 65520.0, -131_040.0, f32::MAX, 2.98e-8, -0.0];
    EDGES.get(i).copied().unwrap_or_else(|| a.unit() * [1.0, 1e-7, 65519.0, 1e6, 1e37][i / 3 % 5])
}

fn gather(a: &Arena, shape: Shape, cols: usize, source: DType) -> Vec<Op> {
    let (planning, plan, _) = plan(a, shape);
    let x = a.floats_by("x", source, [shape.tokens(), 1, cols], |i| number(a, i));
    let out = a.output("out", F16, [shape.max_rows(), 1, cols]);
    let exponents = (source == F32).then(|| a.output("exponents", I32, [1, 1, shape.max_rows()]));
    vec![planning, Gather { x, plan, out, exponents }.into()]
}

#[test]
fn gathers() {
    for (tokens, top_k, experts, tile, cols) in
        [(0, 2, 8, 4, 8), (1, 1, 1, 1, 1), (37, 3, 5, 8, 320), (64, 4, 33, 16, 37), (130, 10, 33, 8, 64)]
    {
        let shape = Shape::new(tokens, top_k, experts, tile).unwrap();
        for source in [F32, F16] {
            parity_in(&DENSE, EXACT, |a, _| gather(a, shape, cols, source));
        }
    }
}

/// From f32 there are exponents, from f16 there are none.
#[test]
fn sources_and_exponents_that_do_not_fit() {
    for (source, other) in [(F32, F16), (F16, F32)] {
        let shape = Shape::new(5, 2, 3, 4).unwrap();
        let refused = outcomes(|a| {
            let ops = [gather(a, shape, 8, source), gather(a, shape, 8, other)].map(|ops| ops.into_iter().nth(1));
            let [Some(Op::Gather(gather)), Some(Op::Gather(other))] = ops else { unreachable!("both gather") };
            Gather { exponents: other.exponents, ..gather }.into()
        });
        for outcome in refused {
            assert!(matches!(outcome, Err(argon_kernels::DeviceError::Shape { .. })), "{outcome:?}");
        }
    }
}

//! Hyper-connections and the n-gram gate.

use argon_kernels::DType::F32;
use argon_kernels::op::PleGate;
use argon_kernels::parity::cases::hyper;

use super::harness::{parity, within};

const SHAPES: [[usize; 3]; 6] = [[0, 4, 8], [1, 1, 1], [3, 4, 15], [3, 2, 16], [5, 4, 17], [9, 4, 2560]];

#[test]
fn hyper_write() {
    for shape in SHAPES {
        // A sigmoid, a product and a sum of numbers up to 2.
        parity(within(5e-7), |a| hyper::hyper_write(a, shape));
    }
}

#[test]
fn ple_gate() {
    for shape in SHAPES {
        // The root makes an error e of a score near 0 as large as e / (2 sqrt(score)); the sigmoid divides by four.
        parity(within(2e-5), |a| hyper::ple_gate(a, shape));
    }
}

/// A score of 0 has no sign: the gate is a half. Just beside it the root is of 1e-6.
#[test]
fn ple_gate_near_zero() {
    let scores = [0.0, -0.0, 1e-12, -1e-12, 1e-7, -1e-7];
    let shape = [scores.len(), 1, 1];
    parity(within(3e-7), |a| {
        let key = a.input(F32, shape, |i| scores[i])?;
        let (query, value) = (a.input(F32, shape, |_| 1.0)?, a.input(F32, shape, |_| 1.0)?);
        a.run(PleGate { key, query, value, out: a.output("out", F32, shape)? })
    });
}

//! Hyper-connections and the n-gram gate.

use argon_kernels::DType::F32;
use argon_kernels::op::{HyperWrite, PleGate};

use crate::harness::{parity, within};

const SHAPES: [[usize; 3]; 6] = [[0, 4, 8], [1, 1, 1], [3, 4, 15], [3, 2, 16], [5, 4, 17], [9, 4, 2560]];

#[test]
fn hyper_write() {
    for [tokens, streams, cols] in SHAPES {
        // A sigmoid, a product and a sum of numbers up to 2.
        parity(within(5e-7), |a| {
            let inject = a.floats_by("inject", F32, [tokens, 1, streams], |_| 20.0 * a.unit());
            let (y, x) = (a.floats("y", [tokens, 1, cols]), a.floats("x", [tokens, streams, cols]));
            vec![HyperWrite { y, inject, x }.into()]
        });
    }
}

#[test]
fn ple_gate() {
    for [tokens, streams, cols] in SHAPES {
        // The root makes an error e of a score near 0 as large as e / (2 sqrt(score)); the sigmoid divides by four.
        parity(within(2e-5), |a| {
            let (key, query) = (a.floats("key", [tokens, streams, cols]), a.floats("query", [tokens, streams, cols]));
            let value = a.floats("value", [tokens, 1, cols]);
            vec![PleGate { key, query, value, out: a.output("out", F32, [tokens, streams, cols]) }.into()]
        });
    }
}

/// A score of 0 has no sign: the gate is a half. Just beside it the root is of 1e-6.
#[test]
fn ple_gate_near_zero() {
    let scores = [0.0, -0.0, 1e-12, -1e-12, 1e-7, -1e-7];
    parity(within(3e-7), |a| {
        let key = a.floats_by("key", F32, [scores.len(), 1, 1], |i| scores[i]);
        let ones = |name, shape| a.floats_by(name, F32, shape, |_| 1.0);
        let (query, value) = (ones("query", [scores.len(), 1, 1]), ones("value", [scores.len(), 1, 1]));
        vec![PleGate { key, query, value, out: a.output("out", F32, [scores.len(), 1, 1]) }.into()]
    });
}

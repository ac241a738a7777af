//! RMS norms.

use argon_kernels::DType::F32;
use argon_kernels::op::{Activation, GatedNorm, RmsNorm};

use crate::harness::{Tolerance, parity};

/// A handful of roundings after a sum whose own error is averaged away: 4 of 2^-24, and a gate of 2 ulp.
const FEW_ROUNDINGS: Tolerance = Tolerance { abs: 1e-9, rel: 5e-7 };

/// Rows, groups, columns; 16 columns are one step of the sum.
const SHAPES: [[usize; 3]; 8] =
    [[0, 1, 8], [1, 1, 1], [2, 3, 15], [2, 3, 16], [2, 3, 17], [5, 4, 128], [3, 1, 2560], [70, 2, 256]];

#[test]
fn rms_norm() {
    for [rows, groups, cols] in SHAPES {
        for weights in [1, groups] {
            parity(FEW_ROUNDINGS, |a| {
                let (x, weight) = (a.floats("x", [rows, groups, cols]), a.floats("weight", [1, weights, cols]));
                vec![RmsNorm { x, weight, eps: 1e-6, out: a.output("out", F32, [rows, groups, cols]) }.into()]
            });
        }
    }
}

#[test]
fn rms_norm_in_place() {
    parity(FEW_ROUNDINGS, |a| {
        let (x, weight) = (a.floats("x", [5, 3, 40]), a.floats("weight", [1, 3, 40]));
        vec![RmsNorm { x: x.clone(), weight, eps: 1e-6, out: x }.into()]
    });
}

/// The epsilon decides where the row is nearly nothing.
#[test]
fn rms_norm_of_little() {
    for scale in [0.0, 1e-4, 1e-20] {
        parity(FEW_ROUNDINGS, |a| {
            let x = a.floats_by("x", F32, [3, 1, 64], |_| a.unit() * scale);
            vec![
                RmsNorm { x, weight: a.floats("weight", [1, 1, 64]), eps: 1e-6, out: a.output("out", F32, [3, 1, 64]) }
                    .into(),
            ]
        });
    }
}

#[test]
fn gated_norm() {
    for activation in [Activation::Sigmoid, Activation::Silu] {
        for [rows, groups, cols] in SHAPES {
            for in_place in [false, true] {
                parity(FEW_ROUNDINGS, |a| {
                    let x = a.floats("x", [rows, groups, cols]);
                    let gate = a.floats_by("gate", F32, [rows, groups, cols], |_| 10.0 * a.unit());
                    let out = if in_place { x.clone() } else { a.output("out", F32, [rows, groups, cols]) };
                    let weight = a.floats("weight", [1, 1, cols]);
                    vec![GatedNorm { x, gate, weight, eps: 1e-6, activation, out }.into()]
                });
            }
        }
    }
}

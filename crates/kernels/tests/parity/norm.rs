//! RMS norms.

use argon_kernels::DType::F32;
use argon_kernels::op::{Activation, RmsNorm};
use argon_kernels::parity::cases::elementwise;

use super::harness::{Tolerance, parity};

/// A handful of roundings after a sum whose own error is averaged away: 4 of 2^-24, and a gate of 2 ulp.
const FEW_ROUNDINGS: Tolerance = Tolerance { abs: 1e-9, rel: 5e-7 };

/// Rows, groups, columns; 16 columns are one step of the sum.
const SHAPES: [[usize; 3]; 8] =
    [[0, 1, 8], [1, 1, 1], [2, 3, 15], [2, 3, 16], [2, 3, 17], [5, 4, 128], [3, 1, 2560], [70, 2, 256]];

#[test]
fn rms_norm() {
    for shape in SHAPES {
        for weights in [1, shape[1]] {
            parity(FEW_ROUNDINGS, |a| elementwise::rms_norm(a, shape, weights));
        }
    }
}

#[test]
fn rms_norm_in_place() {
    parity(FEW_ROUNDINGS, |a| {
        let (x, weight) = (a.in_out("x", [5, 3, 40], |_| a.unit())?, a.units(F32, [1, 3, 40])?);
        a.run(RmsNorm { x: x.clone(), weight, eps: 1e-6, out: x })
    });
}

/// The epsilon decides where the row is nearly nothing.
#[test]
fn rms_norm_of_little() {
    for scale in [0.0, 1e-4, 1e-20] {
        parity(FEW_ROUNDINGS, |a| {
            let (x, weight) = (a.input(F32, [3, 1, 64], |_| a.unit() * scale)?, a.units(F32, [1, 1, 64])?);
            a.run(RmsNorm { x, weight, eps: 1e-6, out: a.output("out", F32, [3, 1, 64])? })
        });
    }
}

#[test]
fn gated_norm() {
    for activation in [Activation::Sigmoid, Activation::Silu] {
        for shape in SHAPES {
            for in_place in [false, true] {
                parity(FEW_ROUNDINGS, |a| elementwise::gated_norm(a, shape, activation, in_place));
            }
        }
    }
}

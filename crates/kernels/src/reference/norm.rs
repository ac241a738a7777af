//! Norms by the root of the mean of squares.

use super::Array;
use super::gemm::{sigmoid, silu};
use crate::op::Activation;

/// `x / sqrt(mean(x^2) + eps) * weight`, per group.
pub fn rms_norm(x: &Array, weight: &Array, eps: f64) -> Array {
    let [rows, groups, cols] = x.shape;
    let root = Array::from_fn([rows, groups, 1], |r, g, _| {
        let squares: f64 = x.at(r, g).iter().map(|x| x * x).sum();
        (squares / cols as f64 + eps).sqrt()
    });
    Array::from_fn(x.shape, |r, g, c| {
        let shared = weight.shape[1] == 1;
        x[[r, g, c]] / root[[r, g, 0]] * weight[[0, if shared { 0 } else { g }, c]]
    })
}

/// `rms_norm(x, weight, eps) * activation(gate)`.
pub fn gated_norm(x: &Array, gate: &Array, weight: &Array, eps: f64, activation: Activation) -> Array {
    let normed = rms_norm(x, weight, eps);
    Array::from_fn(x.shape, |r, g, c| {
        let z = gate[[r, g, c]];
        let factor = match activation {
            Activation::Sigmoid => sigmoid(z),
            Activation::Silu => silu(z),
        };
        normed[[r, g, c]] * factor
    })
}

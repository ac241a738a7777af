//! Rotary positions.

use super::Array;
use crate::op::RopePairs;

/// `x` with pair i of every group of row r turned by the angle `(pos0 + r * step) * freqs[i]`, the product in float32: it
/// is part of the definition, as its rounding at large positions exceeds any tolerance.
pub fn rope(x: &Array, freqs: &[f32], pairs: RopePairs, pos0: usize, step: usize) -> Array {
    let mut out = x.clone();
    let [rows, groups, _] = x.shape;
    for r in 0..rows {
        for g in 0..groups {
            for (i, freq) in freqs.iter().enumerate() {
                let (a, b) = match pairs {
                    RopePairs::Halves => (i, i + freqs.len()),
                    RopePairs::Neighbours => (2 * i, 2 * i + 1),
                };
                let angle = f64::from((pos0 + r * step) as f32 * freq);
                let (xa, xb) = (x[[r, g, a]], x[[r, g, b]]);
                out[[r, g, a]] = xa * angle.cos() - xb * angle.sin();
                out[[r, g, b]] = xb * angle.cos() + xa * angle.sin();
            }
        }
    }
    out
}

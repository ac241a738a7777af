//! The weighted sum of a token's expert rows.

use super::Array;
use super::gemm::sigmoid;

/// `sum over k of weights[t, k] * rows[pos[t*K + k]] + sigmoid(gate[t]) * shared[t]`.
pub fn combine(rows: &Array, weights: &Array, pos: &[i32], shared: Option<(&Array, Option<&Array>)>) -> Array {
    let ([tokens, _, top_k], width) = (weights.shape, rows.shape[2]);
    Array::from_fn([tokens, 1, width], |t, _, d| {
        let mut y = 0.0;
        for k in 0..top_k {
            let row = pos[t * top_k + k];
            if row >= 0 {
                y += weights[[t, 0, k]] * rows[[row as usize, 0, d]];
            }
        }
        if let Some((shared, gate)) = shared {
            y += shared[[t, 0, d]] * gate.map_or(1.0, |gate| sigmoid(gate[[t, 0, 0]]));
        }
        y
    })
}

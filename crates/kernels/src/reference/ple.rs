//! The gate of the hashed n-gram embeddings.

use super::Array;
use super::gemm::sigmoid;

/// `sigmoid(r(key · query / sqrt(D))) * value`, `r(g) = sign(g) sqrt(max(|g|, 1e-6))`, `sign(0) = 0`.
pub fn ple_gate(key: &Array, query: &Array, value: &Array) -> Array {
    let [tokens, streams, width] = key.shape;
    let gate = Array::from_fn([tokens, streams, 1], |t, s, _| {
        let dot: f64 = key.at(t, s).iter().zip(query.at(t, s)).map(|(k, q)| k * q).sum();
        let g = dot / (width as f64).sqrt();
        let sign = if g == 0.0 { 0.0 } else { g.signum() };
        sigmoid(sign * g.abs().max(1e-6).sqrt())
    });
    Array::from_fn(key.shape, |t, s, d| gate[[t, s, 0]] * value[[t, 0, d]])
}

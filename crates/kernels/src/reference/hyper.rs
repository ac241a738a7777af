//! The write into the residual streams.

use super::Array;
use super::gemm::sigmoid;

/// `x[t, s] + y[t] * 2 sigmoid(inject[t, s] / S)`.
pub fn hyper_write(x: &Array, y: &Array, inject: &Array) -> Array {
    let streams = x.shape[1] as f64;
    Array::from_fn(x.shape, |t, s, d| x[[t, s, d]] + y[[t, 0, d]] * 2.0 * sigmoid(inject[[t, 0, s]] / streams))
}

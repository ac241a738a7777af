//! The causal depthwise convolution.

use super::Array;
use super::gemm::silu;

/// Output, to be stored or added, and the state afterwards.
pub fn conv(x: &Array, weight: &Array, dilation: usize, state: &Array) -> (Array, Array) {
    let ([history, _, cols], taps) = (state.shape, weight.shape[2]);
    // The state's last row is token -1.
    let input = |row: usize, c: usize| if row < history { state[[row, 0, c]] } else { x[[row - history, 0, c]] };
    let out = Array::from_fn(x.shape, |t, _, c| {
        silu((0..taps).map(|j| weight[[c, 0, j]] * input(history + t - (taps - 1 - j) * dilation, c)).sum())
    });
    (out, Array::from_fn([history, 1, cols], |r, _, c| input(x.shape[0] + r, c)))
}

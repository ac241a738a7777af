//! The gated delta rule.

use super::Array;
use super::gemm::sigmoid;
use crate::op::HeadMap;

/// The operands of [`delta_net`], as [`DeltaNet`](crate::op::DeltaNet) names them.
#[allow(missing_docs)] // each is named there
pub struct DeltaNetInput<'a> {
    pub q: &'a Array,
    pub k: &'a Array,
    pub v: &'a Array,
    pub alpha: &'a Array,
    pub beta: &'a Array,
    pub a: &'a Array,
    pub dt_bias: &'a Array,
    pub heads: HeadMap,
    pub eps: f64,
}

/// Output, and the state afterwards.
pub fn delta_net(input: &DeltaNetInput, state: &Array) -> (Array, Array) {
    let ([tokens, heads, width], [_, key_heads, depth]) = (input.v.shape, input.k.shape);
    let (mut out, mut m) = (Array::zeros(input.v.shape), state.clone());
    for t in 0..tokens {
        for h in 0..heads {
            let kh = match input.heads {
                HeadMap::Tiled => h % key_heads,
                HeadMap::Grouped => h / (heads / key_heads),
            };
            let unit = |x: &[f64]| {
                let norm = (x.iter().map(|x| x * x).sum::<f64>() + input.eps).sqrt();
                x.iter().map(|x| x / norm).collect::<Vec<f64>>()
            };
            let (q, k) = (unit(input.q.at(t, kh)), unit(input.k.at(t, kh)));
            let g = (input.a[[0, 0, h]] * softplus(input.alpha[[t, 0, h]] + input.dt_bias[[0, 0, h]])).exp();
            let b = sigmoid(input.beta[[t, 0, h]]);
            for i in 0..depth {
                for c in 0..width {
                    m[[h, i, c]] *= g;
                }
            }
            for c in 0..width {
                let known: f64 = (0..depth).map(|i| m[[h, i, c]] * k[i]).sum();
                let d = b * (input.v[[t, h, c]] - known);
                for i in 0..depth {
                    m[[h, i, c]] += k[i] * d;
                }
                out[[t, h, c]] = (0..depth).map(|i| m[[h, i, c]] * q[i] / (depth as f64).sqrt()).sum();
            }
        }
    }
    (out, m)
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    if x > 700.0 { x } else { x.exp().ln_1p() }
}

//! Causal softmax attention.

use super::Array;
use super::gemm::sigmoid;

/// The keys that a query at `position` may see: all up to its own, or those of its selected blocks and of the block that is
/// not complete yet.
pub fn visible(position: usize, selected: Option<(&[i32], usize)>) -> Vec<usize> {
    match selected {
        None => (0..=position).collect(),
        Some((blocks, ratio)) => (0..=position)
            .filter(|j| *j >= (position + 1) / ratio * ratio || blocks.contains(&((j / ratio) as i32)))
            .collect(),
    }
}

/// `softmax_j(scale * q · k_j) v_j`, then times `sigmoid(gate)`. `select` has the blocks `[T, 1, n]` and their length.
pub fn attention(
    q: &Array,
    k: &Array,
    v: &Array,
    gate: Option<&Array>,
    select: Option<(&Array<i32>, usize)>,
    pos0: usize,
    scale: f64,
) -> Array {
    let ([tokens, heads, _], [_, kv_heads, width]) = (q.shape, v.shape);
    let mut out = Array::zeros([tokens, heads, width]);
    for t in 0..tokens {
        let keys = visible(pos0 + t, select.map(|(blocks, ratio)| (blocks.at(t, 0), ratio)));
        for h in 0..heads {
            let kv = h / (heads / kv_heads);
            let dot = |j: usize| q.at(t, h).iter().zip(k.at(j, kv)).map(|(q, k)| q * k).sum::<f64>();
            let scores: Vec<f64> = keys.iter().map(|&j| scale * dot(j)).collect();
            let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let exps: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
            let sum: f64 = exps.iter().sum();
            for c in 0..width {
                let mixed: f64 = keys.iter().zip(&exps).map(|(&j, exp)| exp / sum * v[[j, kv, c]]).sum();
                out[[t, h, c]] = mixed * gate.map_or(1.0, |gate| sigmoid(gate[[t, h, c]]));
            }
        }
    }
    out
}

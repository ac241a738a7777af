//! The choice of experts.

use super::Array;
use super::gemm::sigmoid;
use crate::op::{Gating, RouteConfig};

/// Ids and weights `[T, 1, K]`; the first token with a logit that is not a number as the error.
pub fn route(logits: &Array, bias: Option<&Array>, config: &RouteConfig) -> Result<(Array<i32>, Array), usize> {
    let shape = [logits.shape[0], 1, config.top_k];
    let (mut ids, mut weights) = (Array::zeros(shape), Array::zeros(shape));
    for t in 0..logits.shape[0] {
        let logits = logits.at(t, 0);
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err(t);
        }
        let chosen = choose(logits, bias.map(|bias| bias.at(0, 0)), config);
        let values = weigh(logits, &chosen, config);
        let total: f64 = values.iter().sum();
        let mut held = 0.0;
        for (k, (&expert, &weight)) in chosen.iter().zip(&values).enumerate() {
            // The tail begins where those before hold the share; the first is never in it.
            let tail = k > 0 && config.tail_share.is_some_and(|share| held >= f64::from(share) * total);
            (ids[[t, 0, k]], weights[[t, 0, k]]) = if tail { (-1, 0.0) } else { (expert as i32, weight) };
            held += weight;
        }
    }
    Ok((ids, weights))
}

/// The K experts of the highest keys, best first.
fn choose(logits: &[f64], bias: Option<&[f64]>, config: &RouteConfig) -> Vec<usize> {
    let keys: Vec<f64> = match bias {
        None => logits.to_vec(),
        Some(bias) => scores(logits, config.gating).iter().zip(bias).map(|(score, bias)| score + bias).collect(),
    };
    let mut candidates: Vec<usize> = (0..keys.len()).collect();
    if let Some(limit) = config.groups {
        let members = keys.len() / limit.groups;
        let group_scores: Vec<f64> = keys
            .chunks(members)
            .map(|keys| {
                let mut keys = keys.to_vec();
                keys.sort_by(|a, b| b.total_cmp(a));
                keys.iter().take(2).sum()
            })
            .collect();
        let used = best_first((0..limit.groups).collect(), &group_scores);
        candidates.retain(|expert| used[..limit.used].contains(&(expert / members)));
    }
    let mut chosen = best_first(candidates, &keys);
    chosen.truncate(config.top_k);
    chosen
}

/// Sorted by falling key; a stable sort leaves ties in the order of the indices. A key that is no number (infinity and its
/// opposite as bias) comes last.
fn best_first(mut indices: Vec<usize>, keys: &[f64]) -> Vec<usize> {
    let place = |i: usize| if keys[i].is_nan() { (0, 0.0) } else { (1, keys[i]) };
    indices.sort_by(|&a, &b| place(b).partial_cmp(&place(a)).expect("numbers"));
    indices
}

/// The score of each expert.
fn scores(logits: &[f64], gating: Gating) -> Vec<f64> {
    match gating {
        Gating::Sigmoid => logits.iter().map(|&logit| sigmoid(logit)).collect(),
        Gating::Softmax => softmax(logits),
    }
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let highest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // An infinite logit minus itself is 0 here.
    let exps: Vec<f64> = logits.iter().map(|&l| if l == highest { 1.0 } else { (l - highest).exp() }).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|exp| exp / sum).collect()
}

/// The weights of the chosen experts.
fn weigh(logits: &[f64], chosen: &[usize], config: &RouteConfig) -> Vec<f64> {
    let of_chosen = |all: &[f64]| chosen.iter().map(|&expert| all[expert]).collect::<Vec<f64>>();
    let weights = match (config.gating, config.renormalise) {
        (gating, false) => of_chosen(&scores(logits, gating)),
        // Scores divided by their sum: a softmax over the logarithms of the scores, so that nothing underflows.
        (Gating::Softmax, true) => softmax(&of_chosen(logits)),
        (Gating::Sigmoid, true) => softmax(&of_chosen(logits).iter().map(|&l| log_sigmoid(l)).collect::<Vec<f64>>()),
    };
    weights.iter().map(|weight| weight * f64::from(config.scale)).collect()
}

/// `ln sigmoid(x)`.
fn log_sigmoid(x: f64) -> f64 {
    x.min(0.0) - (-x.abs()).exp().ln_1p()
}

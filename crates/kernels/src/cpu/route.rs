//! The choice of experts.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::CpuDevice;
use super::math::{exp, sum};
use super::rank::{index, keep_best, rank};
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::{Gating, GroupLimit, Route, RouteConfig};

/// Tokens in one task.
const TOKENS: usize = 16;

pub(super) fn route(device: &CpuDevice, o: &Route) -> Result<(), DeviceError> {
    let logits = View::<f32>::of(device, &o.logits)?;
    let bias = o.bias.as_ref().map(|bias| View::<f32>::of(device, bias)).transpose()?;
    let bias = bias.map(|bias| bias.at(0, 0));
    let (ids, weights) = (ViewMut::<i32>::of(device, &o.ids)?, ViewMut::<f32>::of(device, &o.weights)?);
    let tile = [TOKENS, 1, o.config.top_k];
    let not_a_number = AtomicUsize::new(usize::MAX);
    ids.tiles(tile).for_each_with(weights.tiles(tile), &device.team, |mut ids, mut weights| {
        let mut chooser = Chooser::new(&o.config, bias, logits.cols());
        for (i, token) in ids.rows.clone().enumerate() {
            if !chooser.choose(logits.row(token), ids.view.at_mut(i, 0), weights.view.at_mut(i, 0)) {
                not_a_number.fetch_min(token, Ordering::Relaxed);
                break;
            }
        }
    });
    match not_a_number.into_inner() {
        usize::MAX => Ok(()),
        token => Err(DeviceError::NanLogit { layer: o.layer, token }),
    }
}

/// The rules of a model, and scratch memory for one token.
struct Chooser<'a> {
    config: &'a RouteConfig,
    bias: Option<&'a [f32]>,
    /// `[E]`: the score of each, where one is needed.
    scores: Vec<f32>,
    /// `[E]`: what experts are selected by.
    keys: Vec<f32>,
    /// Experts that take part; then the best of them.
    ranks: Vec<u64>,
    /// `[K]`: the chosen ones, best first.
    chosen: Vec<usize>,
}

impl<'a> Chooser<'a> {
    fn new(config: &'a RouteConfig, bias: Option<&'a [f32]>, experts: usize) -> Self {
        let (scores, keys) = (vec![0.0; experts], vec![0.0; experts]);
        Self { config, bias, scores, keys, ranks: Vec::with_capacity(experts), chosen: Vec::new() }
    }

    /// Writes the `ids` and `weights` of a token; false if one of its logits is not a number.
    fn choose(&mut self, logits: &[f32], ids: &mut [i32], weights: &mut [f32]) -> bool {
        if logits.iter().any(|logit| logit.is_nan()) {
            return false;
        }
        if self.bias.is_some() || !self.config.renormalise {
            scores(self.config.gating, logits, &mut self.scores);
        }
        self.set_keys(logits);
        self.set_chosen();
        for ((id, weight), &expert) in ids.iter_mut().zip(&mut *weights).zip(&self.chosen) {
            (*id, *weight) = (expert as i32, self.scores[expert]);
        }
        if self.config.renormalise {
            shares(self.config.gating, logits, &self.chosen, weights);
        }
        weights.iter_mut().for_each(|weight| *weight *= self.config.scale);
        if let Some(share) = self.config.tail_share {
            drop_tail(share, ids, weights);
        }
        true
    }

    fn set_keys(&mut self, logits: &[f32]) {
        match self.bias {
            None => self.keys.copy_from_slice(logits),
            Some(bias) => {
                for ((key, score), bias) in self.keys.iter_mut().zip(&self.scores).zip(bias) {
                    *key = score + bias;
                }
            }
        }
    }

    fn set_chosen(&mut self) {
        let Self { config, keys, ranks, chosen, .. } = self;
        ranks.clear();
        match config.groups {
            None => ranks.extend(keys.iter().enumerate().map(|(expert, &key)| rank(key, expert))),
            Some(GroupLimit { groups, used }) => {
                let members = keys.len() / groups;
                let sums = keys.chunks_exact(members).map(sum_of_two_best).enumerate();
                let mut best: Vec<u64> = sums.map(|(group, sum)| rank(sum, group)).collect();
                keep_best(&mut best, used);
                for group in best.into_iter().map(index) {
                    let experts = group * members..(group + 1) * members;
                    ranks.extend(experts.map(|expert| rank(keys[expert], expert)));
                }
            }
        }
        keep_best(ranks, config.top_k);
        ranks.sort_unstable_by(|a, b| b.cmp(a));
        chosen.clear();
        chosen.extend(ranks.iter().copied().map(index));
    }
}

/// Of a group's keys.
fn sum_of_two_best(keys: &[f32]) -> f32 {
    let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &key in keys {
        if key > first {
            (first, second) = (key, first);
        } else if key > second {
            second = key;
        }
    }
    if keys.len() > 1 { first + second } else { first }
}

/// `e^(logit - shift)`, where an infinite logit equals an infinite shift.
fn exp_from(logit: f32, shift: f32) -> f32 {
    if logit == shift { 1.0 } else { exp(logit - shift) }
}

fn highest(logits: impl Iterator<Item = f32>) -> f32 {
    logits.fold(f32::NEG_INFINITY, f32::max)
}

/// The score of each expert.
fn scores(gating: Gating, logits: &[f32], scores: &mut [f32]) {
    let shift = match gating {
        Gating::Softmax => highest(logits.iter().copied()),
        Gating::Sigmoid => 0.0,
    };
    for (score, &logit) in scores.iter_mut().zip(logits) {
        *score = score_of(gating, logit, shift);
    }
    if gating == Gating::Softmax {
        let sum = sum(scores);
        scores.iter_mut().for_each(|score| *score /= sum);
    }
}

/// The score times `e^-shift`, before a softmax divides by its sum. A sigmoid's shift is not above 0.
fn score_of(gating: Gating, logit: f32, shift: f32) -> f32 {
    match gating {
        Gating::Softmax => exp_from(logit, shift),
        Gating::Sigmoid if logit > 0.0 => 1.0 / (1.0 + exp(-logit)),
        Gating::Sigmoid => exp_from(logit, shift) / (1.0 + exp(logit)),
    }
}

/// The scores of the chosen experts divided by their sum. All are scaled first, so that the largest does not underflow.
fn shares(gating: Gating, logits: &[f32], chosen: &[usize], shares: &mut [f32]) {
    let best = highest(chosen.iter().map(|&expert| logits[expert]));
    let shift = match gating {
        Gating::Softmax => best,
        Gating::Sigmoid => best.min(0.0), // then none of the logits is above 0
    };
    for (share, &expert) in shares.iter_mut().zip(chosen) {
        *share = score_of(gating, logits[expert], shift);
    }
    let sum = sum(shares);
    shares.iter_mut().for_each(|share| *share /= sum);
}

/// Drops the entries behind those that hold `share` of the weight: id -1, weight 0.
fn drop_tail(share: f32, ids: &mut [i32], weights: &mut [f32]) {
    let enough = share * weights.iter().sum::<f32>();
    let mut held = 0.0;
    for (id, weight) in ids.iter_mut().zip(weights) {
        if held >= enough && held > 0.0 {
            (*id, *weight) = (-1, 0.0);
        }
        held += *weight;
    }
}

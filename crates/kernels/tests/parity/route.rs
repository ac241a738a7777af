//! The choice of experts.

use argon_kernels::op::{Gating, GroupLimit, RouteConfig};
use argon_kernels::parity::cases::route::{quarters, route};
use argon_kernels::parity::weights::Rng;

use super::harness::{SEED, Tolerance, parity};

/// What the roundings of a weight come to at most, in the relative 2^-24 that one of them is off by where it is correct, as sums,
/// differences and products are in WGSL too:
///
/// * a score's exponent, a difference of logits below 16: 8, as the result is off by as much as the exponent;
/// * its exponential, within 2 ulp: 4. (WGSL's own is only promised within 3 + 2 |x| ulp, and not used.) Of a sigmoid also the
///   divisor's, and its sum with 1: 5, and a division, for which WGSL promises 2.5 ulp: 5;
/// * the sum of scores: as much again, and 1 for each addition in a row: of the chosen experts, one after the other, or of all,
///   by at least 16 lanes;
/// * the division by it: 5; the scale: 1.
fn roundings(config: &RouteConfig, experts: usize) -> Tolerance {
    let score = match config.gating {
        Gating::Softmax => 8 + 4,
        Gating::Sigmoid => 8 + 4 + 5 + 5,
    };
    let additions = if config.renormalise { config.top_k } else { experts.div_ceil(16) + 4 };
    Tolerance { abs: 1e-37, rel: (2 * score + additions + 5 + 1) as f64 * 2f64.powi(-24) }
}

/// The choice on every device, of experts that are in one order however they are rounded.
fn check(config: RouteConfig, logits: &[Vec<f32>], bias: Option<&[f32]>) {
    let experts = experts(logits);
    parity(roundings(&config, experts), |a| route(a, config, &logits.concat(), experts, bias));
}

fn experts(logits: &[Vec<f32>]) -> usize {
    logits.first().map_or(8, Vec::len)
}

const CONFIG: RouteConfig = RouteConfig::new(Gating::Softmax, 2);

fn random(tokens: usize, experts: usize, scale: f32) -> Vec<Vec<f32>> {
    let mut rng = Rng::new(SEED);
    (0..tokens).map(|_| (0..experts).map(|_| scale * (2.0 * rng.uniform() - 1.0)).collect()).collect()
}

/// The choice by whole logits and a bias.
fn check_biased(config: RouteConfig, mut logits: Vec<Vec<f32>>) {
    logits.iter_mut().flatten().for_each(|logit| *logit = logit.round());
    check(config, &logits, Some(&quarters(experts(&logits))));
}

fn configs() -> Vec<RouteConfig> {
    let mut configs = Vec::new();
    for gating in [Gating::Softmax, Gating::Sigmoid] {
        for renormalise in [false, true] {
            for scale in [1.0, 2.5] {
                configs.push(RouteConfig { gating, renormalise, scale, ..CONFIG });
            }
        }
    }
    configs
}

#[test]
fn every_rule() {
    for config in configs() {
        for (tokens, experts, top_k) in
            [(0, 8, 2), (1, 1, 1), (5, 2, 2), (17, 8, 3), (33, 129, 10), (20, 512, 10), (3, 257, 257)]
        {
            let config = RouteConfig { top_k, ..config };
            let logits = random(tokens, experts, 4.0);
            check(config, &logits, None);
            check_biased(config, logits);
        }
    }
}

#[test]
fn ties_go_to_the_lower_index() {
    let logits =
        vec![vec![1.0; 40], vec![0.0, -0.0, 0.0, -0.0, 5.0, -1.0, 5.0, 0.0], [vec![2.0; 5], vec![3.0; 35]].concat()];
    for token in logits {
        check(RouteConfig { top_k: 4, ..CONFIG }, std::slice::from_ref(&token), None);
    }
}

#[test]
fn groups() {
    for (experts, groups, used, top_k) in [(8, 4, 2, 3), (8, 8, 3, 3), (64, 8, 4, 6), (6, 1, 1, 2), (256, 8, 4, 8)] {
        for config in configs() {
            let config = RouteConfig { groups: Some(GroupLimit { groups, used }), top_k, ..config };
            let logits = random(9, experts, 3.0);
            check(config, &logits, None);
            check_biased(config, logits);
        }
    }
}

/// Weights stay finite where scores underflow or overflow.
#[test]
fn extreme_logits() {
    let inf = f32::INFINITY;
    let logits = [
        vec![-200.0, -300.0, -201.0, -1e30],
        vec![500.0, 400.0, -500.0, 499.0],
        vec![-inf, -inf, -inf, -inf],
        vec![inf, inf, 0.0, -inf],
        vec![3e38, -3e38, 1.0, 3e38],
        // The best expert is in a group that loses: the weights of the others underflow before they are divided.
        vec![200.0, -200.0, 1.0, 0.5],
    ];
    for config in configs() {
        for token in &logits {
            check(config, std::slice::from_ref(token), None);
            let config = RouteConfig { groups: Some(GroupLimit { groups: 2, used: 1 }), ..config };
            check(config, std::slice::from_ref(token), None);
        }
    }
}

#[test]
fn tail() {
    for share in [0.0, 0.3, 0.9, 1.0] {
        for config in configs() {
            let config = RouteConfig { tail_share: Some(share), top_k: 6, ..config };
            // From one expert that holds all to six that hold the same.
            let logits: Vec<Vec<f32>> =
                (0..6).map(|t| (0..8).map(|e| -(e as f32) * 0.37 * t as f32).collect()).collect();
            check(config, &logits[1..], None);
        }
    }
}

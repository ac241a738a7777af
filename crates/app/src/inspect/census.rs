//! Counting what the tensors of a file hold, from their descriptions alone.

use std::collections::BTreeMap;

use argon_gguf::{Format, Gguf, TensorInfo};
use serde::Serialize;

/// Weights and bytes, in all and by format.
#[derive(Debug, PartialEq, Serialize)]
pub struct Census {
    /// Number of tensors.
    pub tensors: usize,
    /// Weights of all tensors.
    pub parameters: u64,
    /// Weights that work on one token: of the experts only those that are used. `None` where the file does not say how
    /// many are.
    pub active_parameters: Option<u64>,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Bits that a weight takes on average.
    pub bits_per_weight: f64,
    /// By format, most bytes first.
    pub formats: Vec<Share>,
}

/// What one format holds.
#[derive(Debug, PartialEq, Serialize)]
pub struct Share {
    /// The format's name.
    pub format: &'static str,
    /// Number of tensors.
    pub tensors: usize,
    /// Weights of these tensors.
    pub parameters: u64,
    /// Bytes of these tensors.
    pub bytes: u64,
}

/// How many experts a model has, and how many of them serve a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// E.
    pub all: u64,
    /// K, at most E.
    pub used: u64,
}

/// Counts the tensors of `gguf`.
pub fn take(gguf: &Gguf, experts: Option<Experts>) -> Census {
    let mut shares: BTreeMap<Format, Share> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let share = shares.entry(tensor.format).or_insert(Share {
            format: tensor.format.name(),
            tensors: 0,
            parameters: 0,
            bytes: 0,
        });
        share.tensors += 1;
        share.parameters += parameters(tensor);
        share.bytes += tensor.bytes as u64;
    }
    let mut formats: Vec<Share> = shares.into_values().collect();
    formats.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    let total = |of: fn(&Share) -> u64| formats.iter().map(of).sum::<u64>();
    let (all, bytes) = (total(|share| share.parameters), total(|share| share.bytes));
    Census {
        tensors: gguf.tensors().len(),
        parameters: all,
        active_parameters: active(gguf, experts),
        bytes,
        bits_per_weight: if all > 0 { bytes as f64 * 8.0 / all as f64 } else { 0.0 },
        formats,
    }
}

/// Weights of a tensor. The reader of the file saw to it that the product fits.
pub fn parameters(tensor: &TensorInfo) -> u64 {
    tensor.shape.iter().map(|&length| length as u64).product()
}

/// Weights that work on one token.
fn active(gguf: &Gguf, experts: Option<Experts>) -> Option<u64> {
    let is_routed = |tensor: &&TensorInfo| tensor.name.contains("_exps.");
    let (routed, other): (Vec<_>, Vec<_>) = gguf.tensors().iter().partition(is_routed);
    let sum = |tensors: &[&TensorInfo]| tensors.iter().map(|tensor| parameters(tensor)).sum::<u64>();
    match experts {
        Some(Experts { all, used }) => Some(sum(&other) + sum(&routed) / all * used),
        None if routed.is_empty() => Some(sum(&other)),
        None => None,
    }
}

//! The choice of experts: ids exactly, weights closely.

use super::{F32, List};
use crate::op::{Gating, GroupLimit, Route, RouteConfig};
use crate::parity::{Arena, Result};
use crate::tensor::DType;

pub(super) fn cases(list: &mut List) {
    let (tokens, asked) = (list.request.tokens.unwrap_or(67), list.request.top_k);
    let experts = list.request.experts.unwrap_or(512.max(asked.unwrap_or(0)));
    let top_k = asked.unwrap_or(10).min(experts);
    for (gating, name) in [(Gating::Softmax, "softmax"), (Gating::Sigmoid, "sigmoid")] {
        let plain = RouteConfig::new(gating, top_k);
        let mut add = |what: &str, config: RouteConfig, biased: bool| {
            let name = format!("{name}, T {tokens}, E {experts}, K {top_k}{what}");
            add(list, name, [tokens, experts], config, biased);
        };
        add("", plain, false);
        add(", as they come, scaled", RouteConfig { renormalise: false, scale: 2.5, ..plain }, false);
        add(", bias", plain, true);
        // Of many experts, some sum would be as close to the share as its rounding.
        let tail = RouteConfig { tail_share: Some(0.7), top_k: top_k.min(32), ..plain };
        add(&format!(", tail of {}", tail.top_k), tail, false);
        if experts.is_multiple_of(16) && top_k <= experts / 2 {
            let groups = Some(GroupLimit { groups: 8, used: 4 });
            add(", 4 of 8 groups", RouteConfig { groups, ..plain }, false);
        }
        self::add(list, format!("{name}, T 3, E 33, K 33"), [3, 33], RouteConfig { top_k: 33, ..plain }, false);
    }
}

/// Logits are whole: many are tied, and the lower expert wins; with a bias in quarters scores are tied or well apart.
fn add(list: &mut List, name: String, [tokens, experts]: [usize; 2], config: RouteConfig, biased: bool) {
    list.add(name, F32, move |a| {
        // Beside a bias, scores that differ must do so by more than a rounding.
        let size = if biased { 2.0 } else { 6.0 };
        let logits = a.numbers(tokens * experts, |_| (size * a.unit()).round());
        route(a, config, &logits, experts, biased.then(|| quarters(experts)).as_deref())
    });
}

/// A bias in quarters: beside whole logits, sums of score and bias are equal or well apart, in every precision.
pub fn quarters(experts: usize) -> Vec<f32> {
    (0..experts).map(|e| (e % 7) as f32 * 0.25).collect()
}

/// The choice for tokens of these logits.
///
/// # Errors
/// Those of the device.
pub fn route(a: &Arena, config: RouteConfig, logits: &[f32], experts: usize, bias: Option<&[f32]>) -> Result {
    let tokens = logits.len() / experts;
    a.run(Route {
        logits: a.input(DType::F32, [tokens, 1, experts], |i| logits[i])?,
        bias: bias.map(|bias| a.input(DType::F32, [1, 1, experts], |i| bias[i])).transpose()?,
        config,
        layer: 0,
        ids: a.output("ids", DType::I32, [tokens, 1, config.top_k])?,
        weights: a.output("weights", DType::F32, [tokens, 1, config.top_k])?,
    })
}

//! The choice of experts: ids exactly, weights closely.

use super::{F32, List};
use crate::op::{Gating, GroupLimit, Route, RouteConfig};
use crate::parity::{Arena, Result};
use crate::tensor::DType;

pub(super) fn cases(list: &mut List) {
    let (tokens, asked) = (list.request.tokens.unwrap_or(67), list.request.top_k);
    let experts = list.request.experts.unwrap_or(512.max(asked.unwrap_or(0)));
    let top_k = asked.unwrap_or(10).min(experts);
    for gating in [Gating::Softmax, Gating::Sigmoid] {
        let plain = RouteConfig { gating, top_k, groups: None, renormalise: true, scale: 1.0, tail_share: None };
        let name = format!("{}, T {tokens}, E {experts}, K {top_k}", format!("{gating:?}").to_lowercase());
        add(list, &name, tokens, experts, plain, false);
        add(
            list,
            &format!("{name}, as they come, scaled"),
            tokens,
            experts,
            RouteConfig { renormalise: false, scale: 2.5, ..plain },
            false,
        );
        add(list, &format!("{name}, bias"), tokens, experts, plain, true);
        // Of many experts, some sum would be as close to the share as its rounding.
        let tail = RouteConfig { tail_share: Some(0.7), top_k: top_k.min(32), ..plain };
        add(list, &format!("{name}, tail of {}", tail.top_k), tokens, experts, tail, false);
        let groups = GroupLimit { groups: 8, used: 4 };
        if experts.is_multiple_of(16) && top_k <= experts / 2 {
            add(
                list,
                &format!("{name}, 4 of 8 groups"),
                tokens,
                experts,
                RouteConfig { groups: Some(groups), ..plain },
                false,
            );
        }
        let all = RouteConfig { top_k: 33, ..plain };
        add(list, &format!("{}, T 3, E 33, K 33", format!("{gating:?}").to_lowercase()), 3, 33, all, false);
    }
}

/// Logits are whole: many are tied, and the lower expert wins; with a bias in quarters scores are tied or well apart.
fn add(list: &mut List, name: &str, tokens: usize, experts: usize, config: RouteConfig, biased: bool) {
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

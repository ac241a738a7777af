//! The choice of experts: ids exactly, weights closely.

use super::{F32, List};
use crate::op::{Gating, GroupLimit, Route, RouteConfig};
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
    list.add(name, F32, move |desk| {
        // Beside a bias, scores that differ must do so by more than a rounding.
        let size = if biased { 2.0 } else { 6.0 };
        let logits = desk.numbers(tokens * experts, |_| (size * desk.unit()).round());
        let bias = desk.numbers(experts, |e| (e % 7) as f32 * 0.25);
        desk.run(Route {
            logits: desk.floats([tokens, 1, experts], &logits)?,
            bias: if biased { Some(desk.floats([1, 1, experts], &bias)?) } else { None },
            config,
            layer: 0,
            ids: desk.output("ids", DType::I32, [tokens, 1, config.top_k])?,
            weights: desk.output("weights", DType::F32, [tokens, 1, config.top_k])?,
        })
    });
}

//! The causal convolution and the gated delta rule, with the state that they leave behind.

use super::{F32, List};
use crate::op::{Conv, DeltaNet, HeadMap};
use crate::parity::Desk;
use crate::parity::desk::Made;
use crate::tensor::DType;

pub(super) fn cases(list: &mut List) {
    for [tokens, cols, taps, dilation] in [[1, 1, 1, 1], [7, 257, 4, 1], [70, 600, 4, 1], [5, 33, 4, 3]] {
        for accumulate in [false, true] {
            let name = format!("conv, T {tokens}, {cols} channels, {taps} taps {dilation} apart");
            let name = if accumulate { format!("{name}, added") } else { name };
            list.add(name, F32, move |desk| conv(desk, [tokens, cols, taps, dilation], accumulate));
        }
    }
    let lengths = list.request.tokens.map_or(vec![1, 63, 65, 200], |tokens| vec![tokens]);
    for tokens in lengths {
        for (heads, map) in [([2, 4, 16, 16], HeadMap::Tiled), ([2, 6, 33, 17], HeadMap::Grouped)] {
            let name = format!("delta_net, T {tokens}, heads {heads:?}");
            list.add(name, F32, move |desk| delta_net(desk, tokens, heads, map));
        }
    }
    list.add("delta_net, T 66, heads [1, 2, 128, 128]", F32, |desk| {
        delta_net(desk, 66, [1, 2, 128, 128], HeadMap::Tiled)
    });
}

fn conv(desk: &Desk, [tokens, cols, taps, dilation]: [usize; 4], accumulate: bool) -> Made<()> {
    let (x, weight) = (desk.units([tokens, 1, cols])?, desk.units([cols, 1, taps])?);
    let history = (taps - 1) * dilation;
    let state = desk.changed("state", [history, 1, cols], &desk.numbers(history * cols, |_| desk.unit()))?;
    let out = match accumulate {
        true => desk.changed("out", [tokens, 1, cols], &desk.numbers(tokens * cols, |_| desk.unit()))?,
        false => desk.output("out", DType::F32, [tokens, 1, cols])?,
    };
    desk.run(Conv { x, weight, dilation, state, accumulate, out })
}

/// Operands like a model's: the decay per token between 0.5 and 1, states and values around 1.
fn delta_net(desk: &Desk, tokens: usize, [hk, hv, ck, cv]: [usize; 4], heads: HeadMap) -> Made<()> {
    let (q, k, v) = (desk.units([tokens, hk, ck])?, desk.units([tokens, hk, ck])?, desk.units([tokens, hv, cv])?);
    let steep = |desk: &Desk| desk.floats([tokens, 1, hv], &desk.numbers(tokens * hv, |_| 3.0 * desk.unit()));
    let (alpha, beta) = (steep(desk)?, steep(desk)?);
    let a = desk.floats([1, 1, hv], &desk.numbers(hv, |_| 0.2 * desk.unit() - 0.21))?;
    let dt_bias = desk.units([1, 1, hv])?;
    let state = desk.changed("state", [hv, ck, cv], &desk.numbers(hv * ck * cv, |_| desk.unit()))?;
    let out = desk.output("out", DType::F32, [tokens, hv, cv])?;
    desk.run(DeltaNet { q, k, v, alpha, beta, a, dt_bias, heads, eps: 1e-6, state, out })
}

//! The causal convolution and the gated delta rule, with the state that they leave behind.

use super::{F32, List};
use crate::op::{Conv, DeltaNet, HeadMap, Op};
use crate::parity::{Arena, Result};
use crate::tensor::{DType, Tensor};

pub(super) fn cases(list: &mut List) {
    for [tokens, cols, taps, dilation] in [[1, 1, 1, 1], [7, 257, 4, 1], [70, 600, 4, 1], [5, 33, 4, 3]] {
        for accumulate in [false, true] {
            let name = format!("conv, T {tokens}, {cols} channels, {taps} taps {dilation} apart");
            let name = if accumulate { format!("{name}, added") } else { name };
            list.add(name, F32, move |a| a.run_all(conv(a, &[0, tokens], [cols, taps, dilation], accumulate)?));
        }
    }
    let lengths = list.request.tokens.map_or(vec![1, 63, 65, 200], |tokens| vec![tokens]);
    for tokens in lengths {
        for (heads, map) in [([2, 4, 16, 16], HeadMap::Tiled), ([2, 6, 33, 17], HeadMap::Grouped)] {
            let name = format!("delta_net, T {tokens}, heads {heads:?}");
            list.add(name, F32, move |a| a.run_all(delta_net(a, &[0, tokens], heads, map)?));
        }
    }
    list.add("delta_net, T 66, heads [1, 2, 128, 128]", F32, |a| {
        a.run_all(delta_net(a, &[0, 66], [1, 2, 128, 128], HeadMap::Tiled)?)
    });
}

/// The convolution of so many channels by so many taps so far apart, in several calls that carry the state.
///
/// # Errors
/// Those of the device.
pub fn conv(a: &Arena, cuts: &[usize], [cols, taps, dilation]: [usize; 3], accumulate: bool) -> Result<Vec<Op>> {
    let tokens = cuts[cuts.len() - 1];
    let (x, weight) = (a.units(DType::F32, [tokens, 1, cols])?, a.units(DType::F32, [cols, 1, taps])?);
    let state = a.in_out("state", [(taps - 1) * dilation, 1, cols], |_| a.unit())?;
    let out = match accumulate {
        true => a.in_out("out", [tokens, 1, cols], |_| a.unit())?,
        false => a.output("out", DType::F32, [tokens, 1, cols])?,
    };
    let part = |cut: &[usize]| {
        let [x, out] = [&x, &out].map(|t| t.rows(cut[0]..cut[1]));
        Conv { x, weight: weight.clone(), dilation, state: state.clone(), accumulate, out }.into()
    };
    Ok(cuts.windows(2).map(part).collect())
}

/// The delta rule of so many heads of keys and of values, so wide, in several calls that carry the state. Operands are like a
/// model's: the decay per token between 0.5 and 1, states and values around 1.
///
/// # Errors
/// Those of the device.
pub fn delta_net(a: &Arena, cuts: &[usize], [hk, hv, ck, cv]: [usize; 4], heads: HeadMap) -> Result<Vec<Op>> {
    let tokens = cuts[cuts.len() - 1];
    let units = |groups, cols| a.units(DType::F32, [tokens, groups, cols]);
    let (q, k, v) = (units(hk, ck)?, units(hk, ck)?, units(hv, cv)?);
    let steep = || a.input(DType::F32, [tokens, 1, hv], |_| 3.0 * a.unit());
    let (alpha, beta) = (steep()?, steep()?);
    let rate = a.input(DType::F32, [1, 1, hv], |_| 0.2 * a.unit() - 0.21)?;
    let dt_bias = a.units(DType::F32, [1, 1, hv])?;
    let state = a.in_out("state", [hv, ck, cv], |_| a.unit())?;
    let out = a.output("out", DType::F32, [tokens, hv, cv])?;
    let part = |cut: &[usize]| {
        let rows = |t: &Tensor| t.rows(cut[0]..cut[1]);
        DeltaNet {
            q: rows(&q),
            k: rows(&k),
            v: rows(&v),
            alpha: rows(&alpha),
            beta: rows(&beta),
            a: rate.clone(),
            dt_bias: dt_bias.clone(),
            heads,
            eps: 1e-6,
            state: state.clone(),
            out: rows(&out),
        }
        .into()
    };
    Ok(cuts.windows(2).map(part).collect())
}

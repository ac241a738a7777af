//! The causal depthwise convolution.

use argon_kernels::DType::F32;
use argon_kernels::op::Conv;

use crate::harness::{Arena, parity_split, within};

/// Sums of up to five products of numbers up to 1, then silu.
const ROUNDINGS: f64 = 1e-6;

fn conv(
    a: &Arena,
    cuts: &[usize],
    cols: usize,
    taps: usize,
    dilation: usize,
    accumulate: bool,
) -> Vec<argon_kernels::Op> {
    let tokens = cuts[cuts.len() - 1];
    let x = a.floats("x", [tokens, 1, cols]);
    let weight = a.floats("weight", [cols, 1, taps]);
    let state = a.floats("state", [(taps - 1) * dilation, 1, cols]);
    let out = if accumulate { a.floats("out", [tokens, 1, cols]) } else { a.output("out", F32, [tokens, 1, cols]) };
    let part = |cut: &[usize]| {
        let (x, out) = (x.rows(cut[0]..cut[1]), out.rows(cut[0]..cut[1]));
        Conv { x, weight: weight.clone(), dilation, state: state.clone(), accumulate, out }.into()
    };
    cuts.windows(2).map(part).collect()
}

/// Channels below, at and above a task's.
#[test]
fn conv_of_channels() {
    for cols in [1, 255, 256, 257, 600] {
        parity_split(within(ROUNDINGS), |a, split| {
            conv(a, if split { &[0, 1, 3, 7] } else { &[0, 7] }, cols, 4, 1, false)
        });
    }
}

/// Chunks shorter and longer than the history.
#[test]
fn conv_carries_its_state() {
    for tokens in [0, 1, 2, 8, 9, 10, 40] {
        for (taps, dilation) in [(1, 1), (2, 1), (4, 1), (4, 3), (2, 9)] {
            for accumulate in [false, true] {
                parity_split(within(ROUNDINGS), |a, split| {
                    let cuts = if split { vec![0, tokens / 3, tokens / 3, tokens] } else { vec![0, tokens] };
                    conv(a, &cuts, 20, taps, dilation, accumulate)
                });
            }
        }
    }
}

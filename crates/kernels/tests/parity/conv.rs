//! The causal depthwise convolution.

use argon_kernels::parity::cases::delta::conv;

use super::harness::{parity_split, within};

/// Sums of up to five products of numbers up to 1, then silu.
const ROUNDINGS: f64 = 1e-6;

/// Channels below, at and above a task's.
#[test]
fn conv_of_channels() {
    for cols in [1, 255, 256, 257, 600] {
        parity_split(within(ROUNDINGS), |a, split| {
            let cuts: &[usize] = if split { &[0, 1, 3, 7] } else { &[0, 7] };
            a.run_all(conv(a, cuts, [cols, 4, 1], false)?)
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
                    a.run_all(conv(a, &cuts, [20, taps, dilation], accumulate)?)
                });
            }
        }
    }
}

/// More taps than a GPU keeps in registers.
#[test]
fn conv_of_many_taps() {
    // Sums of 1, 2, .. 9 products of numbers up to 1, each rounded.
    let roundings = 45.0 * f64::from(f32::EPSILON) / 2.0;
    for tokens in [1, 9, 40] {
        parity_split(within(roundings), |a, split| {
            let cuts = if split { vec![0, tokens / 3, tokens] } else { vec![0, tokens] };
            a.run_all(conv(a, &cuts, [20, 9, 1], false)?)
        });
    }
}

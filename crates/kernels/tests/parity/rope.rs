//! Rotary positions.

use argon_kernels::DType::F32;
use argon_kernels::op::{Rope, RopePairs};

use crate::harness::{parity_split, parts, within};

/// Sine, cosine and three roundings of numbers up to 1; the angle itself is float32 on both sides.
const ROUNDINGS: f64 = 4e-7;

#[test]
fn rope() {
    for pairs in [RopePairs::Halves, RopePairs::Neighbours] {
        for ([rows, groups, cols], n) in
            [([0, 1, 4], 2), ([1, 1, 2], 1), ([9, 3, 16], 8), ([70, 2, 256], 32), ([3, 2, 5], 0)]
        {
            for (pos0, step) in [(0, 1), (131_071, 1), (8, 64)] {
                parity_split(within(ROUNDINGS), |a, split| {
                    let x = a.floats("x", [rows, groups, cols]);
                    let freqs = a.floats_by("freqs", F32, [1, 1, n], |i| 1e6f32.powf(-(i as f32) / n as f32));
                    let part = |part: std::ops::Range<usize>| {
                        let pos0 = pos0 + part.start * step;
                        Rope { x: x.rows(part), freqs: freqs.clone(), pairs, pos0, step }.into()
                    };
                    parts(rows, split).into_iter().map(part).collect()
                });
            }
        }
    }
}

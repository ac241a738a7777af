//! Rotary positions.

use argon_kernels::op::RopePairs;
use argon_kernels::parity::cases::elementwise::Rotation;

use super::harness::{halves, parity_split, within};

/// Sine, cosine and three roundings of numbers up to 1; the angle itself is float32 on both sides.
const ROUNDINGS: f64 = 4e-7;

#[test]
fn rope() {
    for pairs in [RopePairs::Halves, RopePairs::Neighbours] {
        for ([rows, groups, cols], freqs) in
            [([0, 1, 4], 2), ([1, 1, 2], 1), ([9, 3, 16], 8), ([70, 2, 256], 32), ([3, 2, 5], 0)]
        {
            for (pos0, step) in [(0, 1), (131_071, 1), (8, 64)] {
                let rotation = Rotation { groups, cols, freqs, pairs, pos0, step };
                parity_split(within(ROUNDINGS), |a, split| a.run_all(rotation.ops(a, &halves(rows, split))?));
            }
        }
    }
}

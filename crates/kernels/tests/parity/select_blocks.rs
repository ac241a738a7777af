//! The QSA indexer.

use argon_kernels::DType::{F32, I32};
use argon_kernels::op::SelectBlocks;
use argon_kernels::parity::cases::attention::{self, Choice};

use super::harness::{EXACT, halves, parity, parity_split, within};

#[test]
fn mean_pool() {
    for shape in [[0, 4, 8], [1, 1, 1], [3, 4, 33], [200, 2, 128]] {
        // A sum of up to four numbers up to 1.
        parity(within(3e-7), |a| attention::mean_pool(a, shape));
    }
}

#[test]
fn choices_and_ties() {
    for (pos0, tokens, ratio) in [(0, 0, 4), (0, 1, 1), (0, 40, 4), (62, 3, 64), (300, 20, 3), (1000, 9, 2)] {
        for (n, heads, cols) in [(1, 1, 1), (5, 2, 4), (16, 4, 16), (64, 3, 17), (0, 1, 1)] {
            let choice = Choice { pos0, ratio, n, heads, cols };
            parity_split(EXACT, |a, split| a.run_all(choice.ops(a, &halves(tokens, split))?));
        }
    }
}

/// All scores are zero where no head agrees with a key: the first blocks win.
#[test]
fn nothing_agrees() {
    parity(EXACT, |a| {
        let (q, keys) = (a.input(F32, [2, 2, 8], |_| 1.0)?, a.input(F32, [50, 1, 8], |_| -1.0)?);
        a.run(SelectBlocks { q, keys, pos0: 97, ratio: 2, out: a.output("out", I32, [2, 1, 7])? })
    });
}

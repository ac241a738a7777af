//! The QSA indexer.

use argon_kernels::DType::{F32, I32};
use argon_kernels::op::{MeanPool, SelectBlocks};

use crate::harness::{EXACT, parity, parity_split, parts, within};

#[test]
fn mean_pool() {
    for (blocks, ratio, cols) in [(0, 4, 8), (1, 1, 1), (3, 4, 33), (200, 2, 128)] {
        // A sum of up to four numbers up to 1.
        parity(within(3e-7), |a| {
            let (x, out) = (a.floats("x", [blocks * ratio, 1, cols]), a.output("out", F32, [blocks, 1, cols]));
            vec![MeanPool { x, ratio, out }.into()]
        });
    }
}

/// Integers, so that scores are exact and many are tied: the lower block wins.
#[test]
fn choices_and_ties() {
    for (pos0, tokens, ratio) in [(0, 0, 4), (0, 1, 1), (0, 40, 4), (62, 3, 64), (300, 20, 3), (1000, 9, 2)] {
        for (n, heads, cols) in [(1, 1, 1), (5, 2, 4), (16, 4, 16), (64, 3, 17), (0, 1, 1)] {
            parity_split(EXACT, |a, split| {
                let q = a.floats_by("q", F32, [tokens, heads, cols], |_| (a.unit() * 2.0).round());
                let keys =
                    a.floats_by("keys", F32, [(pos0 + tokens) / ratio + 1, 1, cols], |_| (a.unit() * 2.0).round());
                let out = a.output("out", I32, [tokens, 1, n]);
                let part = |part: std::ops::Range<usize>| {
                    let (q, out) = (q.rows(part.clone()), out.rows(part.clone()));
                    SelectBlocks { q, keys: keys.clone(), pos0: pos0 + part.start, ratio, out }.into()
                };
                parts(tokens, split).into_iter().map(part).collect()
            });
        }
    }
}

/// All scores are zero where no head agrees with a key: the first blocks win.
#[test]
fn nothing_agrees() {
    parity(EXACT, |a| {
        let q = a.floats_by("q", F32, [2, 2, 8], |_| 1.0);
        let keys = a.floats_by("keys", F32, [50, 1, 8], |_| -1.0);
        vec![SelectBlocks { q, keys, pos0: 97, ratio: 2, out: a.output("out", I32, [2, 1, 7]) }.into()]
    });
}

//! Attention.

use argon_kernels::DType::{F16, F32};
use argon_kernels::Op;
use argon_kernels::parity::cases::attention::{Blocks, Queries};

use super::harness::{Tolerance, halves, parity_split};

/// A weighted mean of numbers up to 1, its weights within a few ulp of their scores' own error (scores up to 4).
const ROUNDINGS: Tolerance = Tolerance { abs: 2e-6, rel: 1e-6 };

const CASE: Queries =
    Queries { pos0: 0, tokens: 5, heads: [4, 2], widths: [16, 16], caches: [F32, F32], gate: false, select: None };

fn check(cases: impl IntoIterator<Item = Queries>) {
    for case in cases {
        parity_split(ROUNDINGS, |a, split| a.run_all(case.ops(a, &halves(case.tokens, split))?));
    }
}

/// Queries and keys below, at and above the blocks of the kernels.
#[test]
fn lengths() {
    for pos0 in [0, 1, 31, 200] {
        check([0, 1, 2, 15, 16, 17, 63, 64, 65, 130].map(|tokens| Queries { pos0, tokens, ..CASE }));
    }
}

#[test]
fn head_shapes() {
    check([[1, 1], [15, 17], [17, 5], [64, 64], [256, 128]].map(|widths| Queries { widths, tokens: 20, ..CASE }));
    check([[1, 1], [3, 3], [6, 2], [8, 1]].map(|heads| Queries { heads, tokens: 20, ..CASE }));
}

/// f16 caches hold the same numbers on both sides, so the tolerance stays.
#[test]
fn caches() {
    for caches in [[F16, F16], [F16, F32], [F32, F16]] {
        check([16, 33].map(|width| Queries { caches, widths: [width, 16], pos0: 40, tokens: 37, gate: true, ..CASE }));
    }
}

/// Heads that share keys: fewer and more than a tile of the tensor cores has rows.
#[test]
fn shared_heads_over_f16() {
    for select in [None, Some(Blocks { n: 3, ratio: 4, unlike: false })] {
        check([[24, 2, 256], [34, 2, 32], [17, 1, 48]].map(|[heads, kv_heads, width]| Queries {
            heads: [heads, kv_heads],
            widths: [width, 256 - width / 2 / 16 * 16],
            caches: [F16, F16],
            gate: true,
            select,
            pos0: 50,
            tokens: 24,
        }));
    }
}

#[test]
fn gates() {
    check([1, 70].map(|tokens| Queries { gate: true, tokens, ..CASE }));
}

/// Selected blocks and the incomplete one; queries without a complete block, with fewer than n and with more.
#[test]
fn selected_blocks() {
    for (n, ratio) in [(1, 1), (4, 4), (3, 7), (2, 64), (0, 8), (200, 1)] {
        for pos0 in [0, 50, 129] {
            for unlike in [false, true] {
                let select = Some(Blocks { n, ratio, unlike });
                check([1, 70].map(|tokens| Queries { select, pos0, tokens, caches: [F16, F16], ..CASE }));
            }
        }
    }
}

/// Scores far apart: exponentials underflow, and the highest score of a later block replaces that of an earlier one.
#[test]
fn large_scores() {
    // A score of 1000 has an error of 2^-24 of itself, which the exponential turns into a relative one.
    let tolerance = Tolerance { abs: 3e-4, rel: 0.0 };
    let case = Queries { tokens: 70, pos0: 100, ..CASE };
    parity_split(tolerance, |a, split| {
        let mut ops = case.ops(a, &halves(case.tokens, split))?;
        for op in &mut ops {
            if let Op::Attention(o) = op {
                o.scale = 100.0;
            }
        }
        a.run_all(ops)
    });
}

/// A value or a key that is no number spoils the queries that see it, and none before them.
#[test]
fn not_a_number() {
    for (spoiled, caches) in [("k", F32), ("v", F32), ("k", F16), ("v", F16)] {
        let case = Queries { tokens: 70, pos0: 9, caches: [caches; 2], ..CASE };
        parity_split(ROUNDINGS, |a, split| {
            let ops = case.ops(a, &halves(case.tokens, split))?;
            for op in &ops {
                if let Op::Attention(o) = op {
                    let cache = if spoiled == "k" { &o.k } else { &o.v };
                    let nan = if caches == F32 { f32::NAN.to_ne_bytes().to_vec() } else { vec![0xff; 2] };
                    a.device().write(&cache.rows(40..41).cols(0..1), &nan.repeat(2))?;
                }
            }
            a.run_all(ops)
        });
    }
}

//! Attention.

use argon_kernels::DType::{self, F16, F32};
use argon_kernels::Op;
use argon_kernels::op::{Attention, Selection};

use crate::harness::{Arena, Tolerance, parity_split, parts};

/// A weighted mean of numbers up to 1, its weights within a few ulp of their scores' own error (scores up to 4).
const ROUNDINGS: Tolerance = Tolerance { abs: 2e-6, rel: 1e-6 };

#[derive(Clone, Copy)]
struct Case {
    pos0: usize,
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    width: usize,
    v_width: usize,
    caches: [DType; 2],
    gate: bool,
    /// Blocks for each query and their length.
    select: Option<(usize, usize)>,
    /// Whether neighbouring queries select other blocks.
    unlike: bool,
}

const CASE: Case = Case {
    pos0: 0,
    tokens: 5,
    heads: 4,
    kv_heads: 2,
    width: 16,
    v_width: 16,
    caches: [F32, F32],
    gate: false,
    select: None,
    unlike: false,
};

fn attention(a: &Arena, case: &Case, split: bool) -> Vec<Op> {
    let Case { pos0, tokens, heads, kv_heads, width, v_width, .. } = *case;
    let q = a.floats_by("q", F32, [tokens, heads, width], |_| 4.0 * a.unit());
    // Three rows of the cache are beyond what any query may see.
    let k = a.floats_by("k", case.caches[0], [pos0 + tokens + 3, kv_heads, width], |_| a.unit());
    let v = a.floats_by("v", case.caches[1], [pos0 + tokens + 3, kv_heads, v_width], |_| a.unit());
    let gate = case.gate.then(|| a.floats_by("gate", F32, [tokens, heads, v_width], |_| 8.0 * a.unit()));
    let select = case.select.map(|(n, ratio)| {
        let mut blocks = Vec::new();
        for t in 0..tokens {
            // Some of the complete blocks, ascending, then -1: as the indexer writes them.
            let complete = ((pos0 + t + 1) / ratio) as u64;
            let seed = if case.unlike { t as u64 } else { 0 };
            let mut order: Vec<u64> = (0..complete).collect();
            order.sort_by_key(|block| (block + 1 + 1000 * seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32);
            let mut chosen: Vec<i32> = order.iter().take(n).map(|&block| block as i32).collect();
            chosen.sort_unstable();
            chosen.resize(n, -1);
            blocks.extend(chosen);
        }
        Selection { blocks: a.ints("blocks", [tokens, 1, n], &blocks), ratio }
    });
    let out = a.output("out", F32, [tokens, heads, v_width]);
    let part = |part: std::ops::Range<usize>| {
        Attention {
            q: q.rows(part.clone()),
            k: k.clone(),
            v: v.clone(),
            gate: gate.as_ref().map(|gate| gate.rows(part.clone())),
            select: select
                .as_ref()
                .map(|select| Selection { blocks: select.blocks.rows(part.clone()), ratio: select.ratio }),
            pos0: pos0 + part.start,
            scale: (width as f32).sqrt().recip(),
            out: out.rows(part),
        }
        .into()
    };
    parts(tokens, split).into_iter().map(part).collect()
}

fn check(cases: impl IntoIterator<Item = Case>) {
    for case in cases {
        parity_split(ROUNDINGS, |a, split| attention(a, &case, split));
    }
}

/// Queries and keys below, at and above the blocks of the kernels.
#[test]
fn lengths() {
    for pos0 in [0, 1, 31, 200] {
        check([0, 1, 2, 15, 16, 17, 63, 64, 65, 130].map(|tokens| Case { pos0, tokens, ..CASE }));
    }
}

#[test]
fn head_shapes() {
    check([[1, 1], [15, 17], [17, 5], [64, 64], [256, 128]].map(|[width, v_width]| Case {
        width,
        v_width,
        tokens: 20,
        ..CASE
    }));
    check([[1, 1], [3, 3], [6, 2], [8, 1]].map(|[heads, kv_heads]| Case { heads, kv_heads, tokens: 20, ..CASE }));
}

/// f16 caches hold the same numbers on both sides, so the tolerance stays.
#[test]
fn caches() {
    for caches in [[F16, F16], [F16, F32], [F32, F16]] {
        check([16, 33].map(|width| Case { caches, width, pos0: 40, tokens: 37, gate: true, ..CASE }));
    }
}

/// Heads that share keys: fewer and more than a tile of the tensor cores has rows.
#[test]
fn shared_heads_over_f16() {
    for select in [None, Some((3, 4))] {
        check([[24, 2, 256], [34, 2, 32], [17, 1, 48]].map(|[heads, kv_heads, width]| Case {
            heads,
            kv_heads,
            width,
            v_width: 256 - width / 2 / 16 * 16,
            caches: [F16, F16],
            gate: true,
            select,
            pos0: 50,
            tokens: 24,
            ..CASE
        }));
    }
}

#[test]
fn gates() {
    check([1, 70].map(|tokens| Case { gate: true, tokens, ..CASE }));
}

/// Selected blocks and the incomplete one; queries without a complete block, with fewer than n and with more.
#[test]
fn selected_blocks() {
    for select in [(1, 1), (4, 4), (3, 7), (2, 64), (0, 8), (200, 1)].map(Some) {
        for pos0 in [0, 50, 129] {
            for unlike in [false, true] {
                check([1, 70].map(|tokens| Case { select, unlike, pos0, tokens, caches: [F16, F16], ..CASE }));
            }
        }
    }
}

/// Scores far apart: exponentials underflow, and the highest score of a later block replaces that of an earlier one.
#[test]
fn large_scores() {
    // A score of 1000 has an error of 2^-24 of itself, which the exponential turns into a relative one.
    let tolerance = Tolerance { abs: 3e-4, rel: 0.0 };
    parity_split(tolerance, |a, split| {
        let case = Case { tokens: 70, pos0: 100, ..CASE };
        let mut ops = attention(a, &case, split);
        for op in &mut ops {
            if let Op::Attention(o) = op {
                o.scale = 100.0;
            }
        }
        ops
    });
}

/// A value or a key that is no number spoils the queries that see it, and none before them.
#[test]
fn not_a_number() {
    for (spoiled, caches) in [("k", F32), ("v", F32), ("k", F16), ("v", F16)] {
        parity_split(ROUNDINGS, |a, split| {
            let case = Case { tokens: 70, pos0: 9, caches: [caches; 2], ..CASE };
            let ops = attention(a, &case, split);
            for op in &ops {
                if let Op::Attention(o) = op {
                    let cache = if spoiled == "k" { &o.k } else { &o.v };
                    let nan = if caches == F32 { f32::NAN.to_ne_bytes().to_vec() } else { vec![0xff; 2] };
                    a.device().write(&cache.rows(40..41).cols(0..1), &nan.repeat(2)).unwrap();
                }
            }
            ops
        });
    }
}

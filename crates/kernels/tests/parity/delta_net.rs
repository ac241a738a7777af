//! The gated delta rule.

use argon_kernels::DType::F32;
use argon_kernels::op::{DeltaNet, HeadMap};
use argon_kernels::{Op, Tensor};

use crate::harness::{Arena, Tolerance, parity_split};

/// Operands like a model's: the decay per token between 0.5 and 1, states and values around 1. Errors of the state shrink
/// with it, so they do not pile up with the tokens.
const ROUNDINGS: Tolerance = Tolerance { abs: 2e-6, rel: 2e-6 };

fn delta_net(a: &Arena, cuts: &[usize], [hk, hv, ck, cv]: [usize; 4], heads: HeadMap) -> Vec<Op> {
    let tokens = cuts[cuts.len() - 1];
    let (q, k) = (a.floats("q", [tokens, hk, ck]), a.floats("k", [tokens, hk, ck]));
    let v = a.floats("v", [tokens, hv, cv]);
    let alpha = a.floats_by("alpha", F32, [tokens, 1, hv], |_| 3.0 * a.unit());
    let beta = a.floats_by("beta", F32, [tokens, 1, hv], |_| 3.0 * a.unit());
    let rate = a.floats_by("a", F32, [1, 1, hv], |_| 0.2 * a.unit() - 0.21);
    let dt_bias = a.floats("dt_bias", [1, 1, hv]);
    let state = a.floats("state", [hv, ck, cv]);
    let out = a.output("out", F32, [tokens, hv, cv]);
    let part = |cut: &[usize]| {
        let rows = |t: &argon_kernels::Tensor| t.rows(cut[0]..cut[1]);
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
    cuts.windows(2).map(part).collect()
}

/// Tokens below, at and above one and two blocks of the chunked form, one call and several.
#[test]
fn tokens() {
    for tokens in [0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 128, 200] {
        parity_split(ROUNDINGS, |a, split| {
            let cuts = if split { vec![0, tokens / 3, tokens / 2, tokens] } else { vec![0, tokens] };
            delta_net(a, &cuts, [2, 4, 16, 16], HeadMap::Tiled)
        });
    }
}

/// Head widths below, at and above one vector.
#[test]
fn head_shapes() {
    for [ck, cv] in [[1, 1], [15, 17], [16, 16], [17, 33], [128, 128], [32, 64]] {
        parity_split(ROUNDINGS, |a, split| {
            delta_net(a, if split { &[0, 3, 70] } else { &[0, 70] }, [1, 2, ck, cv], HeadMap::Grouped)
        });
    }
}

#[test]
fn head_maps() {
    for heads in [HeadMap::Tiled, HeadMap::Grouped] {
        for [hk, hv] in [[1, 1], [2, 2], [2, 6], [3, 6]] {
            parity_split(ROUNDINGS, |a, split| {
                delta_net(a, if split { &[0, 66, 67] } else { &[0, 67] }, [hk, hv, 8, 8], heads)
            });
        }
    }
}

/// A decay that underflows within a block: the state is forgotten, and nothing becomes infinite.
#[test]
fn strong_decay() {
    parity_split(ROUNDINGS, |a, split| {
        let mut ops = delta_net(a, if split { &[0, 10, 130] } else { &[0, 130] }, [1, 2, 16, 16], HeadMap::Tiled);
        let strong = a.floats_by("strong", F32, [1, 1, 2], |i| [-5.0, -60.0][i]);
        for op in &mut ops {
            if let Op::DeltaNet(o) = op {
                o.a = strong.clone();
            }
        }
        ops
    });
}

/// An input that is no number spoils its token and those behind it, and none before.
#[test]
fn not_a_number() {
    for tokens in [5, 100] {
        for operand in 0..4 {
            parity_split(ROUNDINGS, |a, split| {
                let cuts = if split { vec![0, tokens / 2, tokens] } else { vec![0, tokens] };
                let ops = delta_net(a, &cuts, [1, 2, 16, 16], HeadMap::Tiled);
                if let Op::DeltaNet(o) = &ops[ops.len() - 1] {
                    let t = [&o.q, &o.k, &o.v, &o.alpha][operand];
                    let (row, group) = (t.rows - 2, t.groups - 1);
                    let one = Tensor { offset: t.offset + group * t.group_stride, groups: 1, ..t.clone() };
                    a.device().write(&one.rows(row..row + 1).cols(0..1), &f32::NAN.to_ne_bytes()).unwrap();
                }
                ops
            });
        }
    }
}

//! The gated delta rule.

use argon_kernels::DType::F32;
use argon_kernels::op::HeadMap;
use argon_kernels::parity::cases::delta::delta_net;
use argon_kernels::{Op, Tensor};

use super::harness::{Tolerance, parity_split};

/// States and values are around 1. Errors of the state shrink with it, so they do not pile up with the tokens.
const ROUNDINGS: Tolerance = Tolerance { abs: 2e-6, rel: 2e-6 };

/// Tokens below, at and above one and two blocks of the chunked form, one call and several.
#[test]
fn tokens() {
    for tokens in [0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 128, 200] {
        parity_split(ROUNDINGS, |a, split| {
            let cuts = if split { vec![0, tokens / 3, tokens / 2, tokens] } else { vec![0, tokens] };
            a.run_all(delta_net(a, &cuts, [2, 4, 16, 16], HeadMap::Tiled)?)
        });
    }
}

/// Head widths below, at and above one vector.
#[test]
fn head_shapes() {
    for [ck, cv] in [[1, 1], [15, 17], [16, 16], [17, 33], [128, 128], [32, 64]] {
        parity_split(ROUNDINGS, |a, split| {
            let cuts: &[usize] = if split { &[0, 3, 70] } else { &[0, 70] };
            a.run_all(delta_net(a, cuts, [1, 2, ck, cv], HeadMap::Grouped)?)
        });
    }
}

#[test]
fn head_maps() {
    for heads in [HeadMap::Tiled, HeadMap::Grouped] {
        for [hk, hv] in [[1, 1], [2, 2], [2, 6], [3, 6]] {
            parity_split(ROUNDINGS, |a, split| {
                let cuts: &[usize] = if split { &[0, 66, 67] } else { &[0, 67] };
                a.run_all(delta_net(a, cuts, [hk, hv, 8, 8], heads)?)
            });
        }
    }
}

/// A decay that underflows within a block: the state is forgotten, and nothing becomes infinite.
#[test]
fn strong_decay() {
    parity_split(ROUNDINGS, |a, split| {
        let cuts: &[usize] = if split { &[0, 10, 130] } else { &[0, 130] };
        let mut ops = delta_net(a, cuts, [1, 2, 16, 16], HeadMap::Tiled)?;
        let strong = a.input(F32, [1, 1, 2], |i| [-5.0, -60.0][i])?;
        for op in &mut ops {
            if let Op::DeltaNet(o) = op {
                o.a = strong.clone();
            }
        }
        a.run_all(ops)
    });
}

/// An input that is no number spoils its token and those behind it, and none before.
#[test]
fn not_a_number() {
    for tokens in [5, 100] {
        for operand in 0..4 {
            parity_split(ROUNDINGS, |a, split| {
                let cuts = if split { vec![0, tokens / 2, tokens] } else { vec![0, tokens] };
                let ops = delta_net(a, &cuts, [1, 2, 16, 16], HeadMap::Tiled)?;
                if let Op::DeltaNet(o) = &ops[ops.len() - 1] {
                    let t = [&o.q, &o.k, &o.v, &o.alpha][operand];
                    let (row, group) = (t.rows - 2, t.groups - 1);
                    let one = Tensor { offset: t.offset + group * t.group_stride, groups: 1, ..t.clone() };
                    a.device().write(&one.rows(row..row + 1).cols(0..1), &f32::NAN.to_ne_bytes())?;
                }
                a.run_all(ops)
            });
        }
    }
}

//! A little of every op, in a few hundred launches: what a memory checker can watch in a minute.
//! `compute-sanitizer --tool memcheck|racecheck|initcheck` on `everything::a_little_of_every_op`.

use argon_kernels::DType::{F16, F32, I32};
use argon_kernels::op::*;
use argon_kernels::{Op, Precision, Tensor, Weight};
use argon_plan::Shape;

use crate::harness::{Arena, Tolerance, parity};

/// A product's 64 roundings of numbers up to 1, twice.
const TOLERANCE: Tolerance = Tolerance { abs: 2e-5, rel: 2e-5 };

fn small_ops(a: &Arena) -> Vec<Op> {
    let x = a.floats("x", [5, 2, 36]);
    let (flat, y) = (a.floats("flat", [5, 1, 36]), a.output("y", F32, [5, 2, 36]));
    let (weight, freqs) = (a.floats("weight", [1, 1, 36]), a.floats("freqs", [1, 1, 9]));
    let (taps, state) = (a.floats("taps", [36, 1, 4]), a.floats("conv state", [6, 1, 36]));
    let (conv_out, inject) = (a.output("conv out", F32, [5, 1, 36]), a.floats("inject", [5, 1, 2]));
    let ids = a.ints("ids", [5, 1, 2], &[0, 3, 2, 1, 4, 4, 0, 2, 1, 3]);
    let pooled = a.output("pooled", F32, [2, 1, 36]);
    let chosen = a.output("chosen", I32, [5, 1, 1]);
    let table = a.weight(5, 36);
    let halves = a.output("halves", F16, [5, 2, 36]);
    vec![
        Fill { dst: a.output("filled", F16, [3, 1, 7]), value: 1.5 }.into(),
        Embed { table, ids, out: y.clone() }.into(),
        Add { src: x.clone(), dst: y.clone() }.into(),
        Copy { src: x.clone(), dst: halves }.into(),
        RmsNorm { x: y.clone(), weight: weight.clone(), eps: 1e-6, out: y.clone() }.into(),
        GatedNorm { x: y.clone(), gate: x.clone(), weight, eps: 1e-6, activation: Activation::Silu, out: y.clone() }
            .into(),
        Rope { x: y.clone(), freqs, pairs: RopePairs::Halves, pos0: 7, step: 1 }.into(),
        Conv { x: flat.clone(), weight: taps, dilation: 2, state, accumulate: false, out: conv_out }.into(),
        HyperWrite { y: flat.clone(), inject, x: y.clone() }.into(),
        PleGate { key: x.clone(), query: y, value: flat.clone(), out: a.output("gated", F32, [5, 2, 36]) }.into(),
        MeanPool { x: flat.first(4), ratio: 2, out: pooled.clone() }.into(),
        SelectBlocks { q: x, keys: pooled, pos0: 0, ratio: 3, out: chosen }.into(),
    ]
}

fn sequence_ops(a: &Arena) -> Vec<Op> {
    let (k, v) = (a.floats_by("k", F16, [48, 2, 16], |_| a.unit()), a.floats("v", [48, 2, 16]));
    let q = a.floats("q", [40, 4, 16]);
    let blocks: Vec<i32> = (0..40).flat_map(|t| if t + 9 > 16 { [0, (t + 9) / 8 - 1] } else { [0, -1] }).collect();
    let blocks = a.ints("blocks", [40, 1, 2], &blocks);
    let halves = a.floats_by("v in f16", F16, [48, 2, 16], |_| a.unit());
    let attention = |select: Option<Selection>, v: &Tensor, name: &str| Attention {
        q: q.clone(),
        k: k.clone(),
        v: v.clone(),
        gate: Some(q.clone()),
        select,
        pos0: 8,
        scale: 0.25,
        out: a.output(name, F32, [40, 4, 16]),
    };
    // Token after token, and by chunks, of which a value that is none spoils 16 columns.
    let delta = |name: &str, tokens: usize, spoil: bool| DeltaNet {
        q: a.floats("dq", [tokens, 1, 24]),
        k: a.floats("dk", [tokens, 1, 24]),
        v: a.floats_by("dv", F32, [tokens, 2, 20], |i| if spoil && i == 1500 { f32::NAN } else { a.unit() }),
        alpha: a.floats("alpha", [tokens, 1, 2]),
        beta: a.floats("beta", [tokens, 1, 2]),
        a: a.floats_by("a", F32, [1, 1, 2], |_| -0.3),
        dt_bias: a.floats("dt_bias", [1, 1, 2]),
        heads: HeadMap::Grouped,
        eps: 1e-6,
        state: a.floats("state", [2, 24, 20]),
        out: a.output(name, F32, [tokens, 2, 20]),
    };
    vec![
        attention(None, &v, "full").into(),
        attention(None, &halves, "full, f16").into(),
        attention(Some(Selection { blocks: blocks.clone(), ratio: 8 }), &v, "selected").into(),
        attention(Some(Selection { blocks, ratio: 8 }), &halves, "selected, f16").into(),
        delta("by token", 20, false).into(),
        delta("by chunk", 70, false).into(),
        delta("spoilt", 70, true).into(),
    ]
}

/// Routing, plan, both products and the sum.
fn layer_ops(a: &Arena) -> Vec<Op> {
    let (tokens, top_k, experts, cols) = (30, 3, 4, 64);
    let shape = Shape::new(tokens, top_k, experts, 8).unwrap();
    let logits = a.floats_by("logits", F32, [tokens, 1, experts], |i| (i * 37 % 101) as f32);
    let (ids, weights) = (a.output("ids", I32, [tokens, 1, top_k]), a.output("weights", F32, [tokens, 1, top_k]));
    let shares = a.floats("shares", [tokens, 1, top_k]);
    let plan = crate::plan::buffers(a, shape);
    let x = a.floats("x", [tokens, 1, cols]);
    let rows = |name: &str| a.floats_by(name, F32, [shape.max_rows(), 1, cols], |_| 0.0);
    let (h, down) = (rows("h"), rows("down"));
    let config =
        RouteConfig { gating: Gating::Softmax, top_k, groups: None, renormalise: true, scale: 1.0, tail_share: None };
    let matrices = || Weight { experts, rows: cols, expert_bytes: cols * cols * 4, ..a.weight(experts * cols, cols) };
    let gemm = |x: &Tensor, rows, epilogue, out: &Tensor| -> Op {
        let (x, w, out) = (x.clone(), matrices(), out.clone());
        Gemm { x, w, bias: None, rows, epilogue, precision: Precision::F16, out }.into()
    };
    let up = matrices();
    let gather = |source, exponents| {
        let x = a.floats_by("tokens", source, [tokens, 1, cols], |_| a.unit());
        let out = a.floats_by("gathered", F16, [shape.max_rows(), 1, cols], |_| 0.0);
        Gather { x, plan: plan.clone(), out, exponents }
    };
    let exponents = a.ints("exponents", [1, 1, shape.max_rows()], &vec![0; shape.max_rows()]);
    let gathers = [gather(F32, Some(exponents)), gather(F16, None)];
    let mut ops = vec![
        Route { logits, bias: None, config, layer: 0, ids: ids.clone(), weights }.into(),
        // Of weights that are the same bits everywhere.
        Plan { ids, weights: shares.clone(), plan: plan.clone() }.into(),
        gemm(&x, RowMap::Gather(plan.clone()), Epilogue::SwiGlu { up }, &h),
        gemm(&h, RowMap::Segments(plan.clone()), Epilogue::Store, &down),
        Combine {
            rows: down,
            weights: shares,
            plan,
            shared: None,
            accumulate: false,
            out: a.output("y", F32, [tokens, 1, cols]),
        }
        .into(),
    ];
    ops.extend(gathers.map(Op::from));
    ops
}

#[test]
fn a_little_of_every_op() {
    parity(TOLERANCE, small_ops);
    parity(TOLERANCE, sequence_ops);
    crate::harness::parity_in(&[crate::harness::Layout::Dense], TOLERANCE, |a, _| layer_ops(a));
    crate::plans::a_few();
    crate::products::a_few();
    crate::streams::a_few();
}

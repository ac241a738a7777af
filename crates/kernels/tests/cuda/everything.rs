//! A little of every op, in a few hundred launches: what a memory checker can watch in a minute.
//! `compute-sanitizer --tool memcheck|racecheck|initcheck` on `everything::a_little_of_every_op`.

use argon_gguf::Format;
use argon_kernels::DType::{F16, F32, I32};
use argon_kernels::op::*;
use argon_kernels::parity::cases::gather;
use argon_kernels::{Op, Precision, Tensor};
use argon_plan::Shape;

use crate::ops::harness::{Arena, DENSE, Result, Tolerance, parity, parity_in};

/// A product's 64 roundings of numbers up to 1, twice.
const TOLERANCE: Tolerance = Tolerance { abs: 2e-5, rel: 2e-5 };

fn small_ops(a: &Arena) -> Result<Vec<Op>> {
    let x = a.units(F32, [5, 2, 36])?;
    let (flat, y) = (a.units(F32, [5, 1, 36])?, a.output("y", F32, [5, 2, 36])?);
    let (weight, freqs) = (a.units(F32, [1, 1, 36])?, a.units(F32, [1, 1, 9])?);
    let (taps, state) = (a.units(F32, [36, 1, 4])?, a.in_out("conv state", [6, 1, 36], |_| a.unit())?);
    let (conv_out, inject) = (a.output("conv out", F32, [5, 1, 36])?, a.units(F32, [5, 1, 2])?);
    let ids = a.ints([5, 1, 2], &[0, 3, 2, 1, 4, 4, 0, 2, 1, 3])?;
    let pooled = a.output("pooled", F32, [2, 1, 36])?;
    let chosen = a.output("chosen", I32, [5, 1, 1])?;
    let table = a.weight(Format::F32, 1, 5, 36)?;
    let halves = a.output("halves", F16, [5, 2, 36])?;
    Ok(vec![
        Fill { dst: a.output("filled", F16, [3, 1, 7])?, value: 1.5 }.into(),
        Embed { table, ids, out: y.clone() }.into(),
        Add { src: x.clone(), dst: y.clone() }.into(),
        Copy { src: x.clone(), dst: halves }.into(),
        RmsNorm { x: y.clone(), weight: weight.clone(), eps: 1e-6, out: y.clone() }.into(),
        GatedNorm { x: y.clone(), gate: x.clone(), weight, eps: 1e-6, activation: Activation::Silu, out: y.clone() }
            .into(),
        Rope { x: y.clone(), freqs, pairs: RopePairs::Halves, pos0: 7, step: 1 }.into(),
        Conv { x: flat.clone(), weight: taps, dilation: 2, state, accumulate: false, out: conv_out }.into(),
        HyperWrite { y: flat.clone(), inject, x: y.clone() }.into(),
        PleGate { key: x.clone(), query: y, value: flat.clone(), out: a.output("gated", F32, [5, 2, 36])? }.into(),
        MeanPool { x: flat.first(4), ratio: 2, out: pooled.clone() }.into(),
        SelectBlocks { q: x, keys: pooled, pos0: 0, ratio: 3, out: chosen }.into(),
    ])
}

fn sequence_ops(a: &Arena) -> Result<Vec<Op>> {
    let (k, v) = (a.units(F16, [48, 2, 16])?, a.units(F32, [48, 2, 16])?);
    let q = a.units(F32, [40, 4, 16])?;
    let blocks: Vec<i32> = (0..40).flat_map(|t| if t + 9 > 16 { [0, (t + 9) / 8 - 1] } else { [0, -1] }).collect();
    let blocks = a.ints([40, 1, 2], &blocks)?;
    let halves = a.units(F16, [48, 2, 16])?;
    let attention = |select: Option<Selection>, v: &Tensor, name: &str| -> Result<Op> {
        let (q, k, v, gate) = (q.clone(), k.clone(), v.clone(), Some(q.clone()));
        Ok(Attention { q, k, v, gate, select, pos0: 8, scale: 0.25, out: a.output(name, F32, [40, 4, 16])? }.into())
    };
    // Token after token, and by chunks, of which a value that is none spoils 16 columns.
    let delta = |name: &str, tokens: usize, spoil: bool| -> Result<Op> {
        let op = DeltaNet {
            q: a.units(F32, [tokens, 1, 24])?,
            k: a.units(F32, [tokens, 1, 24])?,
            v: a.input(F32, [tokens, 2, 20], |i| if spoil && i == 1500 { f32::NAN } else { a.unit() })?,
            alpha: a.units(F32, [tokens, 1, 2])?,
            beta: a.units(F32, [tokens, 1, 2])?,
            a: a.input(F32, [1, 1, 2], |_| -0.3)?,
            dt_bias: a.units(F32, [1, 1, 2])?,
            heads: HeadMap::Grouped,
            eps: 1e-6,
            state: a.in_out("state", [2, 24, 20], |_| a.unit())?,
            out: a.output(name, F32, [tokens, 2, 20])?,
        };
        Ok(op.into())
    };
    let selected = Some(Selection { blocks, ratio: 8 });
    Ok(vec![
        attention(None, &v, "full")?,
        attention(None, &halves, "full, f16")?,
        attention(selected.clone(), &v, "selected")?,
        attention(selected, &halves, "selected, f16")?,
        delta("by token", 20, false)?,
        delta("by chunk", 70, false)?,
        delta("spoilt", 70, true)?,
    ])
}

/// Routing, plan, both products and the sum.
fn layer_ops(a: &Arena) -> Result<Vec<Op>> {
    let (tokens, top_k, experts, cols) = (30, 3, 4, 64);
    let shape = Shape::new(tokens, top_k, experts, 8).unwrap();
    let logits = a.input(F32, [tokens, 1, experts], |i| (i * 37 % 101) as f32)?;
    let (ids, weights) = (a.output("ids", I32, [tokens, 1, top_k])?, a.output("weights", F32, [tokens, 1, top_k])?);
    let shares = a.units(F32, [tokens, 1, top_k])?;
    let plan = PlanBuffers::of(shape, |name, dtype, shape| a.output(name, dtype, shape))?;
    let x = a.units(F32, [tokens, 1, cols])?;
    let rows = |name: &str| a.in_out(name, [shape.max_rows(), 1, cols], |_| 0.0);
    let (h, down) = (rows("h")?, rows("down")?);
    let config = RouteConfig::new(Gating::Softmax, top_k);
    let matrices = || a.weight(Format::F32, experts, cols, cols);
    let gemm = |x: &Tensor, rows, epilogue, out: &Tensor| -> Result<Op> {
        let (x, w, out) = (x.clone(), matrices()?, out.clone());
        Ok(Gemm { x, w, bias: None, rows, epilogue, precision: Precision::F16, out }.into())
    };
    let up = matrices()?;
    Ok(vec![
        Route { logits, bias: None, config, layer: 0, ids: ids.clone(), weights }.into(),
        // Of weights that are the same bits everywhere.
        Plan { ids, weights: shares.clone(), plan: plan.clone() }.into(),
        gemm(&x, RowMap::Gather(plan.clone()), Epilogue::SwiGlu { up }, &h)?,
        gemm(&h, RowMap::Segments(plan.clone()), Epilogue::Store, &down)?,
        Combine {
            rows: down,
            weights: shares,
            plan: plan.clone(),
            shared: None,
            accumulate: false,
            out: a.output("y", F32, [tokens, 1, cols])?,
        }
        .into(),
        gather::rows(a, plan.clone(), F32, cols, |_| a.unit())?.into(),
        gather::rows(a, plan, F16, cols, |_| a.unit())?.into(),
    ])
}

#[test]
fn a_little_of_every_op() {
    parity(TOLERANCE, |a| a.run_all(small_ops(a)?));
    parity(TOLERANCE, |a| a.run_all(sequence_ops(a)?));
    parity_in(&DENSE, TOLERANCE, |a, _| a.run_all(layer_ops(a)?));
    crate::plans::a_few();
    crate::products::a_few();
    crate::streams::a_few();
}

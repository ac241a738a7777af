//! Operand checks, once, at the edge of a device: kernels behind them assume.

use super::{Attention, Combine, Epilogue, Gather, Gemm, Op, Plan, PlanBuffers, Route, RowMap};
use crate::device::DeviceError;
use crate::tensor::{Buffer, DType, Tensor, Weight};

use DType::{F16, F32, I32, U32};

type Result = std::result::Result<(), DeviceError>;

/// Collects the checks of one op; the first that fails names the op and the operand.
struct Check<'a>(&'a Op);

impl Check<'_> {
    fn that(&self, holds: bool, what: impl FnOnce() -> String) -> Result {
        if holds { Ok(()) } else { Err(DeviceError::Shape { op: self.0.name(), what: what() }) }
    }

    /// `t` has one of `types`, exactly this shape, and lies inside its buffer.
    fn tensor(&self, name: &str, t: &Tensor, types: &[DType], shape: [usize; 3]) -> Result {
        self.that(types.contains(&t.dtype), || format!("{name} is {:?}, not one of {types:?}", t.dtype))?;
        let found = [t.rows, t.groups, t.cols];
        self.that(found == shape, || format!("{name} is {found:?}, not {shape:?}"))?;
        self.inside(name, t.end(), &t.buffer)
    }

    /// `t` has at least these rows, and exactly these groups and columns.
    fn at_least(&self, name: &str, t: &Tensor, types: &[DType], [rows, groups, cols]: [usize; 3]) -> Result {
        self.that(t.rows >= rows, || format!("{name} has {} rows, fewer than {rows}", t.rows))?;
        self.tensor(name, t, types, [t.rows, groups, cols])
    }

    /// The rows of `t`, a tensor of one group, follow each other without gaps.
    fn dense(&self, name: &str, t: &Tensor) -> Result {
        self.that(t.rows <= 1 || t.row_stride == t.cols, || format!("the rows of {name} are not dense"))
    }

    fn inside(&self, name: &str, end: Option<usize>, buffer: &Buffer) -> Result {
        self.that(end.is_some_and(|end| end <= buffer.bytes()), || {
            let end = end.map_or("an end that overflows".into(), |end| format!("its end at byte {end}"));
            format!("{name} has {end} in a buffer of {}", buffer.bytes())
        })
    }

    fn weight(&self, name: &str, w: &Weight, [experts, rows, cols]: [usize; 3]) -> Result {
        let found = [w.experts, w.rows, w.cols];
        self.that(found == [experts, rows, cols], || format!("{name} is {found:?}, not {:?}", [experts, rows, cols]))?;
        let row = w.format.row_bytes(w.cols);
        self.that(row.is_some_and(|n| n <= w.row_bytes), || {
            format!("{name}: {} columns do not fit {:?}", w.cols, w.format)
        })?;
        self.inside(name, w.end(), &w.buffer)
    }

    /// Nothing that is written overlaps itself, another operand or a weight's memory, except the very same view where
    /// `in_place` names its input.
    fn no_overlap(&self, in_place: Option<&Tensor>) -> Result {
        let accesses = self.0.accesses();
        for (i, (written, access)) in accesses.iter().enumerate() {
            if *access == super::Access::Read {
                continue;
            }
            self.that(!written.overlaps_itself(), || format!("operand {i} is written and names an element twice"))?;
            self.that(self.0.weights().iter().all(|w| !written.buffer.same(&w.buffer)), || {
                format!("operand {i} is written and shares a buffer with a weight")
            })?;
            for (j, (other, _)) in accesses.iter().enumerate() {
                let same = in_place.is_some_and(|x| std::ptr::eq(x, *other) && same_view(x, written));
                self.that(i == j || same || !written.overlaps(other), || {
                    format!("operand {i} is written and overlaps operand {j}")
                })?;
            }
        }
        Ok(())
    }
}

fn same_view(a: &Tensor, b: &Tensor) -> bool {
    a.buffer.same(&b.buffer)
        && [a.offset, a.rows, a.groups, a.cols, a.row_stride, a.group_stride]
            == [b.offset, b.rows, b.groups, b.cols, b.row_stride, b.group_stride]
}

fn shape(t: &Tensor) -> [usize; 3] {
    [t.rows, t.groups, t.cols]
}

pub(super) fn check(op: &Op) -> Result {
    let c = Check(op);
    let mut in_place = None;
    match op {
        Op::Fill(o) => c.tensor("dst", &o.dst, &[F32, F16], shape(&o.dst))?,
        Op::Copy(o) => {
            let [r, g, w] = shape(&o.dst);
            c.tensor("dst", &o.dst, &[F32, F16], [r, g, w])?;
            c.tensor("src", &o.src, &[F32], [r, if o.src.groups == 1 { 1 } else { g }, w])?;
        }
        Op::Add(o) => {
            c.tensor("src", &o.src, &[F32], shape(&o.src))?;
            c.tensor("dst", &o.dst, &[F32], shape(&o.src))?;
        }
        Op::Embed(o) => {
            let [t, _, g] = shape(&o.ids);
            c.weight("table", &o.table, [1, o.table.rows, o.table.cols])?;
            c.tensor("ids", &o.ids, &[I32], [t, 1, g])?;
            c.tensor("out", &o.out, &[F32], [t, g, o.table.cols])?;
        }
        Op::RmsNorm(o) => {
            let [_, g, w] = shape(&o.x);
            c.tensor("x", &o.x, &[F32], shape(&o.x))?;
            c.tensor("weight", &o.weight, &[F32], [1, if o.weight.groups == 1 { 1 } else { g }, w])?;
            c.tensor("out", &o.out, &[F32], shape(&o.x))?;
            in_place = Some(&o.x);
        }
        Op::GatedNorm(o) => {
            c.tensor("x", &o.x, &[F32], shape(&o.x))?;
            c.tensor("gate", &o.gate, &[F32], shape(&o.x))?;
            c.tensor("weight", &o.weight, &[F32], [1, 1, o.x.cols])?;
            c.tensor("out", &o.out, &[F32], shape(&o.x))?;
            in_place = Some(&o.x);
        }
        Op::Rope(o) => {
            c.tensor("x", &o.x, &[F32], shape(&o.x))?;
            c.tensor("freqs", &o.freqs, &[F32], [1, 1, o.freqs.cols])?;
            c.that(2 * o.freqs.cols <= o.x.cols, || format!("{} pairs in {} columns", o.freqs.cols, o.x.cols))?;
        }
        Op::Gemm(o) => gemm(&c, o)?,
        Op::Attention(o) => attention(&c, o)?,
        Op::MeanPool(o) => {
            let [b, _, w] = shape(&o.out);
            c.tensor("out", &o.out, &[F32], [b, 1, w])?;
            c.tensor("x", &o.x, &[F32], [b.saturating_mul(o.ratio), 1, w])?;
        }
        Op::SelectBlocks(o) => {
            let [t, _, w] = shape(&o.q);
            c.that(o.ratio > 0, || "ratio is 0".into())?;
            c.that(o.q.groups > 0, || "no query heads".into())?;
            c.tensor("q", &o.q, &[F32], shape(&o.q))?;
            c.at_least("keys", &o.keys, &[F32], [(o.pos0 + t) / o.ratio, 1, w])?;
            c.tensor("out", &o.out, &[I32], [t, 1, o.out.cols])?;
        }
        Op::Conv(o) => {
            let [t, _, w] = shape(&o.x);
            c.that(o.weight.cols > 0, || "the kernel has no taps".into())?;
            c.tensor("x", &o.x, &[F32], [t, 1, w])?;
            c.tensor("weight", &o.weight, &[F32], [w, 1, o.weight.cols])?;
            c.tensor("state", &o.state, &[F32], [(o.weight.cols - 1).saturating_mul(o.dilation), 1, w])?;
            c.tensor("out", &o.out, &[F32], [t, 1, w])?;
        }
        Op::DeltaNet(o) => {
            let ([t, hk, ck], [_, hv, cv]) = (shape(&o.k), shape(&o.v));
            c.that(hk > 0 && hv % hk == 0, || format!("{hv} value heads over {hk} key heads"))?;
            for (name, x, want) in [
                ("q", &o.q, [t, hk, ck]),
                ("k", &o.k, [t, hk, ck]),
                ("v", &o.v, [t, hv, cv]),
                ("alpha", &o.alpha, [t, 1, hv]),
                ("beta", &o.beta, [t, 1, hv]),
                ("a", &o.a, [1, 1, hv]),
                ("dt_bias", &o.dt_bias, [1, 1, hv]),
                ("state", &o.state, [hv, ck, cv]),
                ("out", &o.out, [t, hv, cv]),
            ] {
                c.tensor(name, x, &[F32], want)?;
            }
        }
        Op::HyperWrite(o) => {
            let [t, s, d] = shape(&o.x);
            c.tensor("x", &o.x, &[F32], [t, s, d])?;
            c.tensor("y", &o.y, &[F32], [t, 1, d])?;
            c.tensor("inject", &o.inject, &[F32], [t, 1, s])?;
        }
        Op::PleGate(o) => {
            let [t, s, d] = shape(&o.out);
            c.tensor("out", &o.out, &[F32], [t, s, d])?;
            c.tensor("key", &o.key, &[F32], [t, s, d])?;
            c.tensor("query", &o.query, &[F32], [t, s, d])?;
            c.tensor("value", &o.value, &[F32], [t, 1, d])?;
        }
        Op::Route(o) => route(&c, o)?,
        Op::Plan(o) => plan(&c, o)?,
        Op::Gather(o) => gather(&c, o)?,
        Op::Combine(o) => combine(&c, o)?,
    }
    c.no_overlap(in_place)
}

fn gemm(c: &Check, o: &Gemm) -> Result {
    let [m, _, k] = shape(&o.x);
    let n = o.w.rows;
    c.tensor("x", &o.x, &[F32], [m, 1, k])?;
    let (experts, rows) = match &o.rows {
        RowMap::Identity => (1, m),
        RowMap::Gather(p) => {
            c.that(m == p.shape.tokens(), || format!("x has {m} rows for {} tokens", p.shape.tokens()))?;
            (p.shape.experts(), p.shape.max_rows())
        }
        RowMap::Segments(p) => {
            c.that(m == p.shape.max_rows(), || format!("x has {m} rows for {} of the plan", p.shape.max_rows()))?;
            (p.shape.experts(), p.shape.max_rows())
        }
    };
    c.weight("w", &o.w, [experts, n, k])?;
    match &o.epilogue {
        Epilogue::SwiGlu { up } => c.weight("up", up, [experts, n, k])?,
        Epilogue::GateMean { normed } => {
            let [_, s, d] = shape(normed);
            c.that(matches!(o.rows, RowMap::Identity), || "gate-mean is for dense products".into())?;
            c.that(s * d == n, || format!("{n} outputs for {s} streams of {d}"))?;
            c.tensor("normed", normed, &[F32], [m, s, d])?;
            c.tensor("out", &o.out, &[F32], [m, 1, d])?;
        }
        Epilogue::Store | Epilogue::Accumulate | Epilogue::Silu { .. } => {}
    }
    if let Some(bias) = &o.bias {
        c.that(matches!(o.rows, RowMap::Identity), || "a bias is for dense products".into())?;
        c.tensor("bias", bias, &[F32], [1, 1, n])?;
    }
    match &o.epilogue {
        Epilogue::GateMean { .. } => Ok(()),
        _ => c.tensor("out", &o.out, &[F32], [rows, 1, n]),
    }
}

fn attention(c: &Check, o: &Attention) -> Result {
    let ([t, h, w], [_, hkv, wv]) = (shape(&o.q), shape(&o.v));
    c.that(hkv > 0 && h % hkv == 0, || format!("{h} query heads over {hkv} key heads"))?;
    c.tensor("q", &o.q, &[F32], [t, h, w])?;
    c.at_least("k", &o.k, &[F32, F16], [o.pos0 + t, hkv, w])?;
    c.at_least("v", &o.v, &[F32, F16], [o.pos0 + t, hkv, wv])?;
    c.tensor("out", &o.out, &[F32], [t, h, wv])?;
    if let Some(gate) = &o.gate {
        c.tensor("gate", gate, &[F32], [t, h, wv])?;
    }
    match &o.select {
        Some(s) => {
            c.that(s.ratio > 0, || "ratio is 0".into())?;
            c.tensor("blocks", &s.blocks, &[I32], [t, 1, s.blocks.cols])
        }
        None => Ok(()),
    }
}

fn route(c: &Check, o: &Route) -> Result {
    let ([t, _, e], k) = (shape(&o.logits), o.config.top_k);
    c.that(0 < k && k <= e, || format!("{k} experts of {e}"))?;
    c.tensor("logits", &o.logits, &[F32], [t, 1, e])?;
    c.tensor("ids", &o.ids, &[I32], [t, 1, k])?;
    c.tensor("weights", &o.weights, &[F32], [t, 1, k])?;
    if let Some(bias) = &o.bias {
        c.tensor("bias", bias, &[F32], [1, 1, e])?;
    }
    if let Some(g) = o.config.groups {
        c.that(g.groups > 0 && e % g.groups == 0 && 0 < g.used && g.used <= g.groups, || {
            format!("{} of {} groups of {e} experts", g.used, g.groups)
        })?;
        c.that(k <= g.used * (e / g.groups), || format!("{k} experts from {} groups", g.used))?;
    }
    Ok(())
}

fn plan_buffers(c: &Check, p: &PlanBuffers) -> Result {
    let s = &p.shape;
    for (name, t, want) in [
        ("bcnt", &p.bcnt, [s.blocks(), 1, s.experts()]),
        ("boff", &p.boff, [s.blocks(), 1, s.experts()]),
        ("eoff", &p.eoff, [1, 1, s.experts() + 1]),
        ("tiles", &p.tiles, [s.max_tiles(), 1, 3]),
        ("sw", &p.sw, [1, 1, s.max_rows()]),
        ("meta", &p.meta, [1, 1, argon_plan::meta::WORDS]),
    ] {
        c.tensor(name, t, &[U32], want)?;
        c.dense(name, t)?;
    }
    c.tensor("stok", &p.stok, &[I32], [1, 1, s.max_rows()])?;
    c.tensor("pos", &p.pos, &[I32], [1, 1, s.entries()])
}

fn plan(c: &Check, o: &Plan) -> Result {
    let (t, k) = (o.plan.shape.tokens(), o.plan.shape.top_k());
    c.tensor("ids", &o.ids, &[I32], [t, 1, k])?;
    c.dense("ids", &o.ids)?;
    c.tensor("weights", &o.weights, &[F32], [t, 1, k])?;
    c.dense("weights", &o.weights)?;
    plan_buffers(c, &o.plan)
}

fn gather(c: &Check, o: &Gather) -> Result {
    let (t, rows, d) = (o.plan.shape.tokens(), o.plan.shape.max_rows(), o.x.cols);
    plan_buffers(c, &o.plan)?;
    c.tensor("x", &o.x, &[F32, F16], [t, 1, d])?;
    c.tensor("out", &o.out, &[F16], [rows, 1, d])?;
    match (&o.exponents, o.x.dtype) {
        (Some(exponents), F32) => c.tensor("exponents", exponents, &[I32], [1, 1, rows]),
        (None, F16) => Ok(()),
        (given, dtype) => c.that(false, || format!("{} exponents of {dtype:?}", given.iter().len())),
    }
}

fn combine(c: &Check, o: &Combine) -> Result {
    let [t, _, d] = shape(&o.out);
    c.that(t == o.plan.shape.tokens(), || format!("out has {t} rows for {} tokens", o.plan.shape.tokens()))?;
    plan_buffers(c, &o.plan)?;
    c.tensor("out", &o.out, &[F32], [t, 1, d])?;
    c.tensor("rows", &o.rows, &[F32], [o.plan.shape.max_rows(), 1, d])?;
    c.tensor("weights", &o.weights, &[F32], [t, 1, o.plan.shape.top_k()])?;
    if let Some(shared) = &o.shared {
        c.tensor("shared", &shared.y, &[F32], [t, 1, d])?;
        if let Some(gate) = &shared.gate {
            c.tensor("shared gate", gate, &[F32], [t, 1, 1])?;
        }
    }
    Ok(())
}

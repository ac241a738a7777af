//! The operations a model is made of: for each its formula, its shapes, and what it reads and writes.
//!
//! Letters: T tokens in the chunk, K experts per token, E experts, D hidden size, F expert FFN length, R rows of the plan,
//! S hyper-connection streams, H heads. `[T, H, C]` is rows, groups, cols of a [`Tensor`]. All arithmetic is f32 unless an
//! op says otherwise; a [`Gemm`]'s operand precision is named by its [`Precision`].

mod check;
mod moe;

pub use moe::{Combine, Gather, Gating, GroupLimit, Plan, PlanBuffers, Route, RouteConfig, Shared};

use crate::device::DeviceError;
use crate::tensor::{Tensor, Weight};

/// How exactly a product's operands are represented; accumulation is f32 or exact in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Dequantised weights and activations in f32.
    F32,
    /// Operands at least as accurate as f16.
    F16,
    /// Activations as 8-bit integers with fine-grained scales.
    Int8,
}

impl Precision {
    /// The name a user types and every report prints.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::Int8 => "int8",
        }
    }
}

/// The enum of all operations from the one list of them, with `Op::from(Gemm { .. })` and so on, so that a model file names each op
/// once.
macro_rules! ops {
    ($($variant:ident),* $(,)?) => {
        /// One operation, enqueued with [`Device::enqueue`](crate::Device::enqueue).
        #[derive(Clone, Debug)]
        #[allow(missing_docs)] // each variant is its struct
        pub enum Op {
            $($variant($variant)),*
        }

        impl Op {
            /// The names of all variants, for tests that are to leave none out.
            pub const VARIANTS: &[&str] = &[$(stringify!($variant)),*];

            /// The variant's name.
            pub fn variant(&self) -> &'static str {
                match self {
                    $(Op::$variant(_) => stringify!($variant)),*
                }
            }
        }

        $(impl From<$variant> for Op {
            fn from(op: $variant) -> Op {
                Op::$variant(op)
            }
        })*
    };
}
ops!(
    Fill,
    Copy,
    Add,
    Embed,
    RmsNorm,
    GatedNorm,
    Rope,
    Gemm,
    Attention,
    MeanPool,
    SelectBlocks,
    Conv,
    DeltaNet,
    HyperWrite,
    PleGate,
    Route,
    Plan,
    Gather,
    Combine,
);

/// What an op does to an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    Read,
    /// Written, or read and written.
    Write,
}

/// `dst[r, g, c] = value`.
#[derive(Clone, Debug)]
pub struct Fill {
    /// f32 or f16, any shape.
    pub dst: Tensor,
    /// The value of every element.
    pub value: f32,
}

/// `dst[r, g, c] = src[r, g or 0, c]`, converted to the type of `dst` (f16: nearest, ties to even).
/// Writes keys and values into a cache, and repeats the embedding into every hyper-connection stream.
#[derive(Clone, Debug)]
pub struct Copy {
    /// f32 `[R, G or 1, C]`; one group is repeated into all of `dst`'s.
    pub src: Tensor,
    /// f32 or f16 `[R, G, C]`.
    pub dst: Tensor,
}

/// `dst += src`, same shape, f32.
#[derive(Clone, Debug)]
pub struct Add {
    /// `[R, G, C]`.
    pub src: Tensor,
    /// `[R, G, C]`, read and written.
    pub dst: Tensor,
}

/// `out[t, g, :] = table[ids[t, g], :]`, decoded to f32. An id outside the table is an error, never followed.
#[derive(Clone, Debug)]
pub struct Embed {
    /// One matrix of vocabulary x C.
    pub table: Weight,
    /// i32 `[T, 1, G]`.
    pub ids: Tensor,
    /// f32 `[T, G, C]`.
    pub out: Tensor,
}

/// `out[r, g, :] = x[r, g, :] / sqrt(mean(x[r, g, :]^2) + eps) * weight[g or 0, :]`.
/// Per token with one group, per head or per hyper-connection stream with several. `out` may be `x` itself.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// f32 `[R, G, C]`.
    pub x: Tensor,
    /// f32 `[1, G, C]`, or `[1, 1, C]` shared by all groups.
    pub weight: Tensor,
    /// Added to the mean of squares.
    pub eps: f32,
    /// f32 `[R, G, C]`.
    pub out: Tensor,
}

/// Activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `1 / (1 + exp(-z))`.
    Sigmoid,
    /// `z / (1 + exp(-z))`.
    Silu,
}

/// `out = rms_norm(x, weight, eps) * activation(gate)`, per group. `out` may be `x` itself.
#[derive(Clone, Debug)]
pub struct GatedNorm {
    /// f32 `[T, H, C]`.
    pub x: Tensor,
    /// f32 `[T, H, C]`.
    pub gate: Tensor,
    /// f32 `[1, 1, C]`.
    pub weight: Tensor,
    /// Added to the mean of squares.
    pub eps: f32,
    /// Applied to the gate.
    pub activation: Activation,
    /// f32 `[T, H, C]`.
    pub out: Tensor,
}

/// Which columns form the pairs that a rotation turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// `(i, i + n)` for i below n = the number of frequencies ("neox").
    Halves,
    /// `(2i, 2i + 1)` ("normal").
    Neighbours,
}

/// Rotates pair i of every group of row r by the angle `(pos0 + r * step) * freqs[i]`, in place; columns beyond the
/// pairs stay as they are. The position is converted to f32 and the product rounded to f32, as models were trained: at
/// large positions that rounding turns a pair further than any tolerance.
#[derive(Clone, Debug)]
pub struct Rope {
    /// f32 `[R, H, C]`, read and written; C >= 2n.
    pub x: Tensor,
    /// f32 `[1, 1, n]`, radians per position.
    pub freqs: Tensor,
    /// Which columns pair up.
    pub pairs: RopePairs,
    /// Position of row 0.
    pub pos0: usize,
    /// Positions from a row to the next.
    pub step: usize,
}

/// Which rows a [`Gemm`] reads and writes.
#[derive(Clone, Debug)]
pub enum RowMap {
    /// Output row r is input row r times expert 0.
    Identity,
    /// Output row r of the plan is input row `stok[r]` times the row's expert: gate and up.
    Gather(PlanBuffers),
    /// Output row r of the plan is input row r times the row's expert: down.
    Segments(PlanBuffers),
}

/// What happens to a product `p[r, n] = sum_k x[row, k] * w[n, k]` before it is stored.
#[derive(Clone, Debug)]
pub enum Epilogue {
    /// `out = p`.
    Store,
    /// `out += p`.
    Accumulate,
    /// `out = silu(p * scale)`.
    Silu {
        /// Applied before the activation.
        scale: f32,
    },
    /// `out = silu(p) * (x · up)`: both products share their rows.
    SwiGlu {
        /// The second factor's weight, same shape as `w`.
        up: Weight,
    },
    /// `out[t, d] = mean over s of sigmoid(p[t, s*D + d]) * normed[t, s, d]`: the hyper-connection's mixed input.
    GateMean {
        /// f32 `[T, S, D]`.
        normed: Tensor,
    },
}

/// `p = x · wᵀ`, dense or routed: the row map is a parameter, not another kernel.
/// Rows of `out` that are padding in the plan are left as they were.
#[derive(Clone, Debug)]
pub struct Gemm {
    /// f32 `[M, 1, K]`.
    pub x: Tensor,
    /// E matrices of N x K (one for [`RowMap::Identity`]).
    pub w: Weight,
    /// f32 `[1, 1, N]`, added to `p` before the epilogue; dense only.
    pub bias: Option<Tensor>,
    /// Which rows meet which expert.
    pub rows: RowMap,
    /// What is stored.
    pub epilogue: Epilogue,
    /// How operands are represented.
    pub precision: Precision,
    /// f32 `[M or max rows of the plan, 1, N]`, or `[T, 1, D]` for [`Epilogue::GateMean`].
    pub out: Tensor,
}

/// Causal softmax attention of T queries at positions `pos0..pos0 + T` over a cache that already holds theirs:
/// `out[t, h] = softmax_j(scale * q[t, h] · k[j, kv(h)]) v[j, kv(h)]`, j <= pos0 + t, `kv(h) = h / (H / Hkv)`,
/// then times `sigmoid(gate[t, h])` where there is a gate. A query to which a selection leaves no key has an output of 0.
#[derive(Clone, Debug)]
pub struct Attention {
    /// f32 `[T, H, C]`.
    pub q: Tensor,
    /// f32 or f16 `[>= pos0 + T, Hkv, C]`.
    pub k: Tensor,
    /// f32 or f16 `[>= pos0 + T, Hkv, Cv]`.
    pub v: Tensor,
    /// f32 `[T, H, Cv]`.
    pub gate: Option<Tensor>,
    /// Keys a query may see beyond causality; all where absent.
    pub select: Option<Selection>,
    /// Position of query 0.
    pub pos0: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// f32 `[T, H, Cv]`.
    pub out: Tensor,
}

/// A query at position p sees the tokens of its selected blocks and those of its incomplete last block, that is from
/// `(p + 1) / ratio * ratio` to p.
#[derive(Clone, Debug)]
pub struct Selection {
    /// i32 `[T, 1, n]`: block numbers, -1 where there are fewer than n ([`SelectBlocks::out`]).
    pub blocks: Tensor,
    /// Tokens in a block.
    pub ratio: usize,
}

/// `out[b, 0, :] = mean of x[b*ratio .. (b+1)*ratio, 0, :]`.
#[derive(Clone, Debug)]
pub struct MeanPool {
    /// f32 `[B*ratio, 1, C]`.
    pub x: Tensor,
    /// Rows in a block.
    pub ratio: usize,
    /// f32 `[B, 1, C]`.
    pub out: Tensor,
}

/// The QSA indexer: of the `nb = (p + 1) / ratio` blocks that are complete at a query's position p, the n with the highest
/// `sum_h max(0, q[t, h] · keys[b])`, ties to the lower block; ascending, the rest of the row -1.
#[derive(Clone, Debug)]
pub struct SelectBlocks {
    /// f32 `[T, H, C]`.
    pub q: Tensor,
    /// f32 `[>= (pos0 + T) / ratio, 1, C]`: one key per complete block.
    pub keys: Tensor,
    /// Position of query 0.
    pub pos0: usize,
    /// Tokens in a block.
    pub ratio: usize,
    /// i32 `[T, 1, n]`.
    pub out: Tensor,
}

/// Causal depthwise convolution along the tokens, then SiLU:
/// `y[t, c] = silu(sum_j weight[c, j] * in[t - (k-1-j) * dilation, c])`, where `in` before the chunk is the state (its last
/// row is token -1). Afterwards the state holds the last `(k-1) * dilation` rows of state and chunk together.
#[derive(Clone, Debug)]
pub struct Conv {
    /// f32 `[T, 1, C]`.
    pub x: Tensor,
    /// f32 `[C, 1, k]`.
    pub weight: Tensor,
    /// Tokens between taps.
    pub dilation: usize,
    /// f32 `[(k-1)*dilation, 1, C]`, read and written.
    pub state: Tensor,
    /// `out += y` instead of `out = y`.
    pub accumulate: bool,
    /// f32 `[T, 1, C]`.
    pub out: Tensor,
}

/// Which key head serves value head h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadMap {
    /// `h mod Hk`.
    Tiled,
    /// `h / (Hv / Hk)`.
    Grouped,
}

/// The gated delta rule, token after token, per value head h with key head kh:
/// `q̂ = q / sqrt(sum q² + eps) / sqrt(Ck)`, k̂ likewise without the last factor; decay
/// `g = exp(a[h] * softplus(alpha[t, h] + dt_bias[h]))`, `b = sigmoid(beta[t, h])`;
/// `M = g M; d = b (v - Mᵀ k̂); M += k̂ dᵀ; out[t, h] = Mᵀ q̂`.
#[derive(Clone, Debug)]
pub struct DeltaNet {
    /// f32 `[T, Hk, Ck]`, before normalisation.
    pub q: Tensor,
    /// f32 `[T, Hk, Ck]`, before normalisation.
    pub k: Tensor,
    /// f32 `[T, Hv, Cv]`.
    pub v: Tensor,
    /// f32 `[T, 1, Hv]`.
    pub alpha: Tensor,
    /// f32 `[T, 1, Hv]`.
    pub beta: Tensor,
    /// f32 `[1, 1, Hv]`, negative.
    pub a: Tensor,
    /// f32 `[1, 1, Hv]`.
    pub dt_bias: Tensor,
    /// Which key head serves a value head.
    pub heads: HeadMap,
    /// Added to the sums of squares of q and k.
    pub eps: f32,
    /// f32 `[Hv, Ck, Cv]`: M, read and written.
    pub state: Tensor,
    /// f32 `[T, Hv, Cv]`.
    pub out: Tensor,
}

/// `x[t, s, :] += y[t, :] * 2 sigmoid(inject[t, s] / S)`: a block's output into every residual stream.
#[derive(Clone, Debug)]
pub struct HyperWrite {
    /// f32 `[T, 1, D]`.
    pub y: Tensor,
    /// f32 `[T, 1, S]`.
    pub inject: Tensor,
    /// f32 `[T, S, D]`, read and written.
    pub x: Tensor,
}

/// `out[t, s, :] = sigmoid(r(key[t, s] · query[t, s] / sqrt(D))) * value[t, :]`, `r(g) = sign(g) sqrt(max(|g|, 1e-6))`.
#[derive(Clone, Debug)]
pub struct PleGate {
    /// f32 `[T, S, D]`, normed.
    pub key: Tensor,
    /// f32 `[T, S, D]`, normed.
    pub query: Tensor,
    /// f32 `[T, 1, D]`.
    pub value: Tensor,
    /// f32 `[T, S, D]`.
    pub out: Tensor,
}

impl Op {
    /// The op's name, as reports and errors print it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Fill(_) => "fill",
            Op::Copy(_) => "copy",
            Op::Add(_) => "add",
            Op::Embed(_) => "embed",
            Op::RmsNorm(_) => "rms_norm",
            Op::GatedNorm(_) => "gated_norm",
            Op::Rope(_) => "rope",
            Op::Gemm(_) => "gemm",
            Op::Attention(_) => "attention",
            Op::MeanPool(_) => "mean_pool",
            Op::SelectBlocks(_) => "select_blocks",
            Op::Conv(_) => "conv",
            Op::DeltaNet(_) => "delta_net",
            Op::HyperWrite(_) => "hyper_write",
            Op::PleGate(_) => "ple_gate",
            Op::Route(_) => "route",
            Op::Plan(_) => "plan",
            Op::Gather(o) => o.name(),
            Op::Combine(_) => "combine",
        }
    }

    /// Every activation operand with what the op does to it. Devices order work by this and by nothing else.
    /// [`Op::weights`] are constant while work is in flight and therefore not listed.
    pub fn accesses(&self) -> Vec<(&Tensor, Access)> {
        use Access::{Read, Write};
        match self {
            Op::Fill(o) => vec![(&o.dst, Write)],
            Op::Copy(o) => vec![(&o.src, Read), (&o.dst, Write)],
            Op::Add(o) => vec![(&o.src, Read), (&o.dst, Write)],
            Op::Embed(o) => vec![(&o.ids, Read), (&o.out, Write)],
            Op::RmsNorm(o) => vec![(&o.x, Read), (&o.weight, Read), (&o.out, Write)],
            Op::GatedNorm(o) => vec![(&o.x, Read), (&o.gate, Read), (&o.weight, Read), (&o.out, Write)],
            Op::Rope(o) => vec![(&o.freqs, Read), (&o.x, Write)],
            Op::Gemm(o) => o.accesses(),
            Op::Attention(o) => {
                let mut a = vec![(&o.q, Read), (&o.k, Read), (&o.v, Read), (&o.out, Write)];
                a.extend(o.gate.iter().map(|t| (t, Read)));
                a.extend(o.select.iter().map(|s| (&s.blocks, Read)));
                a
            }
            Op::MeanPool(o) => vec![(&o.x, Read), (&o.out, Write)],
            Op::SelectBlocks(o) => vec![(&o.q, Read), (&o.keys, Read), (&o.out, Write)],
            Op::Conv(o) => vec![(&o.x, Read), (&o.weight, Read), (&o.state, Write), (&o.out, Write)],
            Op::DeltaNet(o) => vec![
                (&o.q, Read),
                (&o.k, Read),
                (&o.v, Read),
                (&o.alpha, Read),
                (&o.beta, Read),
                (&o.a, Read),
                (&o.dt_bias, Read),
                (&o.state, Write),
                (&o.out, Write),
            ],
            Op::HyperWrite(o) => vec![(&o.y, Read), (&o.inject, Read), (&o.x, Write)],
            Op::PleGate(o) => vec![(&o.key, Read), (&o.query, Read), (&o.value, Read), (&o.out, Write)],
            Op::Route(o) => o.accesses(),
            Op::Plan(o) => o.accesses(),
            Op::Gather(o) => o.accesses(),
            Op::Combine(o) => o.accesses(),
        }
    }

    /// The weights that the op reads.
    pub fn weights(&self) -> Vec<&Weight> {
        match self {
            Op::Embed(o) => vec![&o.table],
            Op::Gemm(Gemm { w, epilogue: Epilogue::SwiGlu { up }, .. }) => vec![w, up],
            Op::Gemm(o) => vec![&o.w],
            _ => vec![],
        }
    }

    /// Whether the operands fit each other and no operand that is written overlaps another, except where the op allows
    /// it to be the very same view.
    pub fn check(&self) -> Result<(), DeviceError> {
        check::check(self)
    }
}

impl Gemm {
    fn accesses(&self) -> Vec<(&Tensor, Access)> {
        let mut a = vec![(&self.x, Access::Read), (&self.out, Access::Write)];
        a.extend(self.bias.iter().map(|t| (t, Access::Read)));
        if let RowMap::Gather(plan) | RowMap::Segments(plan) = &self.rows {
            a.extend([&plan.eoff, &plan.tiles, &plan.stok, &plan.meta].map(|t| (t, Access::Read)));
        }
        if let Epilogue::GateMean { normed } = &self.epilogue {
            a.push((normed, Access::Read));
        }
        a
    }
}

//! Softmax attention: projections, optional norms and biases, rotation, the cache, an optional indexer that selects blocks
//! of keys, an optional output gate.

use argon_kernels::device::tensor;
use argon_kernels::op::{self, Copy, RmsNorm, Rope, RopePairs};
use argon_kernels::{DType, Device, Tensor, Weight};

use super::family::NormSpan;
use super::indexer::{Indexer, IndexerCache, IndexerScratch};
use super::pass::{Pass, Result, Sink};
use crate::config::{AttentionConfig, Config};
use crate::state::{CacheTypes, StateTensor};
use crate::weights::Binder;

/// The weights of one layer.
pub(crate) struct Attention {
    q: Projection,
    k: Projection,
    v: Projection,
    /// D x H*Cv.
    out: Projection,
    norms: Option<Norms>,
    rotation: Rotation,
    indexer: Option<Indexer>,
    config: AttentionConfig,
    output_gate: bool,
}

/// A projection of the input to heads.
struct Projection {
    /// Columns of all heads x D.
    weight: Weight,
    /// f32 `[1, 1, N]`.
    bias: Option<Tensor>,
}

/// Norms of queries and keys.
struct Norms {
    span: NormSpan,
    /// f32 `[1, 1, Ck]`, or all heads' columns for [`NormSpan::Row`].
    q: Tensor,
    /// f32 `[1, 1, Ck]`, or all heads' columns for [`NormSpan::Row`].
    k: Tensor,
    eps: f32,
}

/// The rotation that stands for a position.
#[derive(Clone)]
pub(crate) struct Rotation {
    /// f32 `[1, 1, n]`, radians per position.
    pub freqs: Tensor,
    /// Which columns pair up.
    pub pairs: RopePairs,
    /// What turned columns are multiplied by beforehand, as part of the norm before ([`Rotation::norm`]).
    magnitude: f32,
}

/// Keys and values of the tokens so far.
pub(crate) struct AttentionCache {
    /// f32 or f16 `[context, Hkv, Ck]`.
    k: Tensor,
    /// f32 or f16 `[context, Hkv, Cv]`.
    v: Tensor,
    indexer: Option<IndexerCache>,
}

/// Memory for one chunk, shared by all layers.
#[derive(Clone)]
pub(crate) struct AttentionScratch {
    /// f32 `[T, H, Ck]`, or `[T, H, 2*Ck]` with each head's gate behind its query.
    q: Tensor,
    /// f32 `[T, Hkv, Ck]`.
    k: Tensor,
    /// f32 `[T, Hkv, Cv]`.
    v: Tensor,
    /// f32 `[T, H, Cv]`.
    out: Tensor,
    indexer: Option<IndexerScratch>,
}

impl Rotation {
    /// The frequencies of `config`, divided by the factors of the tensor `rope_freqs` where the file has it.
    pub fn bind(binder: &mut Binder, config: &Config) -> Result<Self> {
        const FACTORS: &str = "rope_freqs.weight";
        let rope = &config.attention.rope;
        let pairs = rope.dims / 2;
        let factors = if binder.has(FACTORS) { binder.host_vector(FACTORS, pairs)? } else { vec![1.0; pairs] };
        let freqs = rope.freqs(&factors);
        Ok(Self { freqs: binder.values(&freqs)?, pairs: config.family.attention.rope, magnitude: rope.magnitude })
    }

    /// The weights of a norm over `heads` heads of `dim` columns whose output is turned, f32 `[1, 1, heads*dim]`.
    pub fn norm(&self, binder: &mut Binder, name: &str, heads: usize, dim: usize) -> Result<Tensor> {
        let mut weights = binder.host_vector(name, heads * dim)?;
        for head in weights.chunks_exact_mut(dim) {
            head[..2 * self.freqs.cols].iter_mut().for_each(|weight| *weight *= self.magnitude);
        }
        binder.values(&weights)
    }

    /// Rotates the rows of `x`, the first standing at `start`, each `step` behind the one before.
    pub fn turn(&self, pass: &Pass, x: &Tensor, start: usize, step: usize) -> Result<()> {
        let Self { freqs, pairs, .. } = self.clone();
        pass.run(Rope { x: x.clone(), freqs, pairs, pos0: start, step })
    }
}

impl Attention {
    /// Binds the tensors of `layer`; `indexed` says whether its indexer selects what queries see.
    pub fn bind(
        binder: &mut Binder,
        config: &Config,
        rotation: &Rotation,
        layer: usize,
        indexed: bool,
    ) -> Result<Self> {
        let (c, traits) = (config.attention.clone(), &config.family.attention);
        let query_dim = if traits.output_gate { 2 * c.key_dim } else { c.key_dim };
        let (q, k, v) = (c.heads * query_dim, c.kv_heads * c.key_dim, c.kv_heads * c.value_dim);
        let [q, k, v] = projections(binder, config.hidden, layer, [q, k, v])?;
        let norms = match traits.qk_norm {
            Some(span) => Some(Norms::bind(binder, config, rotation, layer, span)?),
            None => None,
        };
        Ok(Self {
            q,
            k,
            v,
            out: Projection::bind(binder, &format!("blk.{layer}.attn_output"), config.hidden, c.heads * c.value_dim)?,
            norms,
            rotation: rotation.clone(),
            indexer: match &c.indexer {
                Some(indexer) if indexed => Some(Indexer::bind(binder, config, indexer, rotation, layer)?),
                _ => None,
            },
            output_gate: traits.output_gate,
            config: c,
        })
    }

    /// `sink` receives the attention of the chunk's tokens, `x` f32 `[T, 1, D]`, over themselves and the cache, which
    /// takes their keys and values.
    pub fn forward(
        &self,
        pass: &mut Pass,
        layer: usize,
        cache: &AttentionCache,
        scratch: &AttentionScratch,
        x: &Tensor,
        sink: &Sink,
    ) -> Result<()> {
        let s = scratch.first(pass.len());
        self.q.apply(pass, x, &s.q)?;
        self.k.apply(pass, x, &s.k)?;
        self.v.apply(pass, x, &s.v)?;
        let dim = self.config.key_dim;
        let (q, gate) = match self.output_gate {
            true => (s.q.cols(0..dim), Some(s.q.cols(dim..2 * dim))),
            false => (s.q, None),
        };
        if let Some(norms) = &self.norms {
            norms.apply(pass, &q, &s.k)?;
        }
        let (start, end) = (pass.chunk.start, pass.chunk.end());
        self.rotation.turn(pass, &q, start, 1)?;
        self.rotation.turn(pass, &s.k, start, 1)?;
        pass.run(Copy { src: s.k, dst: cache.k.rows(start..end) })?;
        pass.run(Copy { src: s.v, dst: cache.v.rows(start..end) })?;

        let select = match (&self.indexer, &cache.indexer, &s.indexer) {
            (Some(indexer), Some(cache), Some(scratch)) => indexer.select(pass, layer, cache, scratch, x)?,
            _ => None,
        };
        let (k, v) = (cache.k.first(end), cache.v.first(end));
        pass.run(op::Attention { q, k, v, gate, select, pos0: start, scale: self.config.scale, out: s.out.clone() })?;
        pass.affine_into(sink, &s.out.flat(), &self.out.weight, self.out.bias.as_ref())
    }
}

impl Projection {
    /// The tensor `prefix.weight` of `rows` x `cols`, and its bias, if the file has one.
    fn bind(binder: &mut Binder, prefix: &str, rows: usize, cols: usize) -> Result<Self> {
        let bias = format!("{prefix}.bias");
        Ok(Self {
            weight: binder.weight(&format!("{prefix}.weight"), rows, cols)?,
            bias: if binder.has(&bias) { Some(binder.vector(&bias, rows)?) } else { None },
        })
    }

    fn apply(&self, pass: &Pass, x: &Tensor, heads: &Tensor) -> Result<()> {
        pass.affine(x, &self.weight, self.bias.as_ref(), &heads.flat())
    }
}

/// The projections to queries, keys and values of these widths: three tensors, or one with their rows in this order, and so
/// their biases, if there are any.
fn projections(binder: &mut Binder, hidden: usize, layer: usize, widths: [usize; 3]) -> Result<[Projection; 3]> {
    const FUSED: &str = "attn_qkv";
    const PARTS: [&str; 3] = ["attn_q", "attn_k", "attn_v"];
    let weight = |part: &str| format!("blk.{layer}.{part}.weight");
    let bias = |part: &str| format!("blk.{layer}.{part}.bias");
    let total = widths.iter().sum();
    let weights = if binder.has(&weight(FUSED)) { Some(binder.weight(&weight(FUSED), total, hidden)?) } else { None };
    let fused_bias = if binder.has(&bias(FUSED)) { Some(binder.vector(&bias(FUSED), total)?) } else { None };
    let biased = PARTS.iter().any(|part| binder.has(&bias(part)));
    let mut start = 0;
    let mut bind = |part: &str, width: usize| -> Result<Projection> {
        let rows = start..start + width;
        start += width;
        Ok(Projection {
            weight: match &weights {
                Some(all) => all.rows(rows.clone()),
                None => binder.weight(&weight(part), width, hidden)?,
            },
            bias: match &fused_bias {
                Some(all) => Some(all.cols(rows)),
                None if biased => Some(binder.vector(&bias(part), width)?),
                None => None,
            },
        })
    };
    let [q, k, v] = widths;
    Ok([bind(PARTS[0], q)?, bind(PARTS[1], k)?, bind(PARTS[2], v)?])
}

impl Norms {
    fn bind(binder: &mut Binder, config: &Config, rotation: &Rotation, layer: usize, span: NormSpan) -> Result<Self> {
        let c = &config.attention;
        let mut norm = |part: &str, heads: usize| {
            let heads = if span == NormSpan::Row { heads } else { 1 };
            rotation.norm(binder, &format!("blk.{layer}.{part}_norm.weight"), heads, c.key_dim)
        };
        Ok(Self { span, q: norm("attn_q", c.heads)?, k: norm("attn_k", c.kv_heads)?, eps: config.eps })
    }

    fn apply(&self, pass: &Pass, q: &Tensor, k: &Tensor) -> Result<()> {
        for (x, weight) in [(q, &self.q), (k, &self.k)] {
            let x = if self.span == NormSpan::Row { x.flat() } else { x.clone() };
            pass.run(RmsNorm { x: x.clone(), weight: weight.clone(), eps: self.eps, out: x })?;
        }
        Ok(())
    }
}

impl AttentionCache {
    /// Memory for `context` tokens; `indexed` as in [`Attention::bind`].
    pub fn new(
        device: &dyn Device,
        config: &AttentionConfig,
        types: CacheTypes,
        context: usize,
        indexed: bool,
    ) -> Result<Self> {
        Ok(Self {
            k: tensor(device, types.k, context, config.kv_heads, config.key_dim)?,
            v: tensor(device, types.v, context, config.kv_heads, config.value_dim)?,
            indexer: match &config.indexer {
                Some(indexer) if indexed => Some(IndexerCache::new(device, indexer, context)?),
                _ => None,
            },
        })
    }

    /// Every tensor of it, for the list of the session's state.
    pub fn tensors(&self) -> Vec<StateTensor<'_>> {
        let mut tensors = vec![StateTensor::per_token("keys", &self.k), StateTensor::per_token("values", &self.v)];
        tensors.extend(self.indexer.iter().flat_map(IndexerCache::tensors));
        tensors
    }
}

impl AttentionScratch {
    /// Memory for chunks of up to `rows` tokens in a session of `context` tokens.
    pub fn new(device: &dyn Device, config: &Config, rows: usize, context: usize) -> Result<Self> {
        let c = &config.attention;
        let f32s = |groups, cols| tensor(device, DType::F32, rows, groups, cols);
        let query_dim = if config.family.attention.output_gate { 2 * c.key_dim } else { c.key_dim };
        let indexer = match &c.indexer {
            Some(indexer) => Some(IndexerScratch::new(device, indexer, rows, context)?),
            None => None,
        };
        Ok(Self {
            q: f32s(c.heads, query_dim)?,
            k: f32s(c.kv_heads, c.key_dim)?,
            v: f32s(c.kv_heads, c.value_dim)?,
            out: f32s(c.heads, c.value_dim)?,
            indexer,
        })
    }

    fn first(&self, rows: usize) -> Self {
        Self {
            q: self.q.first(rows),
            k: self.k.first(rows),
            v: self.v.first(rows),
            out: self.out.first(rows),
            indexer: self.indexer.clone(),
        }
    }
}

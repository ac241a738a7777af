//! The QSA indexer: selects, for each query, the blocks of keys that its attention may see.
//!
//! Every token has a raw key. Once the `ratio` tokens of a block are all there, their keys become one: the mean, normed and
//! rotated to the position of the block's first token. Blocks count from the start of the sequence, so the raw keys of a
//! block that a chunk leaves incomplete wait in the cache for the next chunk.

use argon_kernels::device::tensor;
use argon_kernels::op::{Copy, MeanPool, RmsNorm, SelectBlocks, Selection};
use argon_kernels::{DType, Device, Tensor, Weight};

use super::attention::Rotation;
use super::pass::{Pass, Result};
use crate::config::{Config, IndexerConfig};
use crate::probe::Intermediate;
use crate::state::StateTensor;
use crate::weights::Binder;

/// The weights of one layer's indexer.
pub(crate) struct Indexer {
    /// H*C x D.
    q: Weight,
    /// C x D.
    k: Weight,
    /// f32 `[1, 1, C]`.
    q_norm: Tensor,
    /// f32 `[1, 1, C]`.
    k_norm: Tensor,
    eps: f32,
    rotation: Rotation,
    config: IndexerConfig,
}

/// Keys of the tokens so far.
pub(crate) struct IndexerCache {
    /// f32 `[ratio - 1, 1, C]`: raw keys of the last, incomplete block.
    tail: Tensor,
    /// f32 `[context / ratio, 1, C]`: one key for each complete block.
    keys: Tensor,
    ratio: usize,
}

/// Memory for one chunk.
#[derive(Clone)]
pub(crate) struct IndexerScratch {
    /// f32 `[ratio - 1 + T, 1, C]`: raw keys, those of the tail first.
    raw: Tensor,
    /// f32 `[T, H, C]`.
    q: Tensor,
    /// i32 `[T, 1, n]`.
    blocks: Tensor,
}

impl Indexer {
    pub fn bind(
        binder: &mut Binder,
        config: &Config,
        indexer: &IndexerConfig,
        rotation: &Rotation,
        layer: usize,
    ) -> Result<Self> {
        let name = |part| format!("blk.{layer}.indexer.{part}.weight");
        Ok(Self {
            q: binder.weight(&name("q_proj"), indexer.heads * indexer.dim, config.hidden)?,
            k: binder.weight(&name("k_proj"), indexer.dim, config.hidden)?,
            q_norm: rotation.norm(binder, &name("q_norm"), 1, indexer.dim)?,
            k_norm: rotation.norm(binder, &name("k_norm"), 1, indexer.dim)?,
            eps: config.eps,
            rotation: rotation.clone(),
            config: indexer.clone(),
        })
    }

    /// Takes the keys of the chunk's tokens, `x` f32 `[T, 1, D]`, and selects blocks for their queries. `None` where every
    /// query may see all keys: no more blocks are complete than it may select.
    pub fn select(
        &self,
        pass: &mut Pass,
        layer: usize,
        cache: &IndexerCache,
        scratch: &IndexerScratch,
        x: &Tensor,
    ) -> Result<Option<Selection>> {
        self.take_keys(pass, cache, scratch, x)?;
        let (start, ratio) = (pass.chunk.start, self.config.ratio);
        let complete = pass.chunk.end() / ratio;
        if complete <= self.config.blocks {
            return Ok(None);
        }
        let q = scratch.q.first(pass.len());
        pass.exact_product(x, &self.q, &q.flat())?;
        pass.run(RmsNorm { x: q.clone(), weight: self.q_norm.clone(), eps: self.eps, out: q.clone() })?;
        self.rotation.turn(pass, &q, start, 1)?;
        let (keys, blocks) = (cache.keys.first(complete), scratch.blocks.first(pass.len()));
        pass.run(SelectBlocks { q, keys, pos0: start, ratio, out: blocks.clone() })?;
        pass.show(Intermediate::SelectedBlocks, layer, &blocks)?;
        Ok(Some(Selection { blocks, ratio }))
    }

    /// Adds the raw keys of the chunk to the tail's, and turns those of complete blocks into keys of blocks.
    fn take_keys(&self, pass: &Pass, cache: &IndexerCache, scratch: &IndexerScratch, x: &Tensor) -> Result<()> {
        let ratio = self.config.ratio;
        let (first, held) = (pass.chunk.start / ratio, pass.chunk.start % ratio);
        let raw = scratch.raw.first(held + pass.len());
        let (complete, left) = (raw.rows / ratio, raw.rows % ratio);
        if held > 0 {
            pass.run(Copy { src: cache.tail.first(held), dst: raw.first(held) })?;
        }
        pass.exact_product(x, &self.k, &raw.rows(held..raw.rows))?;
        if complete > 0 {
            let keys = cache.keys.rows(first..first + complete);
            pass.run(MeanPool { x: raw.first(complete * ratio), ratio, out: keys.clone() })?;
            pass.run(RmsNorm { x: keys.clone(), weight: self.k_norm.clone(), eps: self.eps, out: keys.clone() })?;
            self.rotation.turn(pass, &keys, first * ratio, ratio)?;
        }
        if left > 0 {
            pass.run(Copy { src: raw.rows(complete * ratio..raw.rows), dst: cache.tail.first(left) })?;
        }
        Ok(())
    }
}

impl IndexerCache {
    pub fn new(device: &dyn Device, config: &IndexerConfig, context: usize) -> Result<Self> {
        let rows = |rows| tensor(device, DType::F32, rows, 1, config.dim);
        Ok(Self { tail: rows(config.ratio - 1)?, keys: rows(context / config.ratio)?, ratio: config.ratio })
    }

    /// Every tensor of it, for the list of the session's state.
    pub fn tensors(&self) -> [StateTensor<'_>; 2] {
        [
            StateTensor::tail("indexer_tail", &self.tail, self.ratio),
            StateTensor::per_block("indexer_keys", &self.keys, self.ratio),
        ]
    }
}

impl IndexerScratch {
    /// Memory for chunks of up to `rows` tokens in a session of `context` tokens.
    pub fn new(device: &dyn Device, config: &IndexerConfig, rows: usize, context: usize) -> Result<Self> {
        let f32s = |rows, groups| tensor(device, DType::F32, rows, groups, config.dim);
        let blocks = config.blocks.min(context / config.ratio);
        Ok(Self {
            raw: f32s(config.ratio - 1 + rows, 1)?,
            q: f32s(rows, config.heads)?,
            blocks: tensor(device, DType::I32, rows, 1, blocks)?,
        })
    }
}

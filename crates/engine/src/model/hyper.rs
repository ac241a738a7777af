//! Reading hyper-connections: the S streams of the residual are normed, weighed by a low-rank gate and averaged; a second
//! product of the normed streams says how much of the block's result each stream takes back.
//!
//! `n = norm(x); mixed = mean_s(sigmoid(up · silu(down · n / S))_s * n_s); inject = w · n`. The write is
//! [`HyperWrite`](argon_kernels::op::HyperWrite).

use argon_kernels::device::tensor;
use argon_kernels::op::{Epilogue, RmsNorm};
use argon_kernels::{DType, Device, Tensor, Weight};

use super::pass::{Pass, Result, dense};
use crate::config::{Config, StreamConfig};
use crate::weights::Binder;

/// The weights of one read.
pub(crate) struct HyperRead {
    /// f32 `[1, S, D]`.
    norm: Tensor,
    /// rank x S*D.
    down: Weight,
    /// S*D x rank.
    up: Weight,
    /// S x S*D; absent where nothing is written back.
    inject: Option<Weight>,
    streams: usize,
    eps: f32,
}

/// What a read leaves behind.
#[derive(Clone)]
pub(crate) struct HyperScratch {
    /// f32 `[T, S, D]`.
    normed: Tensor,
    /// f32 `[T, 1, rank]`.
    low: Tensor,
    /// f32 `[T, 1, S]`: for the write that follows.
    pub inject: Tensor,
}

impl HyperScratch {
    /// Memory for `rows` tokens.
    pub fn new(device: &dyn Device, streams: &StreamConfig, hidden: usize, rows: usize) -> Result<Self> {
        let f32s = |groups, cols| tensor(device, DType::F32, rows, groups, cols);
        Ok(Self { normed: f32s(streams.count, hidden)?, low: f32s(1, streams.rank)?, inject: f32s(1, streams.count)? })
    }

    /// The rows `from..to` of it.
    pub fn rows(&self, from: usize, to: usize) -> Self {
        let cut = |tensor: &Tensor| tensor.rows(from..to);
        Self { normed: cut(&self.normed), low: cut(&self.low), inject: cut(&self.inject) }
    }
}

impl HyperRead {
    /// Binds the tensors whose names begin with `prefix`.
    pub fn bind(
        binder: &mut Binder,
        config: &Config,
        streams: &StreamConfig,
        prefix: &str,
        injects: bool,
    ) -> Result<Self> {
        let (count, rank, width) = (streams.count, streams.rank, streams.count * config.hidden);
        Ok(Self {
            norm: binder.group_vectors(&format!("{prefix}_norm.weight"), count, config.hidden)?,
            down: binder.weight(&format!("{prefix}_down.weight"), rank, width)?,
            up: binder.weight(&format!("{prefix}_up.weight"), width, rank)?,
            inject: match injects {
                true => Some(binder.weight(&format!("{prefix}_inject.weight"), count, width)?),
                false => None,
            },
            streams: count,
            eps: config.eps,
        })
    }

    /// Reads the streams `x`, f32 `[T, S, D]`, into `mixed`, f32 `[T, 1, D]`.
    pub fn read(&self, pass: &Pass, x: &Tensor, scratch: &HyperScratch, mixed: &Tensor) -> Result<()> {
        let HyperScratch { normed, low, inject } = scratch;
        pass.run(RmsNorm { x: x.clone(), weight: self.norm.clone(), eps: self.eps, out: normed.clone() })?;
        let squash = Epilogue::Silu { scale: 1.0 / self.streams as f32 };
        pass.run(dense(&normed.flat(), &self.down, low, squash, pass.precision))?;
        let gate = Epilogue::GateMean { normed: normed.clone() };
        pass.run(dense(low, &self.up, mixed, gate, pass.precision))?;
        match &self.inject {
            Some(weight) => pass.exact_product(&normed.flat(), weight, inject),
            None => Ok(()),
        }
    }
}

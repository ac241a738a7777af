//! One chunk on its way through the model: what every block needs to know about it.

use argon_kernels::op::{Epilogue, Gemm, RowMap};
use argon_kernels::{Device, Op, Precision, Tensor, Weight};

use crate::EngineError;
use crate::probe::{Intermediate, Probe, Stage};

pub(crate) type Result<T> = std::result::Result<T, EngineError>;

/// A chunk of a prompt.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a> {
    /// Its T tokens, one at least.
    pub tokens: &'a [u32],
    /// Position of the first.
    pub start: usize,
    /// The tokens before it, as many as an n-gram can reach back, fewer at the start.
    pub before: &'a [u32],
}

impl Chunk<'_> {
    /// T.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// One past the position of the last token.
    pub fn end(&self) -> usize {
        self.start + self.len()
    }
}

/// A chunk, the device that it runs on, and who is looking.
pub(crate) struct Pass<'a> {
    pub device: &'a dyn Device,
    /// Of the large products.
    pub precision: Precision,
    pub chunk: Chunk<'a>,
    pub probe: &'a mut dyn Probe,
}

/// Where a block puts its result: added to the residual at once, or stored for it to take.
pub(crate) struct Sink {
    /// f32 `[T, 1, D]`.
    pub out: Tensor,
    /// `out += result` instead of `out = result`.
    pub accumulate: bool,
}

impl Pass<'_> {
    /// T, the tokens of the chunk.
    pub fn len(&self) -> usize {
        self.chunk.len()
    }

    pub fn run(&self, op: impl Into<Op>) -> Result<()> {
        Ok(self.device.enqueue(&op.into())?)
    }

    /// `out = x · wᵀ` in the precision that the caller chose.
    pub fn product(&self, x: &Tensor, w: &Weight, out: &Tensor) -> Result<()> {
        self.run(dense(x, w, out, Epilogue::Store, self.precision))
    }

    /// `out = x · wᵀ + bias` in the precision that the caller chose.
    pub fn affine(&self, x: &Tensor, w: &Weight, bias: Option<&Tensor>, out: &Tensor) -> Result<()> {
        self.run(Gemm { bias: bias.cloned(), ..dense(x, w, out, Epilogue::Store, self.precision) })
    }

    /// `out = x · wᵀ` in f32 whatever the caller chose: routers, selectors and gates, where a small error flips a choice.
    pub fn exact_product(&self, x: &Tensor, w: &Weight, out: &Tensor) -> Result<()> {
        self.run(dense(x, w, out, Epilogue::Store, Precision::F32))
    }

    /// `x · wᵀ` into `sink`.
    pub fn product_into(&self, sink: &Sink, x: &Tensor, w: &Weight) -> Result<()> {
        self.affine_into(sink, x, w, None)
    }

    /// `x · wᵀ + bias` into `sink`.
    pub fn affine_into(&self, sink: &Sink, x: &Tensor, w: &Weight, bias: Option<&Tensor>) -> Result<()> {
        let epilogue = if sink.accumulate { Epilogue::Accumulate } else { Epilogue::Store };
        self.run(Gemm { bias: bias.cloned(), ..dense(x, w, &sink.out, epilogue, self.precision) })
    }

    /// Copies one i32 for each element of `out` from the host.
    pub fn write_ids(&self, out: &Tensor, ids: &[i32]) -> Result<()> {
        Ok(self.device.write(out, bytemuck::cast_slice(ids))?)
    }

    /// Tells the probe what comes next.
    pub fn enter(&mut self, stage: Stage, layer: usize) {
        self.probe.enter(stage, Some(layer));
    }

    /// Shows `tensor` to the probe, if it wants to see it.
    pub fn show(&mut self, what: Intermediate, layer: usize, tensor: &Tensor) -> Result<()> {
        if self.probe.wants(what, layer) {
            crate::probe::show(self.probe, self.device, what, layer, self.chunk.start, tensor)?;
        }
        Ok(())
    }
}

/// A dense product of all rows of `x`.
pub(crate) fn dense(x: &Tensor, w: &Weight, out: &Tensor, epilogue: Epilogue, precision: Precision) -> Gemm {
    Gemm { x: x.clone(), w: w.clone(), bias: None, rows: RowMap::Identity, epilogue, precision, out: out.clone() }
}

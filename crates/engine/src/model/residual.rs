//! The residual: one stream that blocks add to, or S hyper-connection streams, and how a block reads its input from it.

use argon_kernels::device::tensor;
use argon_kernels::op::{Copy, Embed, HyperWrite, RmsNorm};
use argon_kernels::{DType, Device, Tensor, Weight};

use super::hyper::{HyperRead, HyperScratch};
use super::pass::{Pass, Result, Sink};
use crate::config::Config;
use crate::probe::Stage;
use crate::weights::Binder;

/// The residual of a chunk and what reading it needs.
#[derive(Clone)]
pub(crate) struct Residual {
    /// f32 `[T, S, D]`.
    pub x: Tensor,
    /// f32 `[T, 1, D]`: what a block reads.
    input: Tensor,
    /// With hyper-connections only.
    streams: Option<Streams>,
}

#[derive(Clone)]
struct Streams {
    /// f32 `[T, 1, D]`: what a block wrote.
    output: Tensor,
    scratch: HyperScratch,
}

impl Residual {
    /// Memory for `rows` tokens.
    pub fn new(device: &dyn Device, config: &Config, rows: usize) -> Result<Self> {
        let row = || tensor(device, DType::F32, rows, 1, config.hidden);
        let streams = match &config.streams {
            Some(streams) => {
                Some(Streams { output: row()?, scratch: HyperScratch::new(device, streams, config.hidden, rows)? })
            }
            None => None,
        };
        let x = tensor(device, DType::F32, rows, config.stream_count(), config.hidden)?;
        Ok(Self { x, input: row()?, streams })
    }

    /// The rows `from..to` of it.
    pub fn rows(&self, from: usize, to: usize) -> Self {
        let cut = |tensor: &Tensor| tensor.rows(from..to);
        let streams = self.streams.as_ref();
        Self {
            x: cut(&self.x),
            input: cut(&self.input),
            streams: streams.map(|s| Streams { output: cut(&s.output), scratch: s.scratch.rows(from, to) }),
        }
    }

    /// Starts every stream with the embedding of the chunk's tokens; `ids` is i32 `[T, 1, 1]`.
    pub fn start(&self, pass: &Pass, table: &Weight, ids: &Tensor) -> Result<()> {
        let embed = |out: &Tensor| pass.run(Embed { table: table.clone(), ids: ids.clone(), out: out.clone() });
        if self.streams.is_none() {
            return embed(&self.x);
        }
        embed(&self.input)?;
        pass.run(Copy { src: self.input.clone(), dst: self.x.clone() })
    }

    /// Where a block puts its result, before [`Residual::take`].
    pub fn sink(&self) -> Sink {
        match &self.streams {
            None => Sink { out: self.x.clone(), accumulate: true },
            Some(streams) => Sink { out: streams.output.clone(), accumulate: false },
        }
    }

    /// Takes a block's result out of the sink.
    pub fn take(&self, pass: &Pass) -> Result<()> {
        match &self.streams {
            None => Ok(()),
            Some(Streams { output, scratch }) => {
                pass.run(HyperWrite { y: output.clone(), inject: scratch.inject.clone(), x: self.x.clone() })
            }
        }
    }
}

/// How a block, or the output, reads its input from the residual.
pub(crate) enum Reader {
    /// A norm of the single stream.
    Norm {
        /// f32 `[1, 1, D]`.
        weight: Tensor,
        /// Added to the mean of squares.
        eps: f32,
    },
    /// A gated mean of the hyper-connection streams.
    Hyper(Box<HyperRead>),
}

impl Reader {
    /// The reader whose norm is called `norm`, or whose hyper-connection tensors begin with `hyper`.
    pub fn bind(binder: &mut Binder, config: &Config, norm: &str, hyper: &str, injects: bool) -> Result<Self> {
        Ok(match &config.streams {
            None => Self::Norm { weight: binder.vector(&format!("{norm}.weight"), config.hidden)?, eps: config.eps },
            Some(streams) => Self::Hyper(Box::new(HyperRead::bind(binder, config, streams, hyper, injects)?)),
        })
    }

    /// What reading is for.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Norm { .. } => Stage::Norms,
            Self::Hyper(_) => Stage::HyperConnection,
        }
    }

    /// The input f32 `[T, 1, D]` of the block that comes next.
    pub fn read(&self, pass: &Pass, residual: &Residual) -> Result<Tensor> {
        let out = residual.input.clone();
        match (self, &residual.streams) {
            (Self::Norm { weight, eps }, None) => {
                pass.run(RmsNorm { x: residual.x.clone(), weight: weight.clone(), eps: *eps, out: out.clone() })?;
            }
            (Self::Hyper(hyper), Some(streams)) => hyper.read(pass, &residual.x, &streams.scratch, &out)?,
            _ => unreachable!("readers and residual are made from one configuration"),
        }
        Ok(out)
    }
}

//! A look inside a forward pass: a probe names the intermediates that it wants; only those are copied to the host.

use argon_kernels::{DType, Device, Tensor};
use half::f16;

use crate::EngineError;

/// An intermediate that a probe can ask for, per layer and chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intermediate {
    /// The chosen experts, i32 `[T, K]`, best first.
    RouterIds,
    /// Their weights, f32 `[T, K]`.
    RouterWeights,
    /// The blocks of keys that the indexer selected, i32 `[T, n]`, ascending, -1 where there are fewer than n. Nothing is
    /// shown for a chunk that may see every block.
    SelectedBlocks,
    /// The residual behind the layer, f32 `[T, S*D]`.
    Residual,
}

/// What a part of a forward pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Looking for weights that are not numbers, before their first use.
    Checks,
    /// Tokens to embeddings.
    Embedding,
    /// Hashed n-grams to the residual (PLE).
    Ngrams,
    /// The norm in front of a block, or of the output.
    Norms,
    /// Reading and writing the streams of a hyper-connection.
    HyperConnection,
    /// Softmax attention with its projections, caches and indexer.
    Attention,
    /// Gated DeltaNet with its projections and convolution.
    DeltaNet,
    /// The router.
    Routing,
    /// The plan.
    Plan,
    /// The routed experts' gate and up, with the gather of their rows.
    GateUp,
    /// The routed experts' down.
    Down,
    /// The weighted sum of the experts' rows.
    Combine,
    /// The shared expert.
    Shared,
    /// Logits.
    Head,
    /// Whatever else a prefill does.
    Other,
}

impl Stage {
    /// All of them, in the order of a forward pass.
    pub const ALL: [Stage; 15] = [
        Stage::Checks,
        Stage::Embedding,
        Stage::Ngrams,
        Stage::Norms,
        Stage::HyperConnection,
        Stage::Attention,
        Stage::DeltaNet,
        Stage::Routing,
        Stage::Plan,
        Stage::GateUp,
        Stage::Down,
        Stage::Combine,
        Stage::Shared,
        Stage::Head,
        Stage::Other,
    ];

    /// The name that reports print.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Checks => "weight checks",
            Stage::Embedding => "embedding",
            Stage::Ngrams => "n-grams (PLE)",
            Stage::Norms => "norms",
            Stage::HyperConnection => "hyper-connection",
            Stage::Attention => "attention",
            Stage::DeltaNet => "delta net",
            Stage::Routing => "routing",
            Stage::Plan => "plan",
            Stage::GateUp => "gate, up",
            Stage::Down => "down",
            Stage::Combine => "combine",
            Stage::Shared => "shared expert",
            Stage::Head => "head",
            Stage::Other => "other",
        }
    }
}

/// The values of an intermediate for one chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// What it is.
    pub what: Intermediate,
    /// Of which layer.
    pub layer: usize,
    /// Position of the first row.
    pub start: usize,
    /// Columns of a row; the rows are tokens.
    pub width: usize,
    /// Row after row.
    pub values: Values,
}

/// Values of either type.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers.
    F32(Vec<f32>),
    /// Ids.
    I32(Vec<i32>),
}

/// Looks at intermediates of a prefill.
pub trait Probe {
    /// Whether this probe wants to see it.
    fn wants(&self, what: Intermediate, layer: usize) -> bool;

    /// Called in the order of the chunks and, within one, of the layers.
    fn see(&mut self, shown: Shown);

    /// Called before the ops of a stage are enqueued, those of a layer with its number; the stage before ends there. A device
    /// may still be busy with it.
    fn enter(&mut self, _stage: Stage, _layer: Option<usize>) {}
}

/// A probe that wants nothing.
pub(crate) struct Blind;

impl Probe for Blind {
    fn wants(&self, _: Intermediate, _: usize) -> bool {
        false
    }

    fn see(&mut self, _: Shown) {}
}

/// Copies `tensor` to the host for `probe`.
pub(crate) fn show(
    probe: &mut dyn Probe,
    device: &dyn Device,
    what: Intermediate,
    layer: usize,
    start: usize,
    tensor: &Tensor,
) -> Result<(), EngineError> {
    let values = match tensor.dtype {
        DType::I32 => {
            let mut values = vec![0i32; tensor.len()];
            device.read(tensor, bytemuck::cast_slice_mut(&mut values))?;
            Values::I32(values)
        }
        _ => Values::F32(read_f32(device, tensor)?),
    };
    probe.see(Shown { what, layer, start, width: tensor.width(), values });
    Ok(())
}

/// The elements of an f32 or f16 tensor.
pub(crate) fn read_f32(device: &dyn Device, tensor: &Tensor) -> Result<Vec<f32>, EngineError> {
    if tensor.dtype == DType::F16 {
        let mut values = vec![f16::ZERO; tensor.len()];
        device.read(tensor, bytemuck::cast_slice_mut(&mut values))?;
        return Ok(values.into_iter().map(f16::to_f32).collect());
    }
    let mut values = vec![0f32; tensor.len()];
    device.read(tensor, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

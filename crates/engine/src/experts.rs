//! Where the routed experts' weights are: a model asks for a layer's, and never learns how they came.

use argon_kernels::Weight;

use crate::EngineError;
use crate::config::Config;
use crate::weights::Binder;

/// The routed experts of all layers, all of them in the device's memory.
pub(crate) struct ExpertStore {
    layers: Vec<Experts>,
}

/// The routed experts of one layer.
#[derive(Clone)]
pub(crate) struct Experts {
    /// E matrices of F x D.
    pub gate: Weight,
    /// E matrices of F x D.
    pub up: Weight,
    /// E matrices of D x F.
    pub down: Weight,
}

impl ExpertStore {
    pub fn bind(binder: &mut Binder, config: &Config) -> Result<Self, EngineError> {
        let layers =
            (0..config.layers()).map(|layer| Experts::bind(binder, config, layer)).collect::<Result<_, _>>()?;
        Ok(Self { layers })
    }

    /// The experts of `layer`, ready to be multiplied with.
    pub fn layer(&self, layer: usize) -> &Experts {
        &self.layers[layer]
    }
}

impl Experts {
    /// Gate and up come as one tensor, gate rows first, or as two.
    fn bind(binder: &mut Binder, config: &Config, layer: usize) -> Result<Self, EngineError> {
        let (experts, width, hidden) = (config.moe.experts, config.moe.width, config.hidden);
        let fused = format!("blk.{layer}.ffn_gate_up_exps.weight");
        let (gate, up) = if binder.has(&fused) {
            let both = binder.experts(&fused, experts, 2 * width, hidden)?;
            (both.rows(0..width), both.rows(width..2 * width))
        } else {
            (
                binder.experts(&format!("blk.{layer}.ffn_gate_exps.weight"), experts, width, hidden)?,
                binder.experts(&format!("blk.{layer}.ffn_up_exps.weight"), experts, width, hidden)?,
            )
        };
        let down = binder.experts(&format!("blk.{layer}.ffn_down_exps.weight"), experts, hidden, width)?;
        Ok(Self { gate, up, down })
    }
}

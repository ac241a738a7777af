//! Where the routed experts' weights are: a model asks for a layer's, and never learns how they came.

use std::sync::Arc;

use argon_kernels::{Tensor, Weight};

use crate::EngineError;
use crate::config::Config;
use crate::finite::ExpertRows;
use crate::model::pass::Pass;
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
    /// What to look at before an expert is used, where nobody has.
    unread: Option<Arc<ExpertRows>>,
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
    /// Looks at the experts that `ids`, i32 `[T, 1, K]`, name, if nobody has.
    pub fn check(&self, pass: &Pass, ids: &Tensor) -> Result<(), EngineError> {
        let Some(unread) = self.unread.as_ref().filter(|unread| !unread.done()) else { return Ok(()) };
        let mut chosen = vec![0i32; ids.len()];
        pass.device.read(ids, bytemuck::cast_slice_mut(&mut chosen))?;
        unread.check(chosen.into_iter().filter_map(|id| usize::try_from(id).ok()))
    }

    /// Gate and up come as one tensor, gate rows first, or as two.
    fn bind(binder: &mut Binder, config: &Config, layer: usize) -> Result<Self, EngineError> {
        let (experts, width, hidden) = (config.moe.experts, config.moe.width, config.hidden);
        let name = |part: &str| format!("blk.{layer}.ffn_{part}_exps.weight");
        let (gate, up, mut rows) = if binder.has(&name("gate_up")) {
            let (both, rows) = binder.experts(&name("gate_up"), experts, 2 * width, hidden)?;
            (both.rows(0..width), both.rows(width..2 * width), vec![rows])
        } else {
            let (gate, gate_rows) = binder.experts(&name("gate"), experts, width, hidden)?;
            let (up, up_rows) = binder.experts(&name("up"), experts, width, hidden)?;
            (gate, up, vec![gate_rows, up_rows])
        };
        let (down, down_rows) = binder.experts(&name("down"), experts, hidden, width)?;
        rows.push(down_rows);
        let unread = ExpertRows::new(layer, experts, rows);
        if !binder.reads_in_place() {
            unread.check_all()?;
            return Ok(Self { gate, up, down, unread: None });
        }
        Ok(Self { gate, up, down, unread: Some(Arc::new(unread)) })
    }
}

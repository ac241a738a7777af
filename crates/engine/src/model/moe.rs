//! Routed experts: the router, the plan, gate and up, down, the weighted sum; optionally a shared expert beside them.

use argon_kernels::device::tensor;
use argon_kernels::op::{Combine, Epilogue, Gemm, Plan, PlanBuffers, Route, RouteConfig, RowMap, Shared};
use argon_kernels::{DType, Device, Tensor, Weight};
use argon_plan::Shape;

use super::pass::{Pass, Result, Sink, dense};
use crate::config::Config;
use crate::experts::Experts;
use crate::probe::{Intermediate, Stage};
use crate::weights::Binder;

/// The weights of one layer but for the routed experts' own, which an [`ExpertStore`](crate::experts::ExpertStore) has.
pub(crate) struct Moe {
    /// E x D.
    router: Weight,
    /// f32 `[1, 1, E]`, for selection only.
    bias: Option<Tensor>,
    shared: Option<SharedExpert>,
    route: RouteConfig,
}

/// The expert that serves every token.
struct SharedExpert {
    /// Fs x D.
    gate: Weight,
    /// Fs x D.
    up: Weight,
    /// D x Fs.
    down: Weight,
    /// 1 x D: the logit of its share.
    share: Weight,
}

/// Memory for one chunk, shared by all layers.
pub(crate) struct MoeScratch {
    /// f32 `[T, 1, E]`.
    logits: Tensor,
    /// i32 `[T, 1, K]`.
    ids: Tensor,
    /// f32 `[T, 1, K]`.
    weights: Tensor,
    plan: PlanBuffers,
    /// f32 `[R, 1, F]`.
    hidden: Tensor,
    /// f32 `[R, 1, D]`.
    rows: Tensor,
    shared: Option<SharedScratch>,
}

#[derive(Clone)]
struct SharedScratch {
    /// f32 `[T, 1, Fs]`.
    hidden: Tensor,
    /// f32 `[T, 1, D]`.
    y: Tensor,
    /// f32 `[T, 1, 1]`.
    share: Tensor,
}

impl Moe {
    pub fn bind(binder: &mut Binder, config: &Config, layer: usize) -> Result<Self> {
        let (c, hidden) = (&config.moe, config.hidden);
        let bias = format!("blk.{layer}.exp_probs_b.bias");
        config.moe.check_groups(config.family.name, binder.has(&bias))?;
        Ok(Self {
            router: binder.weight(&format!("blk.{layer}.ffn_gate_inp.weight"), c.experts, hidden)?,
            bias: if binder.has(&bias) { Some(binder.vector(&bias, c.experts)?) } else { None },
            shared: match c.shared_width {
                Some(width) => Some(SharedExpert::bind(binder, hidden, width, layer)?),
                None => None,
            },
            route: c.route,
        })
    }

    /// `sink` receives the experts' answer to the chunk's tokens, `x` f32 `[T, 1, D]`.
    pub fn forward(
        &self,
        pass: &mut Pass,
        layer: usize,
        experts: &Experts,
        scratch: &MoeScratch,
        x: &Tensor,
        sink: &Sink,
    ) -> Result<()> {
        let s = scratch.first(pass)?;
        pass.enter(Stage::Routing, layer);
        pass.exact_product(x, &self.router, &s.logits)?;
        pass.run(Route {
            logits: s.logits,
            bias: self.bias.clone(),
            config: self.route,
            layer,
            ids: s.ids.clone(),
            weights: s.weights.clone(),
        })?;
        pass.enter(Stage::Checks, layer);
        experts.check(pass, &s.ids)?;
        pass.enter(Stage::Other, layer);
        pass.show(Intermediate::RouterIds, layer, &s.ids)?;
        pass.show(Intermediate::RouterWeights, layer, &s.weights)?;
        // Before the routed experts, beside which a device may run it.
        let shared = match (&self.shared, &s.shared) {
            (Some(expert), Some(scratch)) => {
                pass.enter(Stage::Shared, layer);
                Some(expert.forward(pass, scratch, x)?)
            }
            _ => None,
        };
        pass.enter(Stage::Plan, layer);
        pass.run(Plan { ids: s.ids, weights: s.weights.clone(), plan: s.plan.clone() })?;
        pass.enter(Stage::GateUp, layer);
        pass.run(Gemm {
            rows: RowMap::Gather(s.plan.clone()),
            ..dense(x, &experts.gate, &s.hidden, Epilogue::SwiGlu { up: experts.up.clone() }, pass.precision)
        })?;
        pass.enter(Stage::Down, layer);
        pass.run(Gemm {
            rows: RowMap::Segments(s.plan.clone()),
            ..dense(&s.hidden, &experts.down, &s.rows, Epilogue::Store, pass.precision)
        })?;
        pass.enter(Stage::Combine, layer);
        pass.run(Combine {
            rows: s.rows,
            weights: s.weights,
            plan: s.plan,
            shared,
            accumulate: sink.accumulate,
            out: sink.out.clone(),
        })
    }
}

impl SharedExpert {
    fn bind(binder: &mut Binder, hidden: usize, width: usize, layer: usize) -> Result<Self> {
        let name = |part| format!("blk.{layer}.{part}.weight");
        Ok(Self {
            gate: binder.weight(&name("ffn_gate_shexp"), width, hidden)?,
            up: binder.weight(&name("ffn_up_shexp"), width, hidden)?,
            down: binder.weight(&name("ffn_down_shexp"), hidden, width)?,
            share: binder.weight(&name("ffn_gate_inp_shexp"), 1, hidden)?,
        })
    }

    fn forward(&self, pass: &Pass, s: &SharedScratch, x: &Tensor) -> Result<Shared> {
        let swiglu = Epilogue::SwiGlu { up: self.up.clone() };
        pass.run(dense(x, &self.gate, &s.hidden, swiglu, pass.precision))?;
        pass.product(&s.hidden, &self.down, &s.y)?;
        pass.exact_product(x, &self.share, &s.share)?;
        Ok(Shared { y: s.y.clone(), gate: Some(s.share.clone()) })
    }
}

impl MoeScratch {
    /// Memory for chunks of up to `rows` tokens.
    pub fn new(device: &dyn Device, config: &Config, rows: usize) -> Result<Self> {
        let c = &config.moe;
        let top_k = c.route.top_k;
        let tile = device.tile_rows(rows.saturating_mul(top_k), c.experts);
        let shape = Shape::new(rows, top_k, c.experts, tile)?;
        let f32s = |rows, cols| tensor(device, DType::F32, rows, 1, cols);
        Ok(Self {
            logits: f32s(rows, c.experts)?,
            ids: tensor(device, DType::I32, rows, 1, top_k)?,
            weights: f32s(rows, top_k)?,
            plan: PlanBuffers::new(device, shape)?,
            hidden: f32s(shape.max_rows(), c.width)?,
            rows: f32s(shape.max_rows(), config.hidden)?,
            shared: match c.shared_width {
                Some(width) => Some(SharedScratch {
                    hidden: f32s(rows, width)?,
                    y: f32s(rows, config.hidden)?,
                    share: f32s(rows, 1)?,
                }),
                None => None,
            },
        })
    }

    /// The part of it that a chunk needs, planned with the tile height that suits its length.
    fn first(&self, pass: &Pass) -> Result<Self> {
        let (rows, whole) = (pass.len(), self.plan.shape);
        let shape = |tile| Shape::new(rows, whole.top_k(), whole.experts(), tile);
        let best = shape(pass.device.tile_rows(rows * whole.top_k(), whole.experts()))?;
        let plan = match self.plan.resized(best) {
            Some(plan) => plan,
            None => self.plan.resized(shape(whole.tile())?).expect("fewer tokens in tiles of the same height fit"),
        };
        let padded = plan.shape.max_rows();
        Ok(Self {
            logits: self.logits.first(rows),
            ids: self.ids.first(rows),
            weights: self.weights.first(rows),
            hidden: self.hidden.first(padded),
            rows: self.rows.first(padded),
            shared: self.shared.as_ref().map(|s| SharedScratch {
                hidden: s.hidden.first(rows),
                y: s.y.first(rows),
                share: s.share.first(rows),
            }),
            plan,
        })
    }
}

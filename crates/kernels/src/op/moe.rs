//! Routing, the plan, and the weighted sum: the integer half of a mixture-of-experts layer.

use argon_plan::Shape;

use super::Access;
use crate::device::{Device, DeviceError, tensor};
use crate::tensor::{DType, Tensor};

/// How scores come from logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// `softmax(logits)` over all experts.
    Softmax,
    /// `sigmoid(logits)` of each.
    Sigmoid,
}

/// Only the experts of the best groups take part: a group's score is the sum of its two best selection scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// Groups of E / groups neighbouring experts.
    pub groups: usize,
    /// Groups that stay in the race.
    pub used: usize,
}

/// What a model's metadata says about routing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteConfig {
    /// How scores come from logits.
    pub gating: Gating,
    /// Experts chosen for each token (K).
    pub top_k: usize,
    /// Expert groups, if the model has them.
    pub groups: Option<GroupLimit>,
    /// Divide the chosen weights by their sum.
    pub renormalise: bool,
    /// Applied to the weights last.
    pub scale: f32,
    /// Drop the trailing experts of a token once those kept hold this share of its weight; dropped entries become id -1 with
    /// weight 0, the weights of the others stay as they are.
    pub tail_share: Option<f32>,
}

impl RouteConfig {
    /// The best K of all experts, with weights that sum to 1.
    pub const fn new(gating: Gating, top_k: usize) -> Self {
        Self { gating, top_k, groups: None, renormalise: true, scale: 1.0, tail_share: None }
    }
}

/// Chooses experts: K ids per token by (selection score, then lower index), best first, and their weights.
///
/// Selection is on the logits themselves where there is no bias, else on score + bias; weights are the unbiased scores and
/// finite even when all of them underflow. A logit that is not a number ends the request with layer and token.
#[derive(Clone, Debug)]
pub struct Route {
    /// f32 `[T, 1, E]`.
    pub logits: Tensor,
    /// f32 `[1, 1, E]`, added to the scores for selection only.
    pub bias: Option<Tensor>,
    /// The model's rules.
    pub config: RouteConfig,
    /// Layer, for messages.
    pub layer: usize,
    /// i32 `[T, 1, K]`.
    pub ids: Tensor,
    /// f32 `[T, 1, K]`.
    pub weights: Tensor,
}

/// The memory of one plan, sized for the largest T it will be built for. Words as `argon_plan` defines them.
#[derive(Clone, Debug)]
pub struct PlanBuffers {
    /// T, K, E and the tile height this plan is (or was last) built for.
    pub shape: Shape,
    /// u32 `[blocks, 1, E]`.
    pub bcnt: Tensor,
    /// u32 `[blocks, 1, E]`.
    pub boff: Tensor,
    /// u32 `[1, 1, E+1]`.
    pub eoff: Tensor,
    /// u32 `[max tiles, 1, 3]`.
    pub tiles: Tensor,
    /// i32 `[1, 1, max rows]`.
    pub stok: Tensor,
    /// u32 `[1, 1, max rows]`, f32 bits.
    pub sw: Tensor,
    /// i32 `[1, 1, T*K]`.
    pub pos: Tensor,
    /// u32 `[1, 1, 11]`.
    pub meta: Tensor,
}

impl PlanBuffers {
    /// Memory on `device` for plans up to `shape`.
    pub fn new(device: &dyn Device, shape: Shape) -> Result<Self, DeviceError> {
        Self::of(shape, |_, dtype, [rows, groups, cols]| tensor(device, dtype, rows, groups, cols))
    }

    /// Memory for plans up to `shape`, each tensor from `tensor`, given its name, its type and its shape.
    ///
    /// # Errors
    /// Those of `tensor`.
    pub fn of<E>(
        shape: Shape,
        tensor: impl Fn(&'static str, DType, [usize; 3]) -> Result<Tensor, E>,
    ) -> Result<Self, E> {
        let words = |name, rows, cols| tensor(name, DType::U32, [rows, 1, cols]);
        let ints = |name, cols| tensor(name, DType::I32, [1, 1, cols]);
        Ok(Self {
            bcnt: words("bcnt", shape.blocks(), shape.experts())?,
            boff: words("boff", shape.blocks(), shape.experts())?,
            eoff: words("eoff", 1, shape.experts() + 1)?,
            tiles: words("tiles", shape.max_tiles(), 3)?,
            stok: ints("stok", shape.max_rows())?,
            sw: words("sw", 1, shape.max_rows())?,
            pos: ints("pos", shape.entries())?,
            meta: words("meta", 1, argon_plan::meta::WORDS)?,
            shape,
        })
    }

    /// The same memory for a smaller plan. `None` if it does not fit.
    pub fn resized(&self, shape: Shape) -> Option<Self> {
        let fits = shape.blocks() <= self.bcnt.rows
            && shape.experts() == self.shape.experts()
            && shape.max_tiles() <= self.tiles.rows
            && shape.max_rows() <= self.stok.cols
            && shape.entries() <= self.pos.cols;
        fits.then(|| Self {
            bcnt: self.bcnt.first(shape.blocks()),
            boff: self.boff.first(shape.blocks()),
            tiles: self.tiles.first(shape.max_tiles()),
            stok: self.stok.cols(0..shape.max_rows()),
            sw: self.sw.cols(0..shape.max_rows()),
            pos: self.pos.cols(0..shape.entries()),
            shape,
            ..self.clone()
        })
    }
}

/// Builds a plan: `argon_plan`'s hist, scan and place over the ids of a [`Route`]. An id outside -1..E-1 is skipped and
/// counted in meta.
#[derive(Clone, Debug)]
pub struct Plan {
    /// i32 `[T, 1, K]`.
    pub ids: Tensor,
    /// f32 `[T, 1, K]`, moved as raw words.
    pub weights: Tensor,
    /// What is written.
    pub plan: PlanBuffers,
}

/// Lays the rows of a plan one after another in f16: `out[r] = f16(x[stok[r]] * 2^-s[r])`, zeros in a padding row, rounded to
/// nearest, ties to even, subnormals kept. The plan's rows from R on stay as they were.
///
/// Products take their rows through the plan ([`RowMap::Gather`](super::RowMap::Gather)), so that no model needs this: it is here
/// to be measured beside that. From f16 it is half the bytes, and the same bits where the producer rounded as this does.
#[derive(Clone, Debug)]
pub struct Gather {
    /// f32 or f16 `[T, 1, D]`.
    pub x: Tensor,
    /// Which token each row is.
    pub plan: PlanBuffers,
    /// f16 `[max rows, 1, D]`.
    pub out: Tensor,
    /// i32 `[1, 1, max rows]`: s, the least exponent that brings a row inside the range of f16; 0 where it is, where it is
    /// padding, and where its largest number is infinite. There where x is f32; of f16 only its producer knows it.
    pub exponents: Option<Tensor>,
}

/// The shared expert's part of a [`Combine`].
#[derive(Clone, Debug)]
pub struct Shared {
    /// f32 `[T, 1, D]`.
    pub y: Tensor,
    /// f32 `[T, 1, 1]`: the logit of its sigmoid gate; a factor of 1 where absent.
    pub gate: Option<Tensor>,
}

/// `y[t] = sum over k, in k order, of weights[t, k] * rows[pos[t*K + k]]`, entries with pos -1 left out; then
/// `+ sigmoid(gate[t]) * shared[t]`; stored, or added to `out`.
#[derive(Clone, Debug)]
pub struct Combine {
    /// f32 `[max rows, 1, D]`.
    pub rows: Tensor,
    /// f32 `[T, 1, K]`.
    pub weights: Tensor,
    /// Where each entry's row is.
    pub plan: PlanBuffers,
    /// The shared expert, if the model has one.
    pub shared: Option<Shared>,
    /// `out += y` instead of `out = y`.
    pub accumulate: bool,
    /// f32 `[T, 1, D]`.
    pub out: Tensor,
}

impl Route {
    pub(super) fn accesses(&self) -> Vec<(&Tensor, Access)> {
        let mut a = vec![(&self.logits, Access::Read), (&self.ids, Access::Write), (&self.weights, Access::Write)];
        a.extend(self.bias.iter().map(|t| (t, Access::Read)));
        a
    }
}

impl Plan {
    pub(super) fn accesses(&self) -> Vec<(&Tensor, Access)> {
        let p = &self.plan;
        let mut a = vec![(&self.ids, Access::Read), (&self.weights, Access::Read)];
        a.extend([&p.bcnt, &p.boff, &p.eoff, &p.tiles, &p.stok, &p.sw, &p.pos, &p.meta].map(|t| (t, Access::Write)));
        a
    }
}

impl Gather {
    /// The kernel: from f32, or from f16.
    pub(super) fn name(&self) -> &'static str {
        if self.x.dtype == DType::F16 { "gather_h" } else { "gather" }
    }

    pub(super) fn accesses(&self) -> Vec<(&Tensor, Access)> {
        let mut a = vec![(&self.x, Access::Read), (&self.plan.stok, Access::Read), (&self.plan.meta, Access::Read)];
        a.push((&self.out, Access::Write));
        a.extend(self.exponents.iter().map(|t| (t, Access::Write)));
        a
    }
}

impl Combine {
    pub(super) fn accesses(&self) -> Vec<(&Tensor, Access)> {
        let mut a = vec![(&self.rows, Access::Read), (&self.weights, Access::Read), (&self.plan.pos, Access::Read)];
        if let Some(shared) = &self.shared {
            a.push((&shared.y, Access::Read));
            a.extend(shared.gate.iter().map(|t| (t, Access::Read)));
        }
        a.push((&self.out, Access::Write));
        a
    }
}

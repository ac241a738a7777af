//! Memory of one stream's own: inputs that are converted, and what passes between the kernels of an op.

use super::memory::Scratch;
use crate::tensor::Tensor;

/// The memory, and what is in it. Each stream has its own, so that kernels of two streams never meet there.
#[derive(Default)]
pub(super) struct Workspace {
    /// An input in f16 and its exponents.
    pub half: Scratch,
    pub exponents: Scratch,
    /// Which tensor `half` holds, in which order of columns.
    pub activations: Option<(Tensor, u32)>,
    /// Between the kernels of one op.
    pub between: Scratch,
    /// The sums of a product whose columns are shared out.
    pub parts: Scratch,
    /// The rows that a product with SwiGLU wrote in f16 beside f32, its count of numbers beyond that range, and the
    /// exponents of the rows in case there are some.
    pub hidden: Scratch,
    pub hidden_beyond: Scratch,
    pub hidden_exponents: Scratch,
    /// What `hidden` holds.
    pub hidden_of: Option<Hidden>,
    /// The order that the last product of such rows wanted.
    pub hidden_order: Option<u32>,
}

/// Rows that are in f16 already: of which tensor, by which plan, in which order of columns.
pub(super) struct Hidden {
    pub rows: Tensor,
    pub stok: Tensor,
    pub order: u32,
}

impl Workspace {
    /// Forgets the converted inputs of which `t`, about to be written, may be part.
    pub fn written(&mut self, t: &Tensor) {
        if self.activations.as_ref().is_some_and(|(x, _)| x.overlaps(t)) {
            self.activations = None;
        }
        if self.hidden_of.as_ref().is_some_and(|held| held.rows.overlaps(t) || held.stok.overlaps(t)) {
            self.hidden_of = None;
        }
    }

    /// Forgets all converted inputs.
    pub fn forget(&mut self) {
        (self.activations, self.hidden_of) = (None, None);
    }
}

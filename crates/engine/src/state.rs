//! What a session remembers: every tensor of it by name, in one list for resetting, comparing and saving.

use argon_kernels::{DType, Tensor};

/// Element types of the caches of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheTypes {
    /// Of keys: f32 or f16.
    pub k: DType,
    /// Of values: f32 or f16.
    pub v: DType,
}

/// One tensor of the state and how many of its rows mean something.
pub(crate) struct StateTensor<'a> {
    /// What it is, without the layer.
    pub name: &'static str,
    pub tensor: &'a Tensor,
    rows: Rows,
}

/// How the rows in use follow from the number of tokens held.
#[derive(Clone, Copy)]
enum Rows {
    /// All of them, zero at the start.
    Whole,
    /// One per token.
    PerToken,
    /// One per complete block of so many tokens.
    PerBlock(usize),
    /// One per token of the incomplete block.
    Tail(usize),
}

impl<'a> StateTensor<'a> {
    pub fn whole(name: &'static str, tensor: &'a Tensor) -> Self {
        Self { name, tensor, rows: Rows::Whole }
    }

    pub fn per_token(name: &'static str, tensor: &'a Tensor) -> Self {
        Self { name, tensor, rows: Rows::PerToken }
    }

    pub fn per_block(name: &'static str, tensor: &'a Tensor, ratio: usize) -> Self {
        Self { name, tensor, rows: Rows::PerBlock(ratio) }
    }

    pub fn tail(name: &'static str, tensor: &'a Tensor, ratio: usize) -> Self {
        Self { name, tensor, rows: Rows::Tail(ratio) }
    }

    /// The rows in use when the session holds `len` tokens; whatever is in the others is never read.
    pub fn in_use(&self, len: usize) -> Tensor {
        self.tensor.first(match self.rows {
            Rows::Whole => self.tensor.rows,
            Rows::PerToken => len,
            Rows::PerBlock(ratio) => len / ratio,
            Rows::Tail(ratio) => len % ratio,
        })
    }

    /// Whether the rows in use of a shorter sequence are what they were when the sequence was shorter.
    pub fn goes_back(&self) -> bool {
        matches!(self.rows, Rows::PerToken)
    }

    /// Whether later tokens overwrite the rows in use of a shorter sequence.
    pub fn is_overwritten(&self) -> bool {
        matches!(self.rows, Rows::Whole | Rows::Tail(_))
    }

    /// Whether it must be zero at the start.
    pub fn starts_at_zero(&self) -> bool {
        matches!(self.rows, Rows::Whole)
    }
}

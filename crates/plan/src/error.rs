//! What can be wrong with the input of a plan.

use std::fmt;

/// Why a shape, an input or a buffer was refused. Nothing has been written when one is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A length that has to be at least 1 is 0.
    Zero {
        /// `top_k`, `experts` or `tile`.
        name: &'static str,
    },
    /// A buffer of this shape would have an index that a 32-bit device word cannot hold.
    TooLarge {
        /// The buffer, or the dimension itself, that is too large.
        name: &'static str,
        /// Tokens of the refused shape.
        tokens: usize,
        /// Experts per token of the refused shape.
        top_k: usize,
        /// Experts of the refused shape.
        experts: usize,
        /// Tile height of the refused shape.
        tile: usize,
    },
    /// `ids` or `weights` does not hold one word for each entry.
    InputLength {
        /// `ids` or `weights`.
        name: &'static str,
        /// Words found.
        found: usize,
        /// Entries of the shape.
        entries: usize,
    },
    /// A buffer is shorter than the shape requires.
    BufferTooSmall {
        /// The buffer's name in [`Buffers`](crate::Buffers).
        name: &'static str,
        /// Words found.
        found: usize,
        /// Words required.
        required: usize,
    },
    /// An id on the host is neither -1 nor an expert.
    IdOutOfRange {
        /// The entry that holds it.
        entry: usize,
        /// The id.
        id: i32,
        /// Experts of the shape.
        experts: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Zero { name } => write!(f, "plan shape: {name} is 0, it must be at least 1"),
            Self::TooLarge { name, tokens, top_k, experts, tile } => write!(
                f,
                "plan shape: {name} does not fit 31 bits \
                 ({tokens} tokens, {top_k} experts per token, {experts} experts, tile {tile})"
            ),
            Self::InputLength { name, found, entries } => {
                write!(f, "plan input {name}: {found} words for {entries} entries")
            }
            Self::BufferTooSmall { name, found, required } => {
                write!(f, "plan buffer {name}: {found} words, {required} required")
            }
            Self::IdOutOfRange { entry, id, experts } => {
                write!(f, "entry {entry}: expert id {id} is outside -1..={}", experts - 1)
            }
        }
    }
}

impl std::error::Error for Error {}

//! The plan: which row of which expert's matrix product each routed token becomes.
//!
//! In a mixture-of-experts layer a router names, for each of T tokens, the K of E experts that shall
//! process it. Multiplying token by token would read an expert's weights once for every token. So the
//! tokens are sorted by expert first, and each expert multiplies all of its tokens at once: one tall
//! *segment* of rows per expert, cut into *tiles* of `tm` rows, because that is the shape matrix units
//! like. The plan is the list of who goes where. One plan serves the whole layer: the gather that copies
//! tokens to rows, the gate, up and down products, and the combine that brings rows back to tokens.
//!
//! # A small one
//!
//! Three tokens, K = 2 experts each, E = 4 experts, tiles of tm = 2 rows. Entry i belongs to token i / K.
//! The second expert of token 1 was skipped: its id is -1.
//!
//! ```text
//!  token        0       1       2
//!  entry      0   1   2   3   4   5
//!  ids        2   0   2  -1   0   2      router's choice
//!             |   |   |       |   |
//!  pos        2   0   3  -1   1   4      row of each entry
//!
//!  row        0   1 | 2   3 | 4   5
//!  stok       0   2 | 0   1 | 2  -1      token of each row, -1 is padding
//!             expert 0       expert 2
//!             2 entries      3 entries, so 2 tiles and a row of padding
//!
//!  tiles      (0, 0, 2) (2, 2, 2) (2, 4, 1)      expert, first row, valid rows
//!  eoff       0  2  2  6  6                      first row of each expert, and R = 6 rows in all
//! ```
//!
//! Experts follow each other in order, each from a fresh tile, and within an expert the entries keep
//! their order. That defines every word: there is one right answer, and each backend gives it to the bit.
//!
//! ```
//! use argon_plan::{Plan, Shape, Variant, meta};
//!
//! let shape = Shape::new(3, 2, 4, 2)?; // tokens, experts per token, experts, rows of a tile
//! let ids = [2, 0, 2, -1, 0, 2];
//! let weights = [10, 11, 12, 13, 14, 15]; // moved as raw bits, whatever they mean
//! let plan = Plan::build(shape, &ids, &weights, Variant::default())?;
//!
//! assert_eq!(plan.pos(), [2, 0, 3, -1, 1, 4]);
//! assert_eq!(plan.stok(), [0, 2, 0, 1, 2, -1]);
//! assert_eq!(plan.sw(), [11, 14, 10, 12, 15, 0]);
//! assert_eq!(plan.eoff(), [0, 2, 2, 6, 6]);
//! let tiles: Vec<_> = plan.tiles().map(|tile| tile.to_words()).collect();
//! assert_eq!(tiles, [[0, 0, 2], [2, 2, 2], [2, 4, 1]]);
//! assert_eq!((plan.meta()[meta::KEPT], plan.meta()[meta::SKIPPED]), (5, 1));
//! # Ok::<(), argon_plan::Error>(())
//! ```
//!
//! # How it is computed
//!
//! A counting sort in three stages, each a function here and a kernel on a GPU. Blocks of [`BLOCK`]
//! entries work independently of each other in the first and the last:
//!
//! 1. [`hist`](stages::hist) counts each expert's entries in each block: `bcnt [blocks, E]`.
//! 2. [`scan`](stages::scan) sums the counts up to first rows: `eoff [E+1]` of each expert,
//!    `boff [blocks, E]` of each block's entries of an expert. It lists the tiles and marks the padding.
//! 3. [`place`](stages::place) gives each entry the row `boff + rank`, its rank being the number of
//!    entries before it, in its block, with the same expert; and that row the entry's token and weight.
//!
//! The work is O(T*K + blocks * E). `meta` carries the sizes R and n to whatever runs next, so that they
//! need not travel through the host. A [`Variant`] is another way to do a stage; [`mod@reference`] is the
//! definition that all are compared with.
//!
//! Invariant: the pipeline writes every defined word itself and touches no other; nothing is cleared first.
//! Invariant: no float is ever seen here. Weights are 32-bit words that move.
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

mod buffers;
mod compare;
mod error;
mod plan;
pub mod reference;
mod shape;
pub mod stages;
mod tiles;
pub mod variants;

pub use buffers::{Buffers, meta};
pub use compare::{Difference, check_untouched, compare};
pub use error::Error;
pub use plan::Plan;
pub use shape::{BLOCK, Shape};
pub use tiles::Tile;
pub use variants::{Variant, build, build_lenient, check_ids};

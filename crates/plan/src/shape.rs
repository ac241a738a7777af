//! How large a plan can get: the four numbers it depends on, and the length of every buffer.

use crate::Error;
use crate::meta;
use crate::tiles::{Tile, max_tiles};

/// Entries that one block of `hist` and `place` handles.
pub const BLOCK: usize = 1024;

/// Every index of every buffer fits a non-negative `i32`, the narrowest type that holds one (`pos`).
const MAX_WORDS: usize = i32::MAX as usize;

/// The validated size of a plan: T tokens with K experts each, out of E experts, in tiles of `tm` rows.
///
/// Buffer lengths are in 32-bit words and depend on the shape alone, never on the ids, so that
/// buffers are allocated once for the largest chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    entries: usize,
    top_k: usize,
    experts: usize,
    tile: usize,
}

impl Shape {
    /// The shape of a chunk of `tokens` tokens (0 is allowed).
    ///
    /// # Errors
    /// [`Error::Zero`] if one of the others is 0; [`Error::TooLarge`] if a buffer would have more
    /// than `i32::MAX` words.
    pub fn new(tokens: usize, top_k: usize, experts: usize, tile: usize) -> Result<Self, Error> {
        for (name, length) in [("top_k", top_k), ("experts", experts), ("tile", tile)] {
            if length == 0 {
                return Err(Error::Zero { name });
            }
        }
        let fit = |name, words: Option<usize>| {
            let too_large = Error::TooLarge { name, tokens, top_k, experts, tile };
            words.filter(|&words| words <= MAX_WORDS).ok_or(too_large)
        };
        fit("top_k", Some(top_k))?;
        fit("tile", Some(tile))?;
        fit("eoff", experts.checked_add(1))?;
        let entries = fit("pos", tokens.checked_mul(top_k))?;
        let tiles = max_tiles(entries, experts, tile);
        fit("tiles", tiles.checked_mul(Tile::WORDS))?;
        fit("stok", tiles.checked_mul(tile))?;
        fit("bcnt", entries.div_ceil(BLOCK).checked_mul(experts))?;
        Ok(Self { entries, top_k, experts, tile })
    }

    /// T, the tokens of the chunk.
    pub fn tokens(&self) -> usize {
        self.entries / self.top_k
    }

    /// T*K, the entries: entry i belongs to token i / K. Also the length of `ids`, `weights` and `pos`.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// K, the experts of each token.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// E, the experts to choose from.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// tm, the rows of a tile.
    pub fn tile(&self) -> usize {
        self.tile
    }

    /// Blocks of [`BLOCK`] entries, the last one perhaps shorter.
    pub fn blocks(&self) -> usize {
        self.entries.div_ceil(BLOCK)
    }

    /// The most tiles that ids of this shape can need; some ids do need as many.
    pub fn max_tiles(&self) -> usize {
        max_tiles(self.entries, self.experts, self.tile)
    }

    /// The largest R that ids of this shape can have; some ids do have it. The length of `stok` and `sw`.
    pub fn max_rows(&self) -> usize {
        self.max_tiles() * self.tile
    }

    /// Words of `bcnt` and of `boff`: blocks * E.
    pub fn block_words(&self) -> usize {
        self.blocks() * self.experts
    }

    /// Words of `eoff`: E + 1.
    pub fn eoff_words(&self) -> usize {
        self.experts + 1
    }

    /// Words of `tiles`: three for each of [`max_tiles`](Self::max_tiles).
    pub fn tile_words(&self) -> usize {
        self.max_tiles() * Tile::WORDS
    }

    /// Words of `meta`.
    pub fn meta_words(&self) -> usize {
        meta::WORDS
    }
}

//! The words of a plan, as they lie in memory on every backend.

use crate::{Error, Shape};

/// The index of each word of `meta`.
pub mod meta {
    /// n, the tiles.
    pub const TILES: usize = 0;
    /// R, the rows with their padding.
    pub const ROWS: usize = 1;
    /// Entries that got a row.
    pub const KEPT: usize = 2;
    /// Experts with at least one entry.
    pub const ACTIVE: usize = 3;
    /// Entries of the expert that has the most, its rows without padding.
    pub const LARGEST: usize = 4;
    /// tm, the rows of a tile.
    pub const TILE: usize = 5;
    /// Blocks of [`BLOCK`](crate::BLOCK) entries.
    pub const BLOCKS: usize = 6;
    /// T*K, the entries.
    pub const ENTRIES: usize = 7;
    /// Entries whose id is -1.
    pub const SKIPPED: usize = 8;
    /// Entries whose id is outside -1..=E-1.
    pub const REJECTED: usize = 9;
    /// Always 0.
    pub const RESERVED: usize = 10;
    /// Words of `meta`.
    pub const WORDS: usize = 11;
}

/// The buffers that a pipeline writes, each at least as long as its [`Shape`] says.
///
/// The defined words are `stok` and `sw` in `[0, R)`, `tiles` in `[0, n)` and the stated length of all
/// others. Each is written by the pipeline, whatever it held before; no word beyond them is touched.
#[derive(Debug)]
pub struct Buffers<'a> {
    /// `[blocks, E]`: entries of expert e in block b.
    pub bcnt: &'a mut [u32],
    /// `[blocks, E]`: the row of the first entry of expert e in block b, if it has one.
    pub boff: &'a mut [u32],
    /// `[E+1]`: the first row of expert e; the last word is R.
    pub eoff: &'a mut [u32],
    /// `[n, 3]`: expert, first row, valid rows; see [`Tile`](crate::Tile).
    pub tiles: &'a mut [u32],
    /// `[R]`: the token of a row, -1 for a padding row.
    pub stok: &'a mut [i32],
    /// `[R]`: the weight of a row, as raw bits; 0 for a padding row.
    pub sw: &'a mut [u32],
    /// `[T*K]`: the row of an entry, -1 for an entry that has none.
    pub pos: &'a mut [i32],
    /// `[11]`: sizes and counts, indexed by the constants of [`meta`].
    pub meta: &'a mut [u32],
}

impl Buffers<'_> {
    /// Checks that each buffer holds what a plan of this shape can need.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] names the first that does not.
    pub fn check(&self, shape: &Shape) -> Result<(), Error> {
        let lengths = [
            ("bcnt", self.bcnt.len(), shape.block_words()),
            ("boff", self.boff.len(), shape.block_words()),
            ("eoff", self.eoff.len(), shape.eoff_words()),
            ("tiles", self.tiles.len(), shape.tile_words()),
            ("stok", self.stok.len(), shape.max_rows()),
            ("sw", self.sw.len(), shape.max_rows()),
            ("pos", self.pos.len(), shape.entries()),
            ("meta", self.meta.len(), shape.meta_words()),
        ];
        for (name, found, required) in lengths {
            if found < required {
                return Err(Error::BufferTooSmall { name, found, required });
            }
        }
        Ok(())
    }
}

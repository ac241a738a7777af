//! A plan that owns its buffers.

use crate::buffers::{Buffers, meta};
use crate::error::Error;
use crate::shape::Shape;
use crate::tiles::Tile;
use crate::variants::{Variant, build, build_lenient};

/// A plan in host memory, to read by name.
///
/// The readers take n and R from `meta`. They panic if those exceed the shape, which no variant writes;
/// words that come from a device are [compared](crate::compare) before they are read.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) shape: Shape,
    pub(crate) bcnt: Vec<u32>,
    pub(crate) boff: Vec<u32>,
    pub(crate) eoff: Vec<u32>,
    pub(crate) tiles: Vec<u32>,
    pub(crate) stok: Vec<i32>,
    pub(crate) sw: Vec<u32>,
    pub(crate) pos: Vec<i32>,
    pub(crate) meta: Vec<u32>,
}

impl Plan {
    /// The plan of `ids` `[T*K]` and `weights` `[T*K]` (raw bits).
    ///
    /// # Errors
    /// As [`build`](crate::build()): a wrong length, or an id outside -1..=E-1.
    pub fn build(shape: Shape, ids: &[i32], weights: &[u32], variant: Variant) -> Result<Self, Error> {
        let mut plan = Self::filled(shape, 0, 0);
        build(variant, &shape, ids, weights, &mut plan.buffers())?;
        Ok(plan)
    }

    /// As [`Plan::build`], with bad ids skipped and counted.
    ///
    /// # Errors
    /// As [`build_lenient`](crate::build_lenient): a wrong length.
    pub fn build_lenient(shape: Shape, ids: &[i32], weights: &[u32], variant: Variant) -> Result<Self, Error> {
        let mut plan = Self::filled(shape, 0, 0);
        build_lenient(variant, &shape, ids, weights, &mut plan.buffers())?;
        Ok(plan)
    }

    /// Buffers that hold `word` everywhere and are each `spare` words longer than the shape needs:
    /// what a pipeline under test writes into, or what a device's words are copied into.
    pub fn filled(shape: Shape, word: u32, spare: usize) -> Self {
        let unsigned = |words| vec![word; words + spare];
        let signed = |words| vec![word as i32; words + spare];
        Self {
            shape,
            bcnt: unsigned(shape.block_words()),
            boff: unsigned(shape.block_words()),
            eoff: unsigned(shape.eoff_words()),
            tiles: unsigned(shape.tile_words()),
            stok: signed(shape.max_rows()),
            sw: unsigned(shape.max_rows()),
            pos: signed(shape.entries()),
            meta: unsigned(shape.meta_words()),
        }
    }

    /// All words, to be written.
    pub fn buffers(&mut self) -> Buffers<'_> {
        Buffers {
            bcnt: &mut self.bcnt,
            boff: &mut self.boff,
            eoff: &mut self.eoff,
            tiles: &mut self.tiles,
            stok: &mut self.stok,
            sw: &mut self.sw,
            pos: &mut self.pos,
            meta: &mut self.meta,
        }
    }

    /// The shape the plan was built for.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// `[11]`: sizes and counts, indexed by the constants of [`meta`](crate::meta).
    pub fn meta(&self) -> &[u32] {
        &self.meta[..meta::WORDS]
    }

    /// R, the rows with their padding.
    pub fn rows(&self) -> usize {
        self.meta[meta::ROWS] as usize
    }

    /// `[n]`: the tiles in expert order.
    pub fn tiles(&self) -> impl ExactSizeIterator<Item = Tile> + '_ {
        let (tiles, _) = self.tiles.as_chunks::<{ Tile::WORDS }>();
        tiles[..self.meta[meta::TILES] as usize].iter().map(|&words| Tile::from_words(words))
    }

    /// `[R]`: the token of each row, -1 for padding.
    pub fn stok(&self) -> &[i32] {
        &self.stok[..self.rows()]
    }

    /// `[R]`: the weight of each row as raw bits, 0 for padding.
    pub fn sw(&self) -> &[u32] {
        &self.sw[..self.rows()]
    }

    /// `[T*K]`: the row of each entry, -1 for an entry without one.
    pub fn pos(&self) -> &[i32] {
        &self.pos[..self.shape.entries()]
    }

    /// `[E+1]`: the first row of each expert, and R.
    pub fn eoff(&self) -> &[u32] {
        &self.eoff[..self.shape.eoff_words()]
    }

    /// `[blocks, E]`: entries of each expert in each block.
    pub fn bcnt(&self) -> &[u32] {
        &self.bcnt[..self.shape.block_words()]
    }

    /// `[blocks, E]`: the first row of each expert's entries in each block.
    pub fn boff(&self) -> &[u32] {
        &self.boff[..self.shape.block_words()]
    }
}

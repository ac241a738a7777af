//! The three stages, in the way that is fastest on one CPU core: `hist`, `scan`, `place`.
//!
//! The other [variants](crate::Variant) replace a stage, or part of one, and leave the same bytes.
//!
//! A stage assumes that the stages before it have run, and what [`build`](crate::build()) checks: inputs
//! of `shape.entries()` words, and buffers for which [`Buffers::check`] holds. It panics on shorter ones.

use std::iter::Sum;
use std::ops::Add;

use crate::buffers::{Buffers, meta};
use crate::shape::{BLOCK, Shape};
use crate::tiles::{Tile, cut};

/// Counts the entries of every expert, block by block.
///
/// Reads `ids`. Writes `bcnt`, and the words SKIPPED and REJECTED of `meta`.
pub fn hist(shape: &Shape, ids: &[i32], out: &mut Buffers<'_>) {
    let blocks = ids.chunks(BLOCK).zip(out.bcnt.chunks_mut(shape.experts()));
    let left_out = blocks.map(|(ids, counts)| count_block(ids, counts)).sum::<LeftOut>();
    left_out.write(out.meta);
}

/// Turns counts into rows: lays out the experts one after the other, each from a fresh tile.
///
/// Reads `bcnt`. Writes `boff`, `eoff`, `tiles`, the padding rows of `stok` and `sw`, and the other
/// words of `meta`.
pub fn scan(shape: &Shape, out: &mut Buffers<'_>) {
    count_before_blocks(shape, out);
    lay_out_experts(shape, out);
    pad(shape, out);
}

/// Gives every entry its row, and every row its token and weight.
///
/// Reads `ids`, `weights` and `boff`. Writes `pos`, and the rows of `stok` and `sw` that are not padding.
pub fn place(shape: &Shape, ids: &[i32], weights: &[u32], out: &mut Buffers<'_>) {
    let mut next_row = Vec::with_capacity(shape.experts());
    find_rows(shape, ids, out, |ids, first_rows, pos| {
        take_rows(ids, first_rows, &mut next_row, pos);
    });
    fill_rows(shape, weights, out);
}

/// The expert that an id names; none for a skipped (-1) or rejected entry.
pub(crate) fn expert_of(id: i32, experts: usize) -> Option<usize> {
    usize::try_from(id).ok().filter(|&expert| expert < experts)
}

/// Entries without a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    skipped: u32,
    rejected: u32,
}

impl LeftOut {
    pub(crate) fn write(self, meta: &mut [u32]) {
        meta[meta::SKIPPED] = self.skipped;
        meta[meta::REJECTED] = self.rejected;
    }
}

impl Add for LeftOut {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { skipped: self.skipped + other.skipped, rejected: self.rejected + other.rejected }
    }
}

impl Sum for LeftOut {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}

/// One block of `hist`: overwrites `counts` `[E]`.
pub(crate) fn count_block(ids: &[i32], counts: &mut [u32]) -> LeftOut {
    counts.fill(0);
    let mut left_out = LeftOut::default();
    for &id in ids {
        match expert_of(id, counts.len()) {
            Some(expert) => counts[expert] += 1,
            None if id == -1 => left_out.skipped += 1,
            None => left_out.rejected += 1,
        }
    }
    left_out
}

/// For every block and expert, the expert's entries in earlier blocks into `boff`; the expert's
/// entries in all blocks into `eoff`.
pub(crate) fn count_before_blocks(shape: &Shape, out: &mut Buffers<'_>) {
    let experts = shape.experts();
    let total = &mut out.eoff[..experts];
    total.fill(0);
    let counts = out.bcnt.chunks_exact(experts);
    let before = out.boff.chunks_exact_mut(experts);
    for (counts, before) in counts.zip(before).take(shape.blocks()) {
        count_before_block(counts, before, total);
    }
}

/// One block of [`count_before_blocks`]: all slices `[E]`, `total` the counts of the earlier blocks.
pub(crate) fn count_before_block(counts: &[u32], before: &mut [u32], total: &mut [u32]) {
    before.copy_from_slice(total);
    for (total, &count) in total.iter_mut().zip(counts) {
        *total += count;
    }
}

/// From the counts that [`count_before_blocks`] left in `eoff` and `boff` to the rows that belong
/// there, with the tiles and the words of `meta` that follow from them.
pub(crate) fn lay_out_experts(shape: &Shape, out: &mut Buffers<'_>) {
    let Buffers { boff, eoff, tiles, meta, .. } = out;
    let (experts, tile) = (shape.experts(), shape.tile() as u32);
    let (tiles, _) = tiles.as_chunks_mut::<{ Tile::WORDS }>();
    let (mut n, mut kept, mut active, mut largest) = (0, 0, 0, 0);
    for (expert, word) in eoff[..experts].iter_mut().enumerate() {
        let (count, first_row) = (*word, n * tile);
        *word = first_row;
        for tile in cut(expert as u32, first_row, count, tile) {
            tiles[n as usize] = tile.to_words();
            n += 1;
        }
        kept += count;
        active += u32::from(count > 0);
        largest = largest.max(count);
    }
    eoff[experts] = n * tile;
    for rows in boff[..shape.block_words()].chunks_exact_mut(experts) {
        for (row, &first_row) in rows.iter_mut().zip(&**eoff) {
            *row += first_row;
        }
    }
    meta[meta::TILES] = n;
    meta[meta::ROWS] = n * tile;
    meta[meta::KEPT] = kept;
    meta[meta::ACTIVE] = active;
    meta[meta::LARGEST] = largest;
    meta[meta::TILE] = tile;
    meta[meta::BLOCKS] = shape.blocks() as u32;
    meta[meta::ENTRIES] = shape.entries() as u32;
    meta[meta::RESERVED] = 0;
}

/// Marks the rows that no entry gets: the end of each expert's last tile.
pub(crate) fn pad(shape: &Shape, out: &mut Buffers<'_>) {
    let (tiles, _) = out.tiles.as_chunks::<{ Tile::WORDS }>();
    for &words in &tiles[..out.meta[meta::TILES] as usize] {
        let tile = Tile::from_words(words);
        let first = tile.first_row as usize;
        let padding = first + tile.rows as usize..first + shape.tile();
        out.stok[padding.clone()].fill(-1);
        out.sw[padding].fill(0);
    }
}

/// The first half of `place`, `pos`, in any way to compute it: `rows_of_block(ids, first_rows, pos)` is
/// called for each block in order, with its `ids`, its row `[E]` of `boff`, and the `pos` it overwrites.
pub(crate) fn find_rows(
    shape: &Shape,
    ids: &[i32],
    out: &mut Buffers<'_>,
    mut rows_of_block: impl FnMut(&[i32], &[u32], &mut [i32]),
) {
    let first_rows = out.boff.chunks_exact(shape.experts());
    let pos = out.pos[..shape.entries()].chunks_mut(BLOCK);
    for ((ids, first_rows), pos) in ids.chunks(BLOCK).zip(first_rows).zip(pos) {
        rows_of_block(ids, first_rows, pos);
    }
}

/// One block of `pos`: each expert's rows are handed out in entry order, `next_row` being its scratch.
pub(crate) fn take_rows(ids: &[i32], first_rows: &[u32], next_row: &mut Vec<u32>, pos: &mut [i32]) {
    next_row.clear();
    next_row.extend_from_slice(first_rows);
    for (pos, &id) in pos.iter_mut().zip(ids) {
        *pos = match expert_of(id, next_row.len()) {
            Some(expert) => {
                let row = next_row[expert];
                next_row[expert] += 1;
                row as i32
            }
            None => -1,
        };
    }
}

/// The second half of `place`: from the rows of the entries to the entries of the rows.
pub(crate) fn fill_rows(shape: &Shape, weights: &[u32], out: &mut Buffers<'_>) {
    let pos = &out.pos[..shape.entries()];
    fill_tokens(shape, pos, out.stok);
    fill_weights(pos, weights, out.sw);
}

/// Writes the rows of `stok` that are not padding.
pub(crate) fn fill_tokens(shape: &Shape, pos: &[i32], stok: &mut [i32]) {
    for (token, pos) in pos.chunks_exact(shape.top_k()).enumerate() {
        for &row in pos {
            if let Ok(row) = usize::try_from(row) {
                stok[row] = token as i32;
            }
        }
    }
}

/// Writes the rows of `sw` that are not padding.
pub(crate) fn fill_weights(pos: &[i32], weights: &[u32], sw: &mut [u32]) {
    for (&row, &weight) in pos.iter().zip(weights) {
        if let Ok(row) = usize::try_from(row) {
            sw[row] = weight;
        }
    }
}

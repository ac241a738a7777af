//! How the entries of a chunk lie in its plan.

use argon_plan::{Plan, Shape, meta};
use serde::Serialize;

/// How the entries of a chunk lie in its plan.
#[derive(Clone, Debug, Serialize)]
pub struct Layout {
    /// T.
    pub tokens: usize,
    /// Blocks of 1024 entries.
    pub blocks: u32,
    /// Rows of a tile.
    pub tile: u32,
    /// Rows with their padding.
    pub rows: u32,
    /// Entries that have a row.
    pub kept: u32,
    /// Experts with entries.
    pub active: u32,
    /// Entries of each expert, the largest first.
    pub rows_per_expert: Vec<u32>,
}

impl Layout {
    /// Of a plan.
    pub fn of(plan: &Plan) -> Layout {
        let word = |index: usize| plan.meta()[index];
        let mut rows_per_expert = loads(plan);
        rows_per_expert.sort_unstable_by(|a, b| b.cmp(a));
        Layout {
            tokens: plan.shape().tokens(),
            blocks: word(meta::BLOCKS),
            tile: word(meta::TILE),
            rows: word(meta::ROWS),
            kept: word(meta::KEPT),
            active: word(meta::ACTIVE),
            rows_per_expert,
        }
    }

    /// Rows with padding in tiles of `tile` rows.
    pub fn rows_in_tiles_of(&self, tile: u32) -> u32 {
        self.rows_per_expert.iter().map(|rows| rows.div_ceil(tile) * tile).sum()
    }
}

/// Entries of each expert.
pub fn loads(plan: &Plan) -> Vec<u32> {
    let experts = plan.shape().experts();
    let mut loads = vec![0; experts];
    for counts in plan.bcnt().chunks_exact(experts) {
        loads.iter_mut().zip(counts).for_each(|(load, count)| *load += count);
    }
    loads
}

/// 32-bit words of all buffers of a plan, its choices and their weights included.
pub fn words(shape: &Shape) -> Option<usize> {
    let (rows, entries) = (shape.max_rows().checked_mul(2)?, shape.entries().checked_mul(3)?);
    let blocks = shape.block_words().checked_mul(2)?;
    rows.checked_add(entries)?.checked_add(blocks)?.checked_add(shape.tile_words() + shape.eoff_words())
}

//! `Serial`: where the packed counters come from. The padding is laid down by a pass of its own,
//! and an entry finds its rank by looking at every entry before it in its block.
//!
//! A quarter of a million comparisons to a block of 1024: the variant to measure the others against.

use crate::buffers::{Buffers, meta};
use crate::shape::Shape;
use crate::stages::{count_before_blocks, expert_of, fill_rows, find_rows, lay_out_experts};

/// As [`stages::scan`](crate::stages::scan), but leaves the padding rows to [`clear`].
pub fn scan(shape: &Shape, out: &mut Buffers<'_>) {
    count_before_blocks(shape, out);
    lay_out_experts(shape, out);
}

/// Turns all R rows into padding, to be overwritten by [`place`]. It runs after [`scan`], which knows R.
///
/// Reads `meta`. Writes `stok` and `sw`.
pub fn clear(out: &mut Buffers<'_>) {
    let rows = out.meta[meta::ROWS] as usize;
    out.stok[..rows].fill(-1);
    out.sw[..rows].fill(0);
}

/// As [`stages::place`](crate::stages::place), in O(1024 * T*K).
pub fn place(shape: &Shape, ids: &[i32], weights: &[u32], out: &mut Buffers<'_>) {
    find_rows(shape, ids, out, |ids, first_rows, pos| {
        for (i, (pos, &id)) in pos.iter_mut().zip(ids).enumerate() {
            *pos = match expert_of(id, first_rows.len()) {
                Some(expert) => first_rows[expert] as i32 + count_of(id, &ids[..i]),
                None => -1,
            };
        }
    });
    fill_rows(shape, weights, out);
}

/// Entries with this id.
pub(super) fn count_of(id: i32, ids: &[i32]) -> i32 {
    ids.iter().map(|&other| i32::from(other == id)).sum()
}

//! `Fused`: `hist` and `scan` as one stage, which sums up a block's counts as soon as they are known.
//!
//! One pass over `bcnt` fewer, but the blocks now follow each other. A GPU loses more by that than it
//! gains: one group of threads cannot occupy it.

use crate::buffers::Buffers;
use crate::shape::{BLOCK, Shape};
use crate::stages::{LeftOut, count_before_block, count_block, lay_out_experts, pad};

/// As [`stages::hist`](crate::stages::hist) followed by [`stages::scan`](crate::stages::scan).
pub fn hist_scan(shape: &Shape, ids: &[i32], out: &mut Buffers<'_>) {
    let experts = shape.experts();
    let total = &mut out.eoff[..experts];
    total.fill(0);
    let mut left_out = LeftOut::default();
    let counts = out.bcnt.chunks_exact_mut(experts);
    let before = out.boff.chunks_exact_mut(experts);
    for ((ids, counts), before) in ids.chunks(BLOCK).zip(counts).zip(before) {
        left_out = left_out + count_block(ids, counts);
        count_before_block(counts, before, total);
    }
    left_out.write(out.meta);
    lay_out_experts(shape, out);
    pad(shape, out);
}

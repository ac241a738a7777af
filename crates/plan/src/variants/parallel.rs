//! `Parallel`: the default stages, shared out to the threads of a pool.
//!
//! Blocks are independent once `scan` has told each where its rows begin, so `hist` and the `pos` half of
//! `place` go block by block. The rows of a block lie scattered over all rows, which safe code cannot
//! share out; there, one thread fills `stok` and another `sw`.

use rayon::prelude::*;

use crate::buffers::Buffers;
use crate::shape::{BLOCK, Shape};
use crate::stages::{LeftOut, count_block, fill_tokens, fill_weights, take_rows};

/// As [`stages::hist`](crate::stages::hist).
pub fn hist(shape: &Shape, ids: &[i32], out: &mut Buffers<'_>) {
    let blocks = ids.par_chunks(BLOCK).zip(out.bcnt.par_chunks_mut(shape.experts()));
    let left_out = blocks.map(|(ids, counts)| count_block(ids, counts)).sum::<LeftOut>();
    left_out.write(out.meta);
}

/// As [`stages::place`](crate::stages::place).
pub fn place(shape: &Shape, ids: &[i32], weights: &[u32], out: &mut Buffers<'_>) {
    let pos = &mut out.pos[..shape.entries()];
    let first_rows = out.boff.par_chunks_exact(shape.experts());
    let blocks = ids.par_chunks(BLOCK).zip(first_rows).zip(pos.par_chunks_mut(BLOCK));
    blocks.for_each_init(Vec::new, |next_row, ((ids, first_rows), pos)| {
        take_rows(ids, first_rows, next_row, pos);
    });

    let pos = &*pos;
    rayon::join(|| fill_tokens(shape, pos, out.stok), || fill_weights(pos, weights, out.sw));
}

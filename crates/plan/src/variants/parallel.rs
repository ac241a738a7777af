//! `Parallel`: the default stages with blocks, and then rows, shared out to the threads of a pool.
//!
//! Blocks are independent once `scan` has told each where its rows begin, so `hist` and the `pos` half
//! of `place` go block by block. The rows of a block lie scattered over `stok` and `sw`; that half goes
//! by windows of rows instead: each thread owns one, walks all of `pos`, and writes what falls into it.

use rayon::prelude::*;

use crate::buffers::{Buffers, meta};
use crate::shape::{BLOCK, Shape};
use crate::stages::{LeftOut, Rows, count_block, take_rows};

/// As [`stages::hist`](crate::stages::hist).
pub(crate) fn hist(shape: &Shape, ids: &[i32], out: &mut Buffers<'_>) {
    let blocks = ids
        .par_chunks(BLOCK)
        .zip(out.bcnt.par_chunks_mut(shape.experts()));
    let left_out = blocks
        .map(|(ids, counts)| count_block(ids, counts))
        .sum::<LeftOut>();
    left_out.write(out.meta);
}

/// As [`stages::place`](crate::stages::place).
pub(crate) fn place(shape: &Shape, ids: &[i32], weights: &[u32], out: &mut Buffers<'_>) {
    let pos = &mut out.pos[..shape.entries()];
    let first_rows = out.boff.par_chunks_exact(shape.experts());
    let blocks = ids
        .par_chunks(BLOCK)
        .zip(first_rows)
        .zip(pos.par_chunks_mut(BLOCK));
    blocks.for_each_init(Vec::new, |next_row, ((ids, first_rows), pos)| {
        take_rows(ids, first_rows, next_row, pos);
    });

    let rows = out.meta[meta::ROWS] as usize;
    let window = rows.div_ceil(rayon::current_num_threads()).max(1);
    let stok = out.stok[..rows].par_chunks_mut(window);
    let sw = out.sw[..rows].par_chunks_mut(window);
    stok.zip(sw).enumerate().for_each(|(i, (stok, sw))| {
        Rows {
            first: i * window,
            stok,
            sw,
        }
        .fill(shape, 0, pos, weights);
    });
}

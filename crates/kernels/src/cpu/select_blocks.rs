//! The QSA indexer: block keys, and the choice of blocks.

use rayon::iter::ParallelIterator;

use super::CpuDevice;
use super::copy::for_each_group;
use super::math::dot;
use super::memory::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::{MeanPool, SelectBlocks};

pub(super) fn mean_pool(device: &CpuDevice, o: &MeanPool) -> Result<(), DeviceError> {
    let x = View::<f32>::of(device, &o.x)?;
    for_each_group(ViewMut::of(device, &o.out)?, |block, _, out: &mut [f32]| {
        out.fill(0.0);
        for row in block * o.ratio..(block + 1) * o.ratio {
            for (out, x) in out.iter_mut().zip(x.row(row)) {
                *out += x;
            }
        }
        for out in out {
            *out /= o.ratio as f32;
        }
    });
    Ok(())
}

/// Queries in one task.
const QUERIES: usize = 8;

pub(super) fn select_blocks(device: &CpuDevice, o: &SelectBlocks) -> Result<(), DeviceError> {
    let q = View::<f32>::of(device, &o.q)?;
    let keys = View::<f32>::of(device, &o.keys)?;
    let out = ViewMut::<i32>::of(device, &o.out)?;
    let wanted = out.cols();
    out.tiles([QUERIES, 1, wanted.max(1)]).for_each(|mut tile| {
        let mut scored = Vec::new();
        for (i, token) in tile.rows.enumerate() {
            let complete = (o.pos0 + token + 1) / o.ratio;
            let score = |block: usize| (0..q.groups()).map(|h| dot(q.at(token, h), keys.row(block)).max(0.0)).sum();
            scored.clear();
            scored.extend((0..complete).map(|block| (score(block), block as i32)));
            best(&mut scored, wanted);
            let out = tile.view.at_mut(i, 0);
            out.fill(-1);
            for (out, &(_, block)) in out.iter_mut().zip(&scored) {
                *out = block;
            }
        }
    });
    Ok(())
}

/// Keeps the `n` highest scores, ties to the lower block, in the order of the blocks.
fn best(scored: &mut Vec<(f32, i32)>, n: usize) {
    if n < scored.len() {
        if n > 0 {
            scored.select_nth_unstable_by(n - 1, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        }
        scored.truncate(n);
        scored.sort_unstable_by_key(|&(_, block)| block);
    }
}

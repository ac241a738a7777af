//! The QSA indexer: block keys, and the choice of blocks.

use std::ops::Range;

use super::CpuDevice;
use super::copy::for_each_group;
use super::isa::{Floats, Isa, Kernel, LANES, Simd};
use super::matmul::{MatMul, Matrix};
use super::rank::{index, keep_best, rank};
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::{MeanPool, SelectBlocks};

pub(super) fn mean_pool(device: &CpuDevice, o: &MeanPool) -> Result<(), DeviceError> {
    let x = View::<f32>::of(device, &o.x)?;
    for_each_group(device, ViewMut::of(device, &o.out)?, |block, _, out: &mut [f32]| {
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

/// Block keys that are scored at once.
const KEYS: usize = 64;

pub(super) fn select_blocks(device: &CpuDevice, o: &SelectBlocks) -> Result<(), DeviceError> {
    let q = View::<f32>::of(device, &o.q)?;
    let keys = View::<f32>::of(device, &o.keys)?;
    let out = ViewMut::<i32>::of(device, &o.out)?;
    let wanted = out.cols();
    let complete = |token: usize| (o.pos0 + token + 1) / o.ratio;
    // One query to a lane.
    out.tiles([LANES, 1, wanted.max(1)]).for_each(&device.team, |mut tile| {
        let tokens = tile.rows.clone();
        let mut scores = Vec::new();
        // Where all are chosen, nobody asks for scores.
        if complete(tokens.end - 1) > wanted {
            scores = Queries::new(device.isa, q, tokens.clone()).scores(keys, complete(tokens.end - 1));
        }
        let mut chosen = Vec::new();
        for (lane, token) in tokens.enumerate() {
            chosen.clear();
            if complete(token) <= wanted {
                chosen.extend(0..complete(token));
            } else {
                let mut ranks = scores[..complete(token)].iter().enumerate().map(|(b, s)| rank(s.0[lane], b)).collect();
                keep_best(&mut ranks, wanted);
                chosen.extend(ranks.into_iter().map(index));
                chosen.sort_unstable();
            }
            let out = tile.view.at_mut(lane, 0);
            out.fill(-1);
            for (out, &block) in out.iter_mut().zip(&chosen) {
                *out = block as i32;
            }
        }
    });
    Ok(())
}

/// Up to a vector of queries: `[C, heads * LANES]`.
struct Queries {
    isa: Isa,
    q: Matrix,
    heads: usize,
}

impl Queries {
    fn new(isa: Isa, view: View<'_, f32>, tokens: Range<usize>) -> Self {
        let heads = view.groups();
        let mut q = Matrix::new(view.cols(), heads * LANES);
        for (lane, token) in tokens.enumerate() {
            for head in 0..heads {
                for (c, value) in view.at(token, head).iter().enumerate() {
                    q.row_mut(c)[head * LANES + lane] = *value;
                }
            }
        }
        Self { isa, q, heads }
    }

    /// `[blocks]`: the score of each, one query to a lane.
    fn scores(&self, keys: View<'_, f32>, blocks: usize) -> Vec<Floats> {
        let depth = keys.cols();
        let mut gathered = vec![0.0; KEYS * depth];
        let mut products = Matrix::new(KEYS, self.q.cols());
        let mut scores = Vec::with_capacity(blocks);
        for start in (0..blocks).step_by(KEYS) {
            let n = KEYS.min(blocks - start);
            for i in 0..n {
                gathered[i * depth..(i + 1) * depth].copy_from_slice(keys.row(start + i));
            }
            let (a, shape) = ((&gathered[..], [depth, 1]), [n, self.heads, depth]);
            MatMul { shape, a, b: self.q.right(0), c: products.result(0), keep: None }.run(self.isa);
            let products = &products.right(0).0[..n * self.heads];
            self.isa.run(SumOfHeads { products, heads: self.heads, scores: &mut scores });
        }
        scores
    }
}

/// `max(0, product)` summed over the heads of each key; `products` is `[keys, heads]`, one query to a lane.
struct SumOfHeads<'a> {
    products: &'a [Floats],
    heads: usize,
    scores: &'a mut Vec<Floats>,
}

impl Kernel for SumOfHeads<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for heads in self.products.chunks_exact(self.heads) {
            let mut sums = Floats::default();
            for Floats(head) in heads {
                for (sum, &product) in sums.0.iter_mut().zip(head) {
                    *sum += if product > 0.0 { product } else { 0.0 };
                }
            }
            self.scores.push(sums);
        }
    }
}

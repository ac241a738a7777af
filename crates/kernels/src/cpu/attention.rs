//! Causal softmax attention over a cache, by blocks of keys.
//!
//! A task has some neighbouring queries and all query heads of one key head, as lanes. For each block of keys, one product
//! gives the scores (keys by lanes), the softmax goes on lane by lane from what it knew (its highest score, its sum), and a
//! second product adds the weighted values. Blocks of keys are the same wherever a chunk was cut, and so are the bits.
//!
//! Where blocks are selected, tokens that choose alike go together, over the keys that any of them sees; nothing is done for
//! keys that none of them sees.

use std::ops::Range;

use half::f16;

use super::CpuDevice;
use super::block_set::BlockSet;
use super::isa::{Floats, Isa, Kernel, LANES, Simd};
use super::math::{exp, sigmoid};
use super::matmul::{MatMul, Matrix};
use super::view::{Element, Tile, View, ViewMut};
use crate::device::DeviceError;
use crate::op::{Attention, Selection};
use crate::tensor::DType;

/// Queries times heads in a task: enough to use each key often, few enough that their sums stay in the cache.
const ROWS: usize = 128;

/// Keys in a block.
const KEYS: usize = 64;

pub(super) fn attention(device: &CpuDevice, o: &Attention) -> Result<(), DeviceError> {
    match (o.k.dtype, o.v.dtype) {
        (DType::F16, DType::F16) => attend::<f16, f16>(device, o),
        (DType::F16, _) => attend::<f16, f32>(device, o),
        (_, DType::F16) => attend::<f32, f16>(device, o),
        _ => attend::<f32, f32>(device, o),
    }
}

fn attend<K: Cached, V: Cached>(device: &CpuDevice, o: &Attention) -> Result<(), DeviceError> {
    let operands = Operands {
        isa: device.isa,
        q: View::of(device, &o.q)?,
        k: View::<K>::of(device, &o.k)?,
        v: View::<V>::of(device, &o.v)?,
        gate: o.gate.as_ref().map(|gate| View::of(device, gate)).transpose()?,
        selection: match &o.select {
            Some(Selection { blocks, ratio }) => Some((View::of(device, blocks)?, *ratio)),
            None => None,
        },
        pos0: o.pos0,
        scale: o.scale,
    };
    let share = o.q.groups / o.k.groups;
    let tokens = (ROWS / share.max(1)).max(1);
    let out = ViewMut::<f32>::of(device, &o.out)?;
    let tiles = out.tiles([tokens, share.max(1), o.v.cols.max(1)]);
    tiles.for_each(&device.team, |mut tile| operands.tile(&mut tile));
    Ok(())
}

struct Operands<'a, K, V> {
    isa: Isa,
    q: View<'a, f32>,
    k: View<'a, K>,
    v: View<'a, V>,
    gate: Option<View<'a, f32>>,
    selection: Option<(View<'a, i32>, usize)>,
    pos0: usize,
    scale: f32,
}

impl<K: Cached, V: Cached> Operands<'_, K, V> {
    /// The output of some tokens and of all heads of one key head.
    fn tile(&self, out: &mut Tile<'_, f32>) {
        let (tokens, heads) = (out.rows.clone(), out.groups.clone());
        match &self.selection {
            None => self.attend(&Lanes { tokens, heads }, 0..self.end(&out.rows), |_| Sight::Everyone, out),
            Some((blocks, ratio)) => {
                let seen: Vec<BlockSet> = tokens.clone().map(|t| self.seen(t, blocks.row(t), *ratio)).collect();
                self.selected(&Lanes { tokens, heads }, &seen, *ratio, out);
            }
        }
    }

    /// One past the last key that a range of tokens may see.
    fn end(&self, tokens: &Range<usize>) -> usize {
        self.pos0 + tokens.end
    }

    /// The blocks of which a token sees something: the selected complete ones, and the one that is not complete yet.
    fn seen(&self, token: usize, selected: &[i32], ratio: usize) -> BlockSet {
        let complete = (self.pos0 + token + 1) / ratio;
        let mut seen = BlockSet::new(complete + 1);
        let selected = selected.iter().filter_map(|&block| usize::try_from(block).ok());
        selected.filter(|&block| block < complete).for_each(|block| seen.insert(block));
        seen.insert(complete);
        seen
    }

    /// Tokens that choose alike share the blocks that any of them sees; of others, each half is on its own.
    fn selected(&self, lanes: &Lanes, seen: &[BlockSet], ratio: usize, out: &mut Tile<'_, f32>) {
        let Lanes { tokens, heads } = lanes;
        let (mut any, mut all) = (seen[0].clone(), seen[0].clone());
        for seen in &seen[1..] {
            any.unite(seen);
            all.intersect(seen);
        }
        let most = seen.iter().map(BlockSet::len).max().unwrap_or(0);
        if seen.len() == 1 || any.len() * 2 <= most * 3 {
            let end = self.end(tokens);
            let keys = any.iter().flat_map(|block| block * ratio..((block + 1) * ratio).min(end));
            let sight =
                |key| if all.contains(key / ratio) { Sight::Everyone } else { Sight::Choosers(seen, key / ratio) };
            self.attend(lanes, keys, sight, out);
        } else {
            let half = seen.len() / 2;
            let middle = tokens.start + half;
            for (tokens, seen) in [(tokens.start..middle, &seen[..half]), (middle..tokens.end, &seen[half..])] {
                self.selected(&Lanes { tokens, heads: heads.clone() }, seen, ratio, out);
            }
        }
    }

    /// Attends to `keys`, of which each lane sees those that are not ahead of it and that `sight` lets its token see.
    fn attend<'s>(
        &self,
        lanes: &Lanes,
        keys: impl Iterator<Item = usize>,
        sight: impl Fn(usize) -> Sight<'s>,
        out: &mut Tile<'_, f32>,
    ) {
        let mut state = State::new(self, lanes);
        let mut keys = keys.peekable();
        let mut block = Vec::with_capacity(KEYS);
        while keys.peek().is_some() {
            block.clear();
            block.extend(keys.by_ref().take(KEYS));
            state.score(self, lanes, &block);
            for (i, &key) in block.iter().enumerate() {
                state.hide(i, key, lanes, sight(key));
            }
            state.add_values(self, lanes, &block);
        }
        state.end(self, lanes, out);
    }
}

/// Which tokens of a task see a key, if it is not ahead of them.
enum Sight<'a> {
    /// All of them.
    Everyone,
    /// Those whose set has this block.
    Choosers(&'a [BlockSet], usize),
}

/// Some tokens and the query heads of one key head, as lanes: lane `t * heads + h`, then idle ones up to a whole vector.
struct Lanes {
    tokens: Range<usize>,
    heads: Range<usize>,
}

impl Lanes {
    fn used(&self) -> usize {
        self.tokens.len() * self.heads.len()
    }

    /// Lane, token and head of each.
    fn iter(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let all = self.tokens.clone().flat_map(|token| self.heads.clone().map(move |head| (token, head)));
        all.enumerate().map(|(lane, (token, head))| (lane, token, head))
    }
}

/// What a task remembers from one block of keys to the next, and its scratch memory.
struct State {
    /// `[C, lanes]`: the queries, scaled.
    q: Matrix,
    /// `[lanes]`: the position of each.
    positions: Vec<usize>,
    /// `[KEYS, C]`: keys of a block.
    keys: Matrix,
    /// `[KEYS, Cv]`: their values.
    values: Matrix,
    /// `[KEYS, lanes]`.
    scores: Matrix,
    /// `[lanes]`: the highest score so far.
    highest: Vec<f32>,
    /// `[lanes]`: what the last block's higher score makes of everything before it.
    keep: Vec<f32>,
    /// `[lanes]`: the sum of the exponentials so far.
    sums: Vec<f32>,
    /// `[lanes, Cv]`: the sum of the values so far, each times its exponential.
    out: Matrix,
}

impl State {
    fn new<K: Cached, V: Cached>(o: &Operands<'_, K, V>, lanes: &Lanes) -> Self {
        let (depth, width) = (o.q.cols(), o.v.cols());
        let mut q = Matrix::new(depth, lanes.used());
        let mut positions = vec![0; q.cols()];
        for (lane, token, head) in lanes.iter() {
            positions[lane] = o.pos0 + token;
            for (c, value) in o.q.at(token, head).iter().enumerate() {
                q.row_mut(c)[lane] = value * o.scale;
            }
        }
        let n = q.cols();
        State {
            q,
            positions,
            keys: Matrix::new(KEYS, depth),
            values: Matrix::new(KEYS, width),
            scores: Matrix::new(KEYS, n),
            highest: vec![f32::NEG_INFINITY; n],
            keep: vec![0.0; n],
            sums: vec![0.0; n],
            out: Matrix::new(lanes.used(), width),
        }
    }

    /// Reads a block of keys with their values, and scores it.
    fn score<K: Cached, V: Cached>(&mut self, o: &Operands<'_, K, V>, lanes: &Lanes, block: &[usize]) {
        let head = lanes.heads.start / lanes.heads.len();
        for (i, &key) in block.iter().enumerate() {
            K::widen(o.isa, o.k.at(key, head), self.keys.vectors_mut(i));
            V::widen(o.isa, o.v.at(key, head), self.values.vectors_mut(i));
        }
        let (a, shape) = (self.keys.left(0), [block.len(), self.q.cols() / LANES, o.q.cols()]);
        MatMul { shape, a, b: self.q.right(0), c: self.scores.result(0), keep: None }.run(o.isa);
    }

    /// Hides key `i` of the block from the lanes that it is ahead of and from those of tokens without sight of it.
    fn hide(&mut self, i: usize, key: usize, lanes: &Lanes, sight: Sight<'_>) {
        if key > self.positions[0] {
            for (score, &position) in self.scores.row_mut(i).iter_mut().zip(&self.positions) {
                *score = if key > position { f32::NEG_INFINITY } else { *score };
            }
        }
        if let Sight::Choosers(seen, block) = sight {
            for (scores, seen) in self.scores.row_mut(i).chunks_exact_mut(lanes.heads.len()).zip(seen) {
                if !seen.contains(block) {
                    scores.fill(f32::NEG_INFINITY);
                }
            }
        }
    }

    /// Goes on with the softmax, and adds the values of the block.
    fn add_values<K: Cached, V: Cached>(&mut self, o: &Operands<'_, K, V>, lanes: &Lanes, block: &[usize]) {
        let vectors = self.q.cols() / LANES;
        let scores = &mut self.scores.result(0).0[..block.len() * vectors];
        o.isa.run(Softmax { scores, highest: &mut self.highest, keep: &mut self.keep, sums: &mut self.sums });
        if block[block.len() - 1] <= self.positions[0] {
            self.add_products(o.isa, 0..lanes.used(), block.len());
        } else {
            // A value that is ahead of a token has weight 0, but may be no number: it must not be touched.
            let heads = lanes.heads.len();
            for lane in (0..lanes.used()).step_by(heads) {
                let visible = block.partition_point(|&key| key <= self.positions[lane]);
                self.add_products(o.isa, lane..lane + heads, visible);
            }
        }
    }

    /// Adds the first `n` values of the block to the output of some lanes.
    fn add_products(&mut self, isa: Isa, lanes: Range<usize>, n: usize) {
        let a = (&self.scores.left(0).0[lanes.start..], [1, self.scores.cols()]);
        let shape = [lanes.len(), self.out.cols() / LANES, n];
        let (c, keep) = (self.out.result(lanes.start), Some(&self.keep[lanes.start..]));
        MatMul { shape, a, b: self.values.right(0), c, keep }.run(isa);
    }

    /// Writes the means, times the gate.
    fn end<K: Cached, V: Cached>(&self, o: &Operands<'_, K, V>, lanes: &Lanes, out: &mut Tile<'_, f32>) {
        for (lane, token, head) in lanes.iter() {
            let to = out.view.at_mut(token - out.rows.start, head - out.groups.start);
            // Where a selection leaves no key, sum and output are 0.
            let factor = if self.sums[lane] == 0.0 { 0.0 } else { 1.0 / self.sums[lane] };
            o.isa.run(Finish {
                mixed: self.out.row(lane),
                factor,
                gate: o.gate.map(|gate| gate.at(token, head)),
                out: to,
            });
        }
    }
}

/// Turns a block of scores `[keys, lanes]` into exponentials, relative to the highest score of each lane so far.
struct Softmax<'a> {
    scores: &'a mut [Floats],
    highest: &'a mut [f32],
    keep: &'a mut [f32],
    sums: &'a mut [f32],
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let vectors = self.sums.len() / LANES;
        let state = self.highest.as_chunks_mut::<LANES>().0.iter_mut().zip(self.keep.as_chunks_mut::<LANES>().0);
        for (vector, ((highest, keep), sums)) in state.zip(self.sums.as_chunks_mut::<LANES>().0).enumerate() {
            let mut new = *highest;
            for Floats(scores) in self.scores.iter().skip(vector).step_by(vectors) {
                for lane in 0..LANES {
                    new[lane] = if scores[lane] > new[lane] { scores[lane] } else { new[lane] };
                }
            }
            // A lane that has seen no key yet has nothing to keep, and nothing to subtract.
            let base: [f32; LANES] = std::array::from_fn(|i| if new[i] == f32::NEG_INFINITY { 0.0 } else { new[i] });
            *keep = std::array::from_fn(|i| exp(highest[i] - base[i]));
            let mut sum: [f32; LANES] = std::array::from_fn(|i| sums[i] * keep[i]);
            for Floats(scores) in self.scores.iter_mut().skip(vector).step_by(vectors) {
                for lane in 0..LANES {
                    scores[lane] = exp(scores[lane] - base[lane]);
                    sum[lane] += scores[lane];
                }
            }
            (*highest, *sums) = (new, sum);
        }
    }
}

/// `out = mixed * factor * sigmoid(gate)`.
struct Finish<'a> {
    mixed: &'a [f32],
    factor: f32,
    gate: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        match self.gate {
            Some(gate) => {
                for ((out, mixed), &gate) in self.out.iter_mut().zip(self.mixed).zip(gate) {
                    *out = mixed * self.factor * sigmoid(gate);
                }
            }
            None => {
                for (out, mixed) in self.out.iter_mut().zip(self.mixed) {
                    *out = mixed * self.factor;
                }
            }
        }
    }
}

/// A type that caches hold.
trait Cached: Element {
    /// Converts a row. What is left of the last vector is zeros, or stays.
    fn widen(isa: Isa, from: &[Self], to: &mut [Floats]);
}

impl Cached for f32 {
    fn widen(_: Isa, from: &[f32], to: &mut [Floats]) {
        bytemuck::cast_slice_mut(to)[..from.len()].copy_from_slice(from);
    }
}

impl Cached for f16 {
    fn widen(isa: Isa, from: &[f16], to: &mut [Floats]) {
        isa.run(Widen { from, to });
    }
}

struct Widen<'a> {
    from: &'a [f16],
    to: &'a mut [Floats],
}

impl Kernel for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (vectors, rest) = self.from.as_chunks::<LANES>();
        for (from, to) in vectors.iter().zip(&mut *self.to) {
            simd.store(simd.widen(from), to);
        }
        if let (Some(to), false) = (self.to.get_mut(vectors.len()), rest.is_empty()) {
            let mut last = [f16::ZERO; LANES];
            last[..rest.len()].copy_from_slice(rest);
            simd.store(simd.widen(&last), to);
        }
    }
}

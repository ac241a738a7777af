//! Causal softmax attention over a cache, by blocks of keys.
//!
//! A task has some neighbouring queries and all query heads of one key head, as lanes. For each block of keys, one product
//! gives the scores (keys by lanes), the softmax goes on lane by lane from what it knew (its highest score, its sum), and a
//! second product adds the weighted values. Blocks are the same wherever a chunk was cut, and so are the bits.

use std::ops::Range;

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::iter::ParallelIterator;

use super::CpuDevice;
use super::isa::{Floats, Isa, Kernel, LANES, Simd};
use super::math::{exp, sigmoid};
use super::matmul::{MatMul, Matrix};
use super::memory::{Element, Tile, View, ViewMut};
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
    out.tiles([tokens, share.max(1), o.v.cols.max(1)]).for_each(|mut tile| operands.tile(&mut tile));
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
        if tokens.clone().all(|token| self.sees_all(token)) {
            let end = self.pos0 + tokens.end;
            self.attend(Lanes { tokens, heads }, 0..end, out);
        } else {
            for token in tokens {
                self.attend(Lanes { tokens: token..token + 1, heads: heads.clone() }, self.visible(token), out);
            }
        }
    }

    fn attend(&self, lanes: Lanes, keys: impl Iterator<Item = usize>, out: &mut Tile<'_, f32>) {
        let mut state = State::new(self, &lanes);
        state.add(self, &lanes, keys);
        state.end(self, &lanes, out);
    }

    /// Complete blocks that are selected for a token, and their length.
    fn blocks(&self, token: usize) -> Option<(impl Iterator<Item = usize> + '_, usize)> {
        let (blocks, ratio) = self.selection.as_ref()?;
        let complete = (self.pos0 + token + 1) / ratio;
        let blocks = blocks.row(token).iter().filter_map(|&block| usize::try_from(block).ok());
        Some((blocks.filter(move |&block| block < complete), *ratio))
    }

    /// Whether a token's selection leaves nothing out.
    fn sees_all(&self, token: usize) -> bool {
        self.blocks(token).is_none_or(|(blocks, ratio)| blocks.eq(0..(self.pos0 + token + 1) / ratio))
    }

    /// The keys that a token sees: those of its selected blocks, and those of the block that is not complete yet.
    fn visible(&self, token: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.pos0 + token + 1;
        let tail = self.blocks(token).map_or(0, |(_, ratio)| end / ratio * ratio);
        let blocks = self.blocks(token).into_iter();
        let selected = blocks.flat_map(|(blocks, ratio)| blocks.flat_map(move |b| b * ratio..(b + 1) * ratio));
        selected.chain(tail..end)
    }
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
    keys: Vec<f32>,
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
            keys: vec![0.0; KEYS * depth],
            values: Matrix::new(KEYS, width),
            scores: Matrix::new(KEYS, n),
            highest: vec![f32::NEG_INFINITY; n],
            keep: vec![0.0; n],
            sums: vec![0.0; n],
            out: Matrix::new(lanes.used(), width),
        }
    }

    /// Takes in the given keys, a block at a time.
    fn add<K: Cached, V: Cached>(&mut self, o: &Operands<'_, K, V>, lanes: &Lanes, keys: impl Iterator<Item = usize>) {
        let mut keys = keys.peekable();
        let mut block = Vec::with_capacity(KEYS);
        while keys.peek().is_some() {
            block.clear();
            block.extend(keys.by_ref().take(KEYS));
            self.add_block(o, lanes, &block);
        }
    }

    fn add_block<K: Cached, V: Cached>(&mut self, o: &Operands<'_, K, V>, lanes: &Lanes, block: &[usize]) {
        let head = lanes.heads.start / lanes.heads.len();
        let (depth, width) = (o.q.cols(), o.v.cols());
        for (i, &key) in block.iter().enumerate() {
            K::widen(o.k.at(key, head), &mut self.keys[i * depth..(i + 1) * depth]);
            V::widen(o.v.at(key, head), &mut self.values.row_mut(i)[..width]);
        }
        let (a, vectors) = ((&self.keys[..], [depth, 1]), self.q.cols() / LANES);
        let shape = [block.len(), vectors, depth];
        MatMul { shape, a, b: self.q.right(0), c: self.scores.result(0), keep: None }.run(o.isa);
        for (i, &key) in block.iter().enumerate() {
            if key > self.positions[0] {
                hide(self.scores.row_mut(i), &self.positions, key);
            }
        }
        let scores = &mut self.scores.result(0).0[..block.len() * vectors];
        o.isa.run(Softmax { scores, highest: &mut self.highest, keep: &mut self.keep, sums: &mut self.sums });
        let a = (self.scores.left(0).0, [1, vectors * LANES]);
        let shape = [lanes.used(), self.out.cols() / LANES, block.len()];
        MatMul { shape, a, b: self.values.right(0), c: self.out.result(0), keep: Some(&self.keep) }.run(o.isa);
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

/// Takes a key from the lanes that it lies ahead of.
fn hide(scores: &mut [f32], positions: &[usize], key: usize) {
    for (score, &position) in scores.iter_mut().zip(positions) {
        if key > position {
            *score = f32::NEG_INFINITY;
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
    fn widen(src: &[Self], dst: &mut [f32]);
}

impl Cached for f32 {
    fn widen(src: &[f32], dst: &mut [f32]) {
        dst.copy_from_slice(src);
    }
}

impl Cached for f16 {
    fn widen(src: &[f16], dst: &mut [f32]) {
        src.convert_to_f32_slice(dst);
    }
}

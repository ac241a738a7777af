//! The gated delta rule, in two forms: token after token, as it is written, and by chunks of tokens (the chunkwise form of
//! Yang et al., "Parallelizing linear transformers with the delta rule over sequence length", 2024, with decays).
//!
//! Within a chunk that begins with the state M, let c[t] be the product of the decays up to token t. Unrolling the rule gives
//!
//! ```text
//! d[t]   = b[t] (v[t] - c[t] Mᵀ k[t] - sum over s < t of c[t]/c[s] (k[s] · k[t]) d[s])
//! out[t] = c[t] Mᵀ q[t] + sum over s <= t of c[t]/c[s] (k[s] · q[t]) d[s]
//! M'     = c[n] M + sum over s of c[n]/c[s] k[s] d[s]ᵀ
//! ```
//!
//! so that all but the solution of a triangular system, row by row, are products of matrices. The work is about the same,
//! but the state is read once per chunk and not once per token. Ratios of decays are exponentials of differences of
//! logarithms, which are at most 1 and never divide by what has underflown.
//!
//! A task has a key head with all value heads that it serves: queries, keys and their products are the same for each of them.

use std::ops::Range;

use super::CpuDevice;
use super::isa::{Isa, Kernel, LANES, Simd, prefetch_floats};
use super::math::{exp, sigmoid, softplus, sum_squares};
use super::matmul::{MatMul, Matrix};
use super::view::{Tile, View, ViewMut};
use crate::device::DeviceError;
use crate::op::{DeltaNet, HeadMap};

/// Tokens in a chunk. Shorter ones save products between its tokens, longer ones read and write the state less often; of 32
/// and 64, 32 was 8 % faster at widths of 128.
const CHUNK: usize = 32;

/// Rows of a chunk's triangular matrices that are handled at once.
const BLOCK: usize = 16;

/// Tokens whose rows are on their way from memory. They are too far apart for the processor to guess the next.
const AHEAD: usize = 4;

/// Tokens from which the chunked form is faster.
const CHUNKED_FROM: usize = 8;

pub(super) fn delta_net(device: &CpuDevice, o: &DeltaNet) -> Result<(), DeviceError> {
    let input = Input {
        op: o,
        isa: device.isa,
        q: View::of(device, &o.q)?,
        k: View::of(device, &o.k)?,
        v: View::of(device, &o.v)?,
        alpha: View::of(device, &o.alpha)?,
        beta: View::of(device, &o.beta)?,
        a: View::of(device, &o.a)?.at(0, 0),
        dt_bias: View::of(device, &o.dt_bias)?.at(0, 0),
    };
    let state = ViewMut::<f32>::of(device, &o.state)?;
    let out = ViewMut::<f32>::of(device, &o.out)?;
    let (tokens, depth, width) = (input.v.rows(), input.k.cols(), input.v.cols());
    if tokens == 0 || depth == 0 || width == 0 {
        return Ok(());
    }
    let states = state.tiles([1, depth, width]).all();
    let mut heads: Vec<_> = out.tiles([tokens, 1, width]).all().into_iter().zip(states).collect();
    heads.sort_by_key(|(out, _)| input.key_head(out.groups.start));
    let share = heads_of_task(&input, device.team.threads());
    device.team.for_each_chunk(&mut heads, share, |_, heads| {
        let mut heads: Vec<Head> = heads.iter_mut().map(|(out, stored)| Head::new(out, stored)).collect();
        let mut keys = Keys::new(&input, input.key_head(heads[0].index()));
        let mut work = Work::new(&input);
        if tokens < CHUNKED_FROM {
            for head in &mut heads {
                (0..tokens).for_each(|token| work.token(token, &mut keys, head));
            }
        } else {
            for start in (0..tokens).step_by(CHUNK) {
                let chunk = start..tokens.min(start + CHUNK);
                keys.read(chunk.clone());
                heads.iter_mut().for_each(|head| work.chunk(chunk.clone(), &keys, head));
            }
        }
        heads.iter_mut().for_each(Head::store);
    });
    Ok(())
}

/// Value heads in a task: all that share a key head where that leaves no thread without work, else one.
fn heads_of_task(input: &Input, threads: usize) -> usize {
    let key_heads = input.k.groups();
    let shared = input.v.rows() >= CHUNKED_FROM && (key_heads.is_multiple_of(threads) || key_heads >= 4 * threads);
    if shared { input.v.groups() / key_heads } else { 1 }
}

struct Input<'a> {
    op: &'a DeltaNet,
    isa: Isa,
    q: View<'a, f32>,
    k: View<'a, f32>,
    v: View<'a, f32>,
    alpha: View<'a, f32>,
    beta: View<'a, f32>,
    a: &'a [f32],
    dt_bias: &'a [f32],
}

impl Input<'_> {
    /// The key head that serves a value head.
    fn key_head(&self, head: usize) -> usize {
        match self.op.heads {
            HeadMap::Tiled => head % self.k.groups(),
            HeadMap::Grouped => head / (self.v.groups() / self.k.groups()),
        }
    }

    /// Logarithm of a head's decay at a token.
    fn log_decay(&self, token: usize, head: usize) -> f32 {
        self.a[head] * softplus(self.alpha.row(token)[head] + self.dt_bias[head])
    }

    /// How much of its error a head corrects at a token.
    fn rate(&self, token: usize, head: usize) -> f32 {
        sigmoid(self.beta.row(token)[head])
    }
}

/// A value head: what it writes, and its state.
struct Head<'t, 'a> {
    out: &'t mut Tile<'a, f32>,
    stored: &'t mut Tile<'a, f32>,
    /// `[Ck, Cv]`.
    state: Matrix,
}

impl<'t, 'a> Head<'t, 'a> {
    fn new(out: &'t mut Tile<'a, f32>, stored: &'t mut Tile<'a, f32>) -> Self {
        let (depth, width) = (stored.view.groups(), stored.view.cols());
        let mut state = Matrix::new(depth, width);
        for i in 0..depth {
            state.row_mut(i)[..width].copy_from_slice(stored.view.at(0, i));
        }
        Self { out, stored, state }
    }

    /// Its number among the value heads.
    fn index(&self) -> usize {
        self.out.groups.start
    }

    fn store(&mut self) {
        for i in 0..self.stored.view.groups() {
            let to = self.stored.view.at_mut(0, i);
            to.copy_from_slice(&self.state.row(i)[..to.len()]);
        }
    }
}

/// Queries and keys of one key head for a chunk of n tokens.
struct Keys<'a> {
    input: &'a Input<'a>,
    key_head: usize,
    /// `[2n, Ck]`: the queries, then the keys, normalised.
    units: Vec<f32>,
    /// `[Ck, n]`: the keys again.
    transposed: Matrix,
    /// `[2n, n]`: queries and keys times keys; only as far as they are in the past.
    products: Matrix,
}

impl<'a> Keys<'a> {
    fn new(input: &'a Input<'a>, key_head: usize) -> Self {
        let (depth, n) = (input.k.cols(), input.v.rows().min(CHUNK));
        Self {
            input,
            key_head,
            units: vec![0.0; 2 * n * depth],
            transposed: Matrix::new(depth, n),
            products: Matrix::new(2 * n, n),
        }
    }

    /// Puts the normalised query and key of a token into rows `row` and `n + row` of `units`.
    fn normalise(&mut self, token: usize, row: usize, n: usize) {
        let (depth, eps) = (self.input.k.cols(), self.input.op.eps);
        let root = (depth as f32).sqrt();
        for (x, row, scale) in [(self.input.q, row, 1.0 / root), (self.input.k, n + row, 1.0)] {
            let to = &mut self.units[row * depth..(row + 1) * depth];
            self.input.isa.run(Unit { x: x.at(token, self.key_head), eps, scale, to });
        }
    }

    /// Takes in a chunk of n tokens.
    fn read(&mut self, tokens: Range<usize>) {
        let (depth, n) = (self.input.k.cols(), tokens.len());
        for (row, token) in tokens.enumerate() {
            if row + AHEAD < n {
                prefetch_floats(self.input.q.at(token + AHEAD, self.key_head));
                prefetch_floats(self.input.k.at(token + AHEAD, self.key_head));
            }
            self.normalise(token, row, n);
            for (i, &k) in self.units[(n + row) * depth..][..depth].iter().enumerate() {
                self.transposed.row_mut(i)[row] = k;
            }
        }
        for block in (0..n).step_by(BLOCK) {
            let end = n.min(block + BLOCK);
            let shape = [end - block, end.div_ceil(LANES), depth];
            for row in [block, n + block] {
                let (a, c) = ((&self.units[row * depth..], [depth, 1]), self.products.result(row));
                MatMul { shape, a, b: self.transposed.right(0), c, keep: None }.run(self.input.isa);
            }
        }
    }
}

/// Scratch memory for a chunk of n tokens of one value head.
struct Work<'a> {
    input: &'a Input<'a>,
    /// `[n, n]`: how corrections go into outputs, `c[t]/c[s] (k[s] · q[t])` for s <= t.
    to_out: Matrix,
    /// `[n, n]`: how they go into later corrections, `-b[t] c[t]/c[s] (k[s] · k[t])` for s < t.
    to_later: Matrix,
    /// `[2n, Cv]`: queries and keys times the state; then, of the queries, the output.
    by_state: Matrix,
    /// `[n, Cv]`: the corrections d.
    d: Matrix,
    /// `[n]` and up to a whole vector: logarithms of the products of decays.
    logs: Vec<f64>,
    /// `[n]`: the rates b.
    rates: Vec<f32>,
    /// `[n or Ck]`: factors of rows.
    keep: Vec<f32>,
}

impl<'a> Work<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let (depth, width, n) = (input.k.cols(), input.v.cols(), input.v.rows().min(CHUNK));
        Self {
            input,
            to_out: Matrix::new(n, n),
            to_later: Matrix::new(n, n),
            by_state: Matrix::new(2 * n, width),
            d: Matrix::new(n, width),
            logs: vec![0.0; n.next_multiple_of(LANES)],
            rates: vec![0.0; n],
            keep: vec![0.0; depth.max(n)],
        }
    }

    /// Vectors in a row of the state.
    fn vectors(&self) -> usize {
        self.d.cols() / LANES
    }

    /// `d = b (v - decay * known)` for the token of a row, `known` being row `by_state` of the products with the state.
    fn correct(&mut self, token: usize, head: usize, row: usize, by_state: usize, decay: f32) {
        let (known, d) = (self.by_state.row(by_state), self.d.row_mut(row));
        let (v, rate) = (self.input.v.at(token, head), self.rates[row]);
        self.input.isa.run(Correct { v, known, decay, rate, d });
    }

    /// The rule as it is written.
    fn token(&mut self, token: usize, keys: &mut Keys, head: &mut Head) {
        let (isa, depth, vectors) = (self.input.isa, self.input.k.cols(), self.vectors());
        let decay = self.input.log_decay(token, head.index()).exp();
        self.rates[0] = self.input.rate(token, head.index());
        keys.normalise(token, 0, 1);
        let (q, k) = keys.units[..2 * depth].split_at(depth);
        let shape = [1, vectors, depth];
        MatMul { shape, a: (k, [0, 1]), b: head.state.right(0), c: self.by_state.result(0), keep: None }.run(isa);
        self.correct(token, head.index(), 0, 0, decay);
        self.keep[..depth].fill(decay);
        let c = head.state.result(0);
        MatMul { shape: [depth, vectors, 1], a: (k, [1, 0]), b: self.d.right(0), c, keep: Some(&self.keep) }.run(isa);
        MatMul { shape, a: (q, [0, 1]), b: head.state.right(0), c: self.by_state.result(0), keep: None }.run(isa);
        let out = head.out.view.at_mut(token, 0);
        out.copy_from_slice(&self.by_state.row(0)[..out.len()]);
    }

    /// The unrolled rule for the tokens of a chunk.
    fn chunk(&mut self, tokens: Range<usize>, keys: &Keys, head: &mut Head) {
        let n = tokens.len();
        self.decays(tokens.clone(), keys, head);
        let (shape, a) = ([2 * n, self.vectors(), self.input.k.cols()], (&keys.units[..], [self.input.k.cols(), 1]));
        let (b, c) = (head.state.right(0), self.by_state.result(0));
        MatMul { shape, a, b, c, keep: None }.run(self.input.isa);
        self.solve(tokens.clone(), head.index());
        self.mix(n);
        for (row, token) in tokens.enumerate() {
            let to = head.out.view.at_mut(token, 0);
            to.copy_from_slice(&self.by_state.row(row)[..to.len()]);
        }
        self.advance(n, keys, &mut head.state);
    }

    /// Decays, rates, and the triangular matrices that they make of the products of the keys. Meanwhile the values are
    /// asked for, and the lines that the output will go to.
    fn decays(&mut self, tokens: Range<usize>, keys: &Keys, head: &Head) {
        let n = tokens.len();
        let mut log = 0.0;
        for (row, token) in tokens.enumerate() {
            prefetch_floats(self.input.v.at(token, head.index()));
            prefetch_floats(head.out.view.at(token, 0));
            log += f64::from(self.input.log_decay(token, head.index()));
            self.logs[row] = log;
            self.rates[row] = self.input.rate(token, head.index());
        }
        for t in 0..n {
            self.input.isa.run(Decay {
                logs: &self.logs,
                t,
                rate: self.rates[t],
                products: [keys.products.row(t), keys.products.row(n + t)],
                to_out: self.to_out.row_mut(t),
                to_later: self.to_later.row_mut(t),
            });
        }
    }

    /// The corrections: what is known from the state, then row by row what is known from earlier corrections.
    fn solve(&mut self, tokens: Range<usize>, head: usize) {
        let n = tokens.len();
        for (row, token) in tokens.enumerate() {
            self.correct(token, head, row, n + row, self.logs[row].exp() as f32);
        }
        self.keep[..n].fill(1.0);
        for block in (0..n).step_by(BLOCK) {
            let end = n.min(block + BLOCK);
            self.add_corrections(block..end, 0..block);
            (block + 1..end).for_each(|row| self.add_corrections(row..row + 1, block..row));
        }
    }

    /// Adds to the corrections `rows` what the corrections `terms` before them know.
    fn add_corrections(&mut self, rows: Range<usize>, terms: Range<usize>) {
        let shape = [rows.len(), self.vectors(), terms.len()];
        let (a, strides) = self.to_later.left(rows.start);
        let (b, c) = self.d.right_and_result(terms.start, rows.start);
        MatMul { shape, a: (&a[terms.start..], strides), b, c, keep: Some(&self.keep) }.run(self.input.isa);
    }

    /// The output, in place of the queries times the state.
    fn mix(&mut self, n: usize) {
        for (keep, log) in self.keep.iter_mut().zip(&self.logs[..n]) {
            *keep = log.exp() as f32;
        }
        for block in (0..n).step_by(BLOCK) {
            let end = n.min(block + BLOCK);
            self.add_to_output(block..end, 0..block);
            // Row by row: a later correction has weight 0, but may be no number.
            self.keep[block..end].fill(1.0);
            (block..end).for_each(|row| self.add_to_output(row..row + 1, block..row + 1));
        }
    }

    /// Adds to the output `rows` what the corrections `terms` contribute.
    fn add_to_output(&mut self, rows: Range<usize>, terms: Range<usize>) {
        let shape = [rows.len(), self.vectors(), terms.len()];
        let (a, strides) = self.to_out.left(rows.start);
        let (b, c) = (self.d.right(terms.start), self.by_state.result(rows.start));
        MatMul { shape, a: (&a[terms.start..], strides), b, c, keep: Some(&self.keep[rows.start..]) }
            .run(self.input.isa);
    }

    /// The state behind the chunk.
    fn advance(&mut self, n: usize, keys: &Keys, state: &mut Matrix) {
        let (isa, depth) = (self.input.isa, self.input.k.cols());
        let last = self.logs[n - 1];
        for row in 0..n {
            isa.run(Scale { by: (last - self.logs[row]).exp() as f32, x: self.d.row_mut(row) });
        }
        self.keep[..depth].fill(last.exp() as f32);
        let (shape, a) = ([depth, self.vectors(), n], (&keys.units[n * depth..], [1, depth]));
        MatMul { shape, a, b: self.d.right(0), c: state.result(0), keep: Some(&self.keep) }.run(isa);
    }
}

/// `to = x / sqrt(x · x + eps) * scale`.
struct Unit<'a> {
    x: &'a [f32],
    eps: f32,
    scale: f32,
    to: &'a mut [f32],
}

impl Kernel for Unit<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let factor = self.scale / (sum_squares(self.x) + self.eps).sqrt();
        for (to, x) in self.to.iter_mut().zip(self.x) {
            *to = x * factor;
        }
    }
}

/// `d = rate * (v - decay * known)`.
struct Correct<'a> {
    v: &'a [f32],
    known: &'a [f32],
    decay: f32,
    rate: f32,
    d: &'a mut [f32],
}

impl Kernel for Correct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for ((d, v), known) in self.d.iter_mut().zip(self.v).zip(self.known) {
            *d = self.rate * (v - self.decay * known);
        }
    }
}

/// `x *= by`.
struct Scale<'a> {
    by: f32,
    x: &'a mut [f32],
}

impl Kernel for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.x.iter_mut().for_each(|x| *x *= self.by);
    }
}

/// Row t of both triangular matrices, from the products of its query and of its key with the keys up to it. What is behind
/// element t in the same vector is nothing that anybody reads.
struct Decay<'a> {
    logs: &'a [f64],
    t: usize,
    rate: f32,
    products: [&'a [f32]; 2],
    to_out: &'a mut [f32],
    to_later: &'a mut [f32],
}

impl Kernel for Decay<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (now, [by_query, by_key]) = (self.logs[self.t], self.products.map(|row| row.as_chunks::<LANES>().0));
        let (to_out, to_later) = (self.to_out.as_chunks_mut::<LANES>().0, self.to_later.as_chunks_mut::<LANES>().0);
        for (v, logs) in self.logs.as_chunks::<LANES>().0[..=self.t / LANES].iter().enumerate() {
            // Loops over arrays of constant length, which become vector code.
            let mut decay = [0.0; LANES];
            for i in 0..LANES {
                decay[i] = exp((now - logs[i]) as f32);
            }
            for i in 0..LANES {
                to_out[v][i] = by_query[v][i] * decay[i];
                to_later[v][i] = by_key[v][i] * (-self.rate * decay[i]);
            }
        }
    }
}

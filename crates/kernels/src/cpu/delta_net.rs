//! The gated delta rule, in two forms: token after token, as it is written, and by chunks of tokens.
//!
//! Within a chunk that begins with the state M, let c[t] be the product of the decays up to token t. Unrolling the rule gives
//!
//!     d[t]   = b[t] (v[t] - c[t] Mᵀ k[t] - sum over s < t of c[t]/c[s] (k[s] · k[t]) d[s])
//!     out[t] = c[t] Mᵀ q[t] + sum over s <= t of c[t]/c[s] (k[s] · q[t]) d[s]
//!     M'     = c[n] M + sum over s of c[n]/c[s] k[s] d[s]ᵀ
//!
//! so that all but the solution of a triangular system, row by row, are products of matrices. The work is about the same,
//! but the state is read once per chunk and not once per token. Ratios of decays are exponentials of differences of
//! logarithms, which are at most 1 and never divide by what has underflown.

use std::ops::Range;

use rayon::iter::{IndexedParallelIterator, ParallelIterator};

use super::CpuDevice;
use super::isa::{Isa, Kernel, LANES, Simd};
use super::math::{exp, sigmoid, softplus, sum_squares};
use super::matmul::MatMul;
use super::memory::{Tile, View, ViewMut};
use crate::device::DeviceError;
use crate::op::{DeltaNet, HeadMap};

/// Tokens in a chunk.
const CHUNK: usize = 64;

/// Rows of a chunk's triangular matrices that are handled at once.
const BLOCK: usize = 16;

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
    let states = state.tiles([1, depth, width]);
    out.tiles([tokens, 1, width]).zip(states).for_each(|(mut out, mut state)| {
        let mut head = Head::new(&input, out.groups.start, &state);
        if tokens < CHUNKED_FROM {
            (0..tokens).for_each(|token| head.token(token, out.view.at_mut(token, 0)));
        } else {
            for start in (0..tokens).step_by(CHUNK) {
                head.chunk(start..tokens.min(start + CHUNK), &mut out);
            }
        }
        head.store(&mut state);
    });
    Ok(())
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

/// One value head: its state, and scratch memory for a chunk of n tokens.
struct Head<'a> {
    input: &'a Input<'a>,
    head: usize,
    /// Cv, up to a whole vector.
    width: usize,
    /// `[Ck, width]`.
    state: Vec<f32>,
    /// `[2n, Ck]`: the queries, then the keys, normalised.
    qk: Vec<f32>,
    /// `[Ck, CHUNK]`: the keys again, transposed.
    keys: Vec<f32>,
    /// `[2n, CHUNK]`: queries and keys times keys; then the triangular matrices made of them.
    by_keys: Vec<f32>,
    /// `[2n, width]`: queries and keys times the state; then, of the queries, the output.
    by_state: Vec<f32>,
    /// `[n, width]`: the corrections d.
    d: Vec<f32>,
    /// `[n]`: logarithms of the products of decays.
    logs: Vec<f64>,
    /// `[n]`: the rates b.
    rates: Vec<f32>,
    /// `[n or Ck]`: factors of rows.
    keep: Vec<f32>,
}

impl<'a> Head<'a> {
    fn new(input: &'a Input<'a>, head: usize, state: &Tile<'_, f32>) -> Self {
        let (depth, cols) = (input.k.cols(), input.v.cols());
        let (width, tokens) = (cols.next_multiple_of(LANES), input.v.rows().min(CHUNK));
        let mut own = vec![0.0; depth * width];
        for (i, row) in own.chunks_exact_mut(width).enumerate() {
            row[..cols].copy_from_slice(state.view.at(0, i));
        }
        Self {
            input,
            head,
            width,
            state: own,
            qk: vec![0.0; 2 * tokens * depth],
            keys: vec![0.0; depth * CHUNK],
            by_keys: vec![0.0; 2 * tokens * CHUNK],
            by_state: vec![0.0; 2 * tokens * width],
            d: vec![0.0; tokens * width],
            logs: vec![0.0; tokens],
            rates: vec![0.0; tokens],
            keep: vec![0.0; depth.max(tokens)],
        }
    }

    fn store(&self, state: &mut Tile<'_, f32>) {
        for (i, row) in self.state.chunks_exact(self.width).enumerate() {
            let to = state.view.at_mut(0, i);
            to.copy_from_slice(&row[..to.len()]);
        }
    }

    /// Puts the normalised query and key of a token into rows `row` and `n + row` of `qk`.
    fn normalise(&mut self, token: usize, row: usize, n: usize) {
        let (depth, key_head, eps) = (self.input.k.cols(), self.input.key_head(self.head), self.input.op.eps);
        let root = (depth as f32).sqrt();
        for (x, row, scale) in [(self.input.q, row, 1.0 / root), (self.input.k, n + row, 1.0)] {
            let to = &mut self.qk[row * depth..(row + 1) * depth];
            self.input.isa.run(Unit { x: x.at(token, key_head), eps, scale, to });
        }
    }

    /// The rule as it is written.
    fn token(&mut self, token: usize, out: &mut [f32]) {
        let (isa, depth, width) = (self.input.isa, self.input.k.cols(), self.width);
        let (decay, rate) = (self.input.log_decay(token, self.head).exp(), self.input.rate(token, self.head));
        self.normalise(token, 0, 1);
        let (q, k) = self.qk[..2 * depth].split_at(depth);
        let [known, mixed] = [0, 1].map(|i| i * width..(i + 1) * width);
        let row = [1, width, depth];
        let c = (&mut self.by_state[known.clone()], width);
        MatMul { shape: row, a: (k, [0, 1]), b: (&self.state, width), c, keep: None }.run(isa);
        let v = self.input.v.at(token, self.head);
        for ((d, v), known) in self.d.iter_mut().zip(v).zip(&self.by_state[known]) {
            *d = rate * (v - decay * known);
        }
        self.keep[..depth].fill(decay);
        let (a, b, c) = ((k, [1, 0]), (&self.d[..], width), (&mut self.state[..], width));
        MatMul { shape: [depth, width, 1], a, b, c, keep: Some(&self.keep) }.run(isa);
        let c = (&mut self.by_state[mixed.clone()], width);
        MatMul { shape: row, a: (q, [0, 1]), b: (&self.state, width), c, keep: None }.run(isa);
        out.copy_from_slice(&self.by_state[mixed][..out.len()]);
    }

    /// The unrolled rule for the tokens of a chunk.
    fn chunk(&mut self, tokens: Range<usize>, out: &mut Tile<'_, f32>) {
        let n = tokens.len();
        self.gather(tokens.clone());
        self.multiply(n);
        self.solve(tokens.clone());
        self.mix(n);
        for (row, token) in tokens.enumerate() {
            let to = out.view.at_mut(token, 0);
            to.copy_from_slice(&self.by_state[row * self.width..][..to.len()]);
        }
        self.advance(n);
    }

    /// Queries, keys, decays and rates.
    fn gather(&mut self, tokens: Range<usize>) {
        let (depth, n) = (self.input.k.cols(), tokens.len());
        let mut log = 0.0;
        for (row, token) in tokens.enumerate() {
            self.normalise(token, row, n);
            for (i, &k) in self.qk[(n + row) * depth..][..depth].iter().enumerate() {
                self.keys[i * CHUNK + row] = k;
            }
            log += f64::from(self.input.log_decay(token, self.head));
            self.logs[row] = log;
            self.rates[row] = self.input.rate(token, self.head);
        }
    }

    /// Queries and keys times keys, with the decays between them, and times the state.
    fn multiply(&mut self, n: usize) {
        let (isa, depth, width) = (self.input.isa, self.input.k.cols(), self.width);
        let a = (&self.qk[..], [depth, 1]);
        let (b, c) = ((&self.keys[..], CHUNK), (&mut self.by_keys[..], CHUNK));
        MatMul { shape: [2 * n, n.next_multiple_of(LANES), depth], a, b, c, keep: None }.run(isa);
        let (b, c) = ((&self.state[..], width), (&mut self.by_state[..], width));
        MatMul { shape: [2 * n, width, depth], a, b, c, keep: None }.run(isa);
        let (by_queries, by_keys) = self.by_keys.split_at_mut(n * CHUNK);
        let rows = by_queries.chunks_exact_mut(CHUNK).zip(by_keys.chunks_exact_mut(CHUNK));
        for (t, (by_query, by_key)) in rows.enumerate() {
            isa.run(Decay { logs: &self.logs[..n], t, rate: self.rates[t], by_query, by_key });
        }
    }

    /// The corrections: what is known from the state, then row by row what is known from earlier corrections.
    fn solve(&mut self, tokens: Range<usize>) {
        let (isa, width, n) = (self.input.isa, self.width, tokens.len());
        for (row, token) in tokens.enumerate() {
            let (rate, decay) = (self.rates[row], self.logs[row].exp() as f32);
            let known = &self.by_state[(n + row) * width..];
            let v = self.input.v.at(token, self.head);
            for ((d, v), known) in self.d[row * width..].iter_mut().zip(v).zip(known) {
                *d = rate * (v - decay * known);
            }
        }
        self.keep[..n].fill(1.0);
        let by_keys = &self.by_keys[n * CHUNK..];
        let mut add = |rows: Range<usize>, terms: Range<usize>| {
            let (before, from) = self.d.split_at_mut(rows.start * width);
            let a = (&by_keys[rows.start * CHUNK + terms.start..], [CHUNK, 1]);
            let (b, c) = ((&before[terms.start * width..], width), (from, width));
            MatMul { shape: [rows.len(), width, terms.len()], a, b, c, keep: Some(&self.keep) }.run(isa);
        };
        for block in (0..n).step_by(BLOCK) {
            let end = n.min(block + BLOCK);
            add(block..end, 0..block);
            (block + 1..end).for_each(|row| add(row..row + 1, block..row));
        }
    }

    /// The output, in place of the queries times the state.
    fn mix(&mut self, n: usize) {
        let (isa, width) = (self.input.isa, self.width);
        for (keep, log) in self.keep.iter_mut().zip(&self.logs[..n]) {
            *keep = log.exp() as f32;
        }
        for block in (0..n).step_by(BLOCK) {
            let end = n.min(block + BLOCK);
            let (a, b) = ((&self.by_keys[block * CHUNK..], [CHUNK, 1]), (&self.d[..], width));
            let c = (&mut self.by_state[block * width..], width);
            MatMul { shape: [end - block, width, end], a, b, c, keep: Some(&self.keep[block..]) }.run(isa);
        }
    }

    /// The state behind the chunk.
    fn advance(&mut self, n: usize) {
        let (isa, depth, width) = (self.input.isa, self.input.k.cols(), self.width);
        let last = self.logs[n - 1];
        for (d, log) in self.d.chunks_exact_mut(width).zip(&self.logs[..n]) {
            let decay = (last - log).exp() as f32;
            d.iter_mut().for_each(|d| *d *= decay);
        }
        self.keep[..depth].fill(last.exp() as f32);
        let (a, b, c) = ((&self.qk[n * depth..], [1, depth]), (&self.d[..], width), (&mut self.state[..], width));
        MatMul { shape: [depth, width, n], a, b, c, keep: Some(&self.keep) }.run(isa);
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

/// Row t of both triangular matrices, from products with the keys: for queries `c[t]/c[s] (k[s] · q[t])`, s <= t; for keys
/// `-b[t] c[t]/c[s] (k[s] · k[t])`, s < t; zeros behind.
struct Decay<'a> {
    logs: &'a [f64],
    t: usize,
    rate: f32,
    by_query: &'a mut [f32],
    by_key: &'a mut [f32],
}

impl Kernel for Decay<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Decay { logs, t, rate, by_query, by_key } = self;
        let (now, earlier) = (logs[t], &logs[..=t]);
        for ((by_query, by_key), log) in by_query.iter_mut().zip(&mut *by_key).zip(earlier) {
            let decay = exp((now - log) as f32);
            *by_query *= decay;
            *by_key *= -rate * decay;
        }
        by_query[t + 1..].fill(0.0);
        by_key[t..].fill(0.0);
    }
}

//! The gated delta rule, in two forms: token after token, as it is written, and by chunks of tokens.
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

use std::ops::Range;

use super::CpuDevice;
use super::isa::{Isa, Kernel, LANES, Simd};
use super::math::{exp, sigmoid, softplus, sum_squares};
use super::matmul::{MatMul, Matrix};
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
    out.tiles([tokens, 1, width]).for_each_with(states, &device.team, |mut out, mut state| {
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
    /// `[Ck, Cv]`.
    state: Matrix,
    /// `[2n, Ck]`: the queries, then the keys, normalised.
    qk: Vec<f32>,
    /// `[Ck, n]`: the keys again, transposed.
    keys: Matrix,
    /// `[2n, n]`: queries and keys times keys; then the triangular matrices made of them.
    by_keys: Matrix,
    /// `[2n, Cv]`: queries and keys times the state; then, of the queries, the output.
    by_state: Matrix,
    /// `[n, Cv]`: the corrections d.
    d: Matrix,
    /// `[n]`: logarithms of the products of decays.
    logs: Vec<f64>,
    /// `[n]`: the rates b.
    rates: Vec<f32>,
    /// `[n or Ck]`: factors of rows.
    keep: Vec<f32>,
}

impl<'a> Head<'a> {
    fn new(input: &'a Input<'a>, head: usize, state: &Tile<'_, f32>) -> Self {
        let (depth, width, n) = (input.k.cols(), input.v.cols(), input.v.rows().min(CHUNK));
        let mut own = Matrix::new(depth, width);
        for i in 0..depth {
            own.row_mut(i)[..width].copy_from_slice(state.view.at(0, i));
        }
        Self {
            input,
            head,
            state: own,
            qk: vec![0.0; 2 * n * depth],
            keys: Matrix::new(depth, n),
            by_keys: Matrix::new(2 * n, n),
            by_state: Matrix::new(2 * n, width),
            d: Matrix::new(n, width),
            logs: vec![0.0; n],
            rates: vec![0.0; n],
            keep: vec![0.0; depth.max(n)],
        }
    }

    fn store(&self, state: &mut Tile<'_, f32>) {
        for i in 0..self.input.k.cols() {
            let to = state.view.at_mut(0, i);
            to.copy_from_slice(&self.state.row(i)[..to.len()]);
        }
    }

    /// Vectors in a row of the state.
    fn vectors(&self) -> usize {
        self.state.cols() / LANES
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

    /// `d = b (v - decay * known)` for the token of a row, `known` being row `by_state` of the products with the state.
    fn correct(&mut self, token: usize, row: usize, by_state: usize, decay: f32) {
        let rate = self.input.rate(token, self.head);
        let (v, known) = (self.input.v.at(token, self.head), self.by_state.row(by_state));
        for ((d, v), known) in self.d.row_mut(row).iter_mut().zip(v).zip(known) {
            *d = rate * (v - decay * known);
        }
    }

    /// The rule as it is written.
    fn token(&mut self, token: usize, out: &mut [f32]) {
        let (isa, depth, vectors) = (self.input.isa, self.input.k.cols(), self.vectors());
        let decay = self.input.log_decay(token, self.head).exp();
        self.normalise(token, 0, 1);
        let shape = [1, vectors, depth];
        let k = &self.qk[depth..];
        MatMul { shape, a: (k, [0, 1]), b: self.state.right(0), c: self.by_state.result(0), keep: None }.run(isa);
        self.correct(token, 0, 0, decay);
        self.keep[..depth].fill(decay);
        let (a, c) = ((&self.qk[depth..], [1, 0]), self.state.result(0));
        MatMul { shape: [depth, vectors, 1], a, b: self.d.right(0), c, keep: Some(&self.keep) }.run(isa);
        let q = &self.qk[..depth];
        MatMul { shape, a: (q, [0, 1]), b: self.state.right(0), c: self.by_state.result(0), keep: None }.run(isa);
        out.copy_from_slice(&self.by_state.row(0)[..out.len()]);
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
            to.copy_from_slice(&self.by_state.row(row)[..to.len()]);
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
                self.keys.row_mut(i)[row] = k;
            }
            log += f64::from(self.input.log_decay(token, self.head));
            self.logs[row] = log;
            self.rates[row] = self.input.rate(token, self.head);
        }
    }

    /// Queries and keys times keys, with the decays between them, and times the state.
    fn multiply(&mut self, n: usize) {
        let (isa, depth) = (self.input.isa, self.input.k.cols());
        let a = (&self.qk[..], [depth, 1]);
        let shape = [2 * n, n.div_ceil(LANES), depth];
        MatMul { shape, a, b: self.keys.right(0), c: self.by_keys.result(0), keep: None }.run(isa);
        let shape = [2 * n, self.vectors(), depth];
        MatMul { shape, a, b: self.state.right(0), c: self.by_state.result(0), keep: None }.run(isa);
        for t in 0..n {
            let (logs, rate) = (&self.logs[..n], self.rates[t]);
            isa.run(Decay { logs, t, factor: 1.0, products: self.by_keys.row_mut(t) });
            isa.run(Decay { logs, t, factor: -rate, products: self.by_keys.row_mut(n + t) });
        }
    }

    /// The corrections: what is known from the state, then row by row what is known from earlier corrections.
    fn solve(&mut self, tokens: Range<usize>) {
        let n = tokens.len();
        for (row, token) in tokens.enumerate() {
            self.correct(token, row, n + row, self.logs[row].exp() as f32);
        }
        self.keep[..n].fill(1.0);
        for block in (0..n).step_by(BLOCK) {
            let end = n.min(block + BLOCK);
            self.add_corrections(block..end, 0..block, n);
            (block + 1..end).for_each(|row| self.add_corrections(row..row + 1, block..row, n));
        }
    }

    /// Adds to the corrections `rows` what the corrections `terms` before them know.
    fn add_corrections(&mut self, rows: Range<usize>, terms: Range<usize>, n: usize) {
        let shape = [rows.len(), self.vectors(), terms.len()];
        let (a, strides) = self.by_keys.left(n + rows.start);
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
        let (a, strides) = self.by_keys.left(rows.start);
        let (b, c) = (self.d.right(terms.start), self.by_state.result(rows.start));
        MatMul { shape, a: (&a[terms.start..], strides), b, c, keep: Some(&self.keep[rows.start..]) }
            .run(self.input.isa);
    }

    /// The state behind the chunk.
    fn advance(&mut self, n: usize) {
        let depth = self.input.k.cols();
        let last = self.logs[n - 1];
        for row in 0..n {
            let decay = (last - self.logs[row]).exp() as f32;
            self.d.row_mut(row).iter_mut().for_each(|d| *d *= decay);
        }
        self.keep[..depth].fill(last.exp() as f32);
        let (shape, a) = ([depth, self.vectors(), n], (&self.qk[n * depth..], [1, depth]));
        let c = self.state.result(0);
        MatMul { shape, a, b: self.d.right(0), c, keep: Some(&self.keep) }.run(self.input.isa);
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

/// Row t of a triangular matrix, from products with the keys: `factor * c[t]/c[s] * products[s]` for s <= t, zeros behind.
struct Decay<'a> {
    logs: &'a [f64],
    t: usize,
    factor: f32,
    products: &'a mut [f32],
}

impl Kernel for Decay<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (now, earlier) = (self.logs[self.t], &self.logs[..=self.t]);
        for (product, log) in self.products.iter_mut().zip(earlier) {
            *product *= self.factor * exp((now - log) as f32);
        }
        self.products[self.t + 1..].fill(0.0);
    }
}

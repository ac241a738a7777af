//! The gated delta rule.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};

use super::CpuDevice;
use super::math::{add_scaled, sigmoid, softplus, sum_squares};
use super::memory::{Tile, View, ViewMut};
use crate::device::DeviceError;
use crate::op::{DeltaNet, HeadMap};

pub(super) fn delta_net(device: &CpuDevice, o: &DeltaNet) -> Result<(), DeviceError> {
    let input = Input {
        op: o,
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
    let (tokens, width) = (input.v.rows(), input.v.cols());
    if tokens == 0 || width == 0 || input.k.cols() == 0 {
        return Ok(());
    }
    let states = state.tiles([1, input.k.cols(), width]);
    out.tiles([tokens, 1, width]).zip(states).for_each(|(mut out, mut state)| recurrent(&input, &mut out, &mut state));
    Ok(())
}

struct Input<'a> {
    op: &'a DeltaNet,
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

    /// Logarithm of the decay of a head at a token.
    fn log_decay(&self, token: usize, head: usize) -> f32 {
        self.a[head] * softplus(self.alpha.row(token)[head] + self.dt_bias[head])
    }

    /// Factor that makes a row of `x` a unit vector.
    fn unit(&self, x: &[f32]) -> f32 {
        1.0 / (sum_squares(x) + self.op.eps).sqrt()
    }
}

/// One head, token after token, as the rule is written.
fn recurrent(input: &Input<'_>, out: &mut Tile<'_, f32>, state: &mut Tile<'_, f32>) {
    let head = out.groups.start;
    let key_head = input.key_head(head);
    let mut error = vec![0.0; input.v.cols()];
    for token in 0..input.v.rows() {
        let (q, k) = (input.q.at(token, key_head), input.k.at(token, key_head));
        let (unit_q, unit_k) = (input.unit(q) / (q.len() as f32).sqrt(), input.unit(k));
        let decay = input.log_decay(token, head).exp();
        let rate = sigmoid(input.beta.row(token)[head]);
        error.copy_from_slice(input.v.at(token, head));
        for (i, k) in k.iter().enumerate() {
            let row = state.view.at_mut(0, i);
            row.iter_mut().for_each(|m| *m *= decay);
            add_scaled(&mut error, -(k * unit_k), row);
        }
        error.iter_mut().for_each(|e| *e *= rate);
        let out = out.view.at_mut(token, 0);
        out.fill(0.0);
        for (i, (q, k)) in q.iter().zip(k).enumerate() {
            let row = state.view.at_mut(0, i);
            add_scaled(row, k * unit_k, &error);
            add_scaled(out, q * unit_q, row);
        }
    }
}

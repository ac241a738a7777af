//! The causal depthwise convolution.

use super::CpuDevice;
use super::copy::rows_per_task;
use super::isa::{Kernel, LANES, Simd};
use super::math::silu;
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::Conv;

pub(super) fn conv(device: &CpuDevice, o: &Conv) -> Result<(), DeviceError> {
    let x = View::<f32>::of(device, &o.x)?;
    let weights = by_tap(View::of(device, &o.weight)?);
    let input = Input { x, state: View::of(device, &o.state)? };
    let out = ViewMut::<f32>::of(device, &o.out)?;
    let channels = out.cols().max(1);
    out.tiles([rows_per_task(channels), 1, channels]).for_each(&device.team, |mut tile| {
        let mut taps = Vec::with_capacity(o.weight.cols);
        for (i, token) in tile.rows.enumerate() {
            taps.clear();
            taps.extend(
                weights.chunks_exact(channels).enumerate().map(|(j, w)| (w, input.row(token + j * o.dilation))),
            );
            device.isa.run(SumTaps { taps: &taps, accumulate: o.accumulate, out: tile.view.at_mut(i, 0) });
        }
    });
    remember(x, ViewMut::of(device, &o.state)?);
    Ok(())
}

/// `[k, C]`: the weights of a tap next to each other.
fn by_tap(weight: View<'_, f32>) -> Vec<f32> {
    let (channels, taps) = (weight.rows(), weight.cols());
    let mut by_tap = vec![0.0; taps * channels];
    for channel in 0..channels {
        for (tap, &value) in weight.at(channel, 0).iter().enumerate() {
            by_tap[tap * channels + channel] = value;
        }
    }
    by_tap
}

/// State and chunk, one behind the other.
struct Input<'a> {
    x: View<'a, f32>,
    state: View<'a, f32>,
}

impl Input<'_> {
    fn row(&self, row: usize) -> &[f32] {
        match row.checked_sub(self.state.rows()) {
            Some(token) => self.x.row(token),
            None => self.state.row(row),
        }
    }
}

/// `out = silu(sum of weights * input over the taps)`, or `out +=` that.
struct SumTaps<'a> {
    /// Weights and input of each tap.
    taps: &'a [(&'a [f32], &'a [f32])],
    accumulate: bool,
    out: &'a mut [f32],
}

impl Kernel for SumTaps<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let store = |out: &mut f32, sum: f32| *out = if self.accumulate { *out + silu(sum) } else { silu(sum) };
        let (vectors, rest) = self.out.as_chunks_mut::<LANES>();
        for (v, out) in vectors.iter_mut().enumerate() {
            let mut sums = [0.0; LANES];
            for (weights, input) in self.taps {
                let (weights, input) = (&weights.as_chunks::<LANES>().0[v], &input.as_chunks::<LANES>().0[v]);
                for lane in 0..LANES {
                    sums[lane] += weights[lane] * input[lane];
                }
            }
            out.iter_mut().zip(sums).for_each(|(out, sum)| store(out, sum));
        }
        let first = vectors.len() * LANES;
        for (i, out) in rest.iter_mut().enumerate() {
            let terms = self.taps.iter().map(|(weights, input)| weights[first + i] * input[first + i]);
            store(out, terms.fold(0.0, |sum, term| sum + term));
        }
    }
}

/// Moves the last rows of state and chunk together into the state.
fn remember(x: View<'_, f32>, mut state: ViewMut<'_, f32>) {
    let (tokens, history) = (x.rows(), state.rows());
    for row in 0..history {
        match (row + tokens).checked_sub(history) {
            Some(token) => state.at_mut(row, 0).copy_from_slice(x.row(token)),
            None => state.copy_row(row + tokens, row),
        }
    }
}

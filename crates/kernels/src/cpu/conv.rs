//! The causal depthwise convolution.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};

use super::CpuDevice;
use super::isa::{Isa, Kernel, Simd};
use super::math::silu;
use super::memory::{Tile, View, ViewMut};
use crate::device::DeviceError;
use crate::op::Conv;

/// Channels in one task.
const CHANNELS: usize = 256;

pub(super) fn conv(device: &CpuDevice, o: &Conv) -> Result<(), DeviceError> {
    let x = View::<f32>::of(device, &o.x)?;
    let weight = View::<f32>::of(device, &o.weight)?;
    let state = ViewMut::<f32>::of(device, &o.state)?;
    let out = ViewMut::<f32>::of(device, &o.out)?;
    let (tokens, history) = (x.rows(), state.rows());
    if x.cols() == 0 {
        return Ok(());
    }
    if history == 0 {
        // One tap and nothing to remember: there are no tiles of the state to walk along with.
        out.tiles([tokens.max(1), 1, CHANNELS]).for_each(|mut out| convolve(device.isa, o, x, weight, None, &mut out));
        return Ok(());
    }
    let states = state.tiles([history, 1, CHANNELS]);
    if tokens == 0 {
        return Ok(());
    }
    out.tiles([tokens, 1, CHANNELS]).zip(states).for_each(|(mut out, mut state)| {
        convolve(device.isa, o, x, weight, Some(&state), &mut out);
        remember(x, &mut state);
    });
    Ok(())
}

/// Output of some channels, for all tokens.
fn convolve(
    isa: Isa,
    o: &Conv,
    x: View<'_, f32>,
    weight: View<'_, f32>,
    state: Option<&Tile<'_, f32>>,
    out: &mut Tile<'_, f32>,
) {
    let (taps, channels) = (weight.cols(), out.cols.clone());
    let history = (taps - 1) * o.dilation;
    // [k, channels]: the weights of a tap next to each other.
    let by_tap: Vec<f32> = (0..taps).flat_map(|j| channels.clone().map(move |c| weight.at(c, 0)[j])).collect();
    let mut sums = vec![0.0; channels.len()];
    for token in 0..x.rows() {
        sums.fill(0.0);
        for (j, weights) in by_tap.chunks_exact(channels.len()).enumerate() {
            // Row of state and chunk together.
            let row = token + j * o.dilation;
            let input = match state {
                Some(state) if row < history => state.view.at(row, 0),
                _ => &x.row(row - history)[channels.clone()],
            };
            isa.run(AddProduct { sums: &mut sums, weights, input });
        }
        isa.run(Finish { sums: &sums, accumulate: o.accumulate, out: out.view.at_mut(token, 0) });
    }
}

/// `sums += weights * input`.
struct AddProduct<'a> {
    sums: &'a mut [f32],
    weights: &'a [f32],
    input: &'a [f32],
}

impl Kernel for AddProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for ((sum, weight), input) in self.sums.iter_mut().zip(self.weights).zip(self.input) {
            *sum += weight * input;
        }
    }
}

/// `out = silu(sums)`, or `out += silu(sums)`.
struct Finish<'a> {
    sums: &'a [f32],
    accumulate: bool,
    out: &'a mut [f32],
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        if self.accumulate {
            self.out.iter_mut().zip(self.sums).for_each(|(out, &sum)| *out += silu(sum));
        } else {
            self.out.iter_mut().zip(self.sums).for_each(|(out, &sum)| *out = silu(sum));
        }
    }
}

/// Moves the last rows of state and chunk together into the state.
fn remember(x: View<'_, f32>, state: &mut Tile<'_, f32>) {
    let (tokens, history) = (x.rows(), state.rows.len());
    let kept = history.saturating_sub(tokens);
    let mut moved = Vec::new();
    for row in 0..history {
        if row < kept {
            moved.clear();
            moved.extend_from_slice(state.view.at(row + tokens, 0));
            state.view.at_mut(row, 0).copy_from_slice(&moved);
        } else {
            let from = row + tokens - history;
            state.view.at_mut(row, 0).copy_from_slice(&x.row(from)[state.cols.clone()]);
        }
    }
}

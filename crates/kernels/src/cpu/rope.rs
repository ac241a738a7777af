//! Rotary positions.

use super::CpuDevice;
use super::copy::rows_per_task;
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::{Rope, RopePairs};

pub(super) fn rope(device: &CpuDevice, o: &Rope) -> Result<(), DeviceError> {
    let freqs = View::<f32>::of(device, &o.freqs)?.at(0, 0);
    let x = ViewMut::<f32>::of(device, &o.x)?;
    let (groups, cols) = (x.groups(), x.cols());
    x.tiles([rows_per_task(groups * cols), groups.max(1), cols.max(1)]).for_each(&device.team, |mut tile| {
        let mut turns = Vec::with_capacity(freqs.len());
        for (i, row) in tile.rows.enumerate() {
            let position = (o.pos0 + row * o.step) as f32;
            turns.clear();
            turns.extend(freqs.iter().map(|freq| (position * freq).sin_cos()));
            for group in 0..groups {
                turn(tile.view.at_mut(i, group), &turns, o.pairs);
            }
        }
    });
    Ok(())
}

/// Turns the pairs of one head, `turns` being sine and cosine of each.
fn turn(x: &mut [f32], turns: &[(f32, f32)], pairs: RopePairs) {
    let by = |a: &mut f32, b: &mut f32, (sin, cos): (f32, f32)| (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
    match pairs {
        RopePairs::Halves => {
            let (first, second) = x.split_at_mut(turns.len());
            for ((a, b), &turn) in first.iter_mut().zip(second).zip(turns) {
                by(a, b, turn);
            }
        }
        RopePairs::Neighbours => {
            for ([a, b], &turn) in x.as_chunks_mut().0.iter_mut().zip(turns) {
                by(a, b, turn);
            }
        }
    }
}

//! The weighted sum of a token's expert rows.

use super::CpuDevice;
use super::copy::for_each_group;
use super::math::{AddScaled, sigmoid};
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::Combine;

pub(super) fn combine(device: &CpuDevice, o: &Combine) -> Result<(), DeviceError> {
    let rows = View::<f32>::of(device, &o.rows)?;
    let weights = View::<f32>::of(device, &o.weights)?;
    let pos = View::<i32>::of(device, &o.plan.pos)?.row(0);
    let shared = match &o.shared {
        Some(shared) => Some((
            View::<f32>::of(device, &shared.y)?,
            shared.gate.as_ref().map(|gate| View::<f32>::of(device, gate)).transpose()?,
        )),
        None => None,
    };
    let top_k = weights.cols();
    for_each_group(device, ViewMut::of(device, &o.out)?, |token, _, out| {
        if !o.accumulate {
            out.fill(0.0);
        }
        let entries = pos[token * top_k..(token + 1) * top_k].iter().zip(weights.row(token));
        for (&row, &weight) in entries.filter(|(row, _)| **row >= 0) {
            device.isa.run(AddScaled { y: out, a: weight, x: rows.row(row as usize) });
        }
        if let Some((y, gate)) = &shared {
            let a = gate.map_or(1.0, |gate| sigmoid(gate.row(token)[0]));
            device.isa.run(AddScaled { y: out, a, x: y.row(token) });
        }
    });
    Ok(())
}

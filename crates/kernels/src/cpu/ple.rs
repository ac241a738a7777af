//! The gate of the hashed n-gram embeddings.

use super::CpuDevice;
use super::copy::for_each_group;
use super::math::{Dot, sigmoid};
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::PleGate;

pub(super) fn ple_gate(device: &CpuDevice, o: &PleGate) -> Result<(), DeviceError> {
    let key = View::<f32>::of(device, &o.key)?;
    let query = View::<f32>::of(device, &o.query)?;
    let value = View::<f32>::of(device, &o.value)?;
    let root = (key.cols() as f32).sqrt();
    for_each_group(device, ViewMut::of(device, &o.out)?, |token, stream, out: &mut [f32]| {
        let score = device.isa.run(Dot { a: key.at(token, stream), b: query.at(token, stream) }) / root;
        let gate = sigmoid(signed_root(score));
        for (out, value) in out.iter_mut().zip(value.row(token)) {
            *out = gate * value;
        }
    });
    Ok(())
}

/// `sign(x) sqrt(max(|x|, 1e-6))`, 0 at 0.
fn signed_root(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { x.abs().max(1e-6).sqrt().copysign(x) }
}

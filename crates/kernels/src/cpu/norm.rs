//! Norms by the root of the mean of squares.

use super::CpuDevice;
use super::copy::for_each_group;
use super::math::{sigmoid, silu, sum_squares};
use super::memory::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::{Activation, GatedNorm, RmsNorm};
use crate::tensor::Tensor;

pub(super) fn rms_norm(device: &CpuDevice, o: &RmsNorm) -> Result<(), DeviceError> {
    let input = Input::of(device, &o.x, &o.out)?;
    let weight = View::<f32>::of(device, &o.weight)?;
    let shared = weight.groups() == 1;
    for_each_group(ViewMut::of(device, &o.out)?, |row, group, out| {
        input.copy_to(row, group, out);
        normalise(out, weight.at(0, if shared { 0 } else { group }), o.eps);
    });
    Ok(())
}

pub(super) fn gated_norm(device: &CpuDevice, o: &GatedNorm) -> Result<(), DeviceError> {
    let input = Input::of(device, &o.x, &o.out)?;
    let gate = View::<f32>::of(device, &o.gate)?;
    let weight = View::<f32>::of(device, &o.weight)?.at(0, 0);
    for_each_group(ViewMut::of(device, &o.out)?, |row, group, out| {
        input.copy_to(row, group, out);
        normalise(out, weight, o.eps);
        let gate = gate.at(row, group);
        match o.activation {
            Activation::Sigmoid => multiply_by(out, gate, sigmoid),
            Activation::Silu => multiply_by(out, gate, silu),
        }
    });
    Ok(())
}

/// The input of an op that may work in place: then it is in the output already and is not looked at from here.
struct Input<'a>(Option<View<'a, f32>>);

impl<'a> Input<'a> {
    fn of(device: &CpuDevice, x: &'a Tensor, out: &Tensor) -> Result<Self, DeviceError> {
        Ok(Self(if x.overlaps(out) { None } else { Some(View::of(device, x)?) }))
    }

    fn copy_to(&self, row: usize, group: usize, out: &mut [f32]) {
        if let Some(x) = self.0 {
            out.copy_from_slice(x.at(row, group));
        }
    }
}

fn normalise(x: &mut [f32], weight: &[f32], eps: f32) {
    let factor = 1.0 / (sum_squares(x) / x.len() as f32 + eps).sqrt();
    for (x, weight) in x.iter_mut().zip(weight) {
        *x = *x * factor * weight;
    }
}

fn multiply_by(x: &mut [f32], gate: &[f32], activation: impl Fn(f32) -> f32) {
    for (x, &gate) in x.iter_mut().zip(gate) {
        *x *= activation(gate);
    }
}

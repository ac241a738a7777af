//! Norms by the root of the mean of squares.

use super::CpuDevice;
use super::copy::for_each_group;
use super::isa::{Kernel, Simd};
use super::math::{sigmoid, silu, sum_squares};
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::{Activation, GatedNorm, RmsNorm};
use crate::tensor::Tensor;

pub(super) fn rms_norm(device: &CpuDevice, o: &RmsNorm) -> Result<(), DeviceError> {
    let input = Input::of(device, &o.x, &o.out)?;
    let weight = View::<f32>::of(device, &o.weight)?;
    let shared = weight.groups() == 1;
    for_each_group(device, ViewMut::of(device, &o.out)?, |row, group, x| {
        input.copy_to(row, group, x);
        device.isa.run(Normalise { x, weight: weight.at(0, if shared { 0 } else { group }), eps: o.eps });
    });
    Ok(())
}

pub(super) fn gated_norm(device: &CpuDevice, o: &GatedNorm) -> Result<(), DeviceError> {
    let input = Input::of(device, &o.x, &o.out)?;
    let gate = View::<f32>::of(device, &o.gate)?;
    let weight = View::<f32>::of(device, &o.weight)?.at(0, 0);
    for_each_group(device, ViewMut::of(device, &o.out)?, |row, group, x| {
        input.copy_to(row, group, x);
        device.isa.run(Normalise { x, weight, eps: o.eps });
        device.isa.run(Gate { x, gate: gate.at(row, group), activation: o.activation });
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

/// `x / sqrt(mean(x^2) + eps) * weight`, in place.
struct Normalise<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let factor = 1.0 / (sum_squares(self.x) / self.x.len() as f32 + self.eps).sqrt();
        for (x, weight) in self.x.iter_mut().zip(self.weight) {
            *x = *x * factor * weight;
        }
    }
}

/// `x * activation(gate)`, in place.
struct Gate<'a> {
    x: &'a mut [f32],
    gate: &'a [f32],
    activation: Activation,
}

impl Kernel for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let pairs = self.x.iter_mut().zip(self.gate);
        match self.activation {
            Activation::Sigmoid => pairs.for_each(|(x, &gate)| *x *= sigmoid(gate)),
            Activation::Silu => pairs.for_each(|(x, &gate)| *x *= silu(gate)),
        }
    }
}

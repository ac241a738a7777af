//! The write of a block's output into the residual streams.

use super::CpuDevice;
use super::copy::for_each_group;
use super::math::{AddScaled, sigmoid};
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::HyperWrite;

pub(super) fn hyper_write(device: &CpuDevice, o: &HyperWrite) -> Result<(), DeviceError> {
    let y = View::<f32>::of(device, &o.y)?;
    let inject = View::<f32>::of(device, &o.inject)?;
    let streams = inject.cols() as f32;
    for_each_group(device, ViewMut::of(device, &o.x)?, |token, stream, x| {
        let a = 2.0 * sigmoid(inject.row(token)[stream] / streams);
        device.isa.run(AddScaled { y: x, a, x: y.row(token) });
    });
    Ok(())
}

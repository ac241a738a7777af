//! A plan's rows laid out one after another.

use super::device::{State, WgpuDevice};
use super::shader::{File, Kernel};
use crate::device::DeviceError;
use crate::op::Gather;
use crate::tensor::DType;

pub(super) fn gather(device: &WgpuDevice, state: &mut State, o: &Gather) -> Result<(), DeviceError> {
    let entry = if o.x.dtype == DType::F16 { "gather_h" } else { "gather" };
    let call = device.call(Kernel::plain(File::Gather, entry)).input(&o.x)?.output(&o.out)?;
    let call = match &o.exponents {
        Some(exponents) => call.output(exponents)?,
        None => call.optional(None)?,
    };
    call.input(&o.plan.stok)?.input(&o.plan.meta)?.groups(state, o.plan.shape.max_rows())
}

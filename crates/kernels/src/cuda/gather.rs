//! A plan's rows laid out one after another.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use crate::device::DeviceError;
use crate::op::Gather;
use crate::tensor::DType;

/// What the kernels are told of this launch (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[("GATHER_ARGS", size_of::<GatherArgs>())];

/// `GatherArgs` of gather.cu.
#[repr(C)]
struct GatherArgs {
    x: View,
    out: View,
    exponents: u64,
    stok: u64,
    meta: u64,
}

pub(super) fn gather(device: &CudaDevice, state: &mut State, o: &Gather) -> Result<(), DeviceError> {
    let args = GatherArgs {
        x: device.input(&o.x)?,
        out: device.output(&o.out)?,
        exponents: o.exponents.as_ref().map_or(Ok(0), |e| device.output(e).map(|view| view.first))?,
        stok: device.input(&o.plan.stok)?.first,
        meta: device.input(&o.plan.meta)?.first,
    };
    let (name, threads) = match o.x.dtype {
        DType::F16 => ("gather_h", (args.x.cols / 8).next_multiple_of(32).clamp(32, 256)),
        _ => ("gather", 256),
    };
    let launch = Launch { grid: [16 * device.machine().processors, 1, 1], block: threads, shared: 0 };
    // SAFETY: `GatherArgs` of gather.cu; both tensors are inside their buffers and have the rows that the plan may have, and
    // a plan's rows name tokens that it was made of.
    unsafe { device.launch(state, ("gather.cu", name), launch, &args) }
}

//! A plan's rows laid out one after another. No op needs it, since products take their rows through the plan; it is here to
//! be compared with that.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use crate::device::DeviceError;
use crate::op::PlanBuffers;
use crate::tensor::{DType, Tensor};

#[repr(C)]
struct Args {
    x: View,
    out: View,
    exponents: u64,
    stok: u64,
    meta: u64,
}

/// Row r of `out` (f16, `[max_rows, 1, D]`) becomes row `stok[r]` of `x` (`[T, 1, D]`, f32 or f16), zeros for padding; f32 is
/// scaled by a power of two where it exceeds the f16 range, whose exponent goes to `exponents` (i32, `[max_rows]`).
pub(super) fn gather(
    device: &CudaDevice,
    state: &mut State,
    x: &Tensor,
    plan: &PlanBuffers,
    out: &Tensor,
    exponents: Option<&Tensor>,
) -> Result<(), DeviceError> {
    let shape = |t: &Tensor| (t.rows, t.groups, t.cols);
    let (rows, tokens) = (plan.shape.max_rows(), plan.shape.tokens());
    let long = exponents.is_none_or(|e| e.dtype == DType::I32 && e.len() == rows && e.is_row_dense());
    if shape(x) != (tokens, 1, x.cols) || shape(out) != (rows, 1, x.cols) || out.dtype != DType::F16 || !long {
        return Err(DeviceError::Shape { op: "gather", what: format!("{x:?} to {out:?} by {:?}", plan.shape) });
    }
    let args = Args {
        x: device.input(x)?,
        out: device.output(out)?,
        exponents: exponents.map_or(Ok(0), |e| device.output(e).map(|view| view.first))?,
        stok: device.input(&plan.stok)?.first,
        meta: device.input(&plan.meta)?.first,
    };
    let name = match x.dtype {
        DType::F32 => "gather",
        DType::F16 => "gather_h",
        other => return Err(DeviceError::Shape { op: "gather", what: format!("rows of {other:?}") }),
    };
    let threads = if name == "gather" { 256 } else { (args.x.cols / 8).next_multiple_of(32).clamp(32, 256) };
    let launch = Launch { grid: [16 * device.machine().processors, 1, 1], block: threads, shared: 0 };
    // SAFETY: `GatherArgs` of gather.cu; both tensors are inside their buffers and have the rows that the plan may have, and
    // a plan's rows name tokens that it was made of.
    unsafe { device.launch(state, ("gather.cu", name), launch, &args) }
}

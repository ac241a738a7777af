//! Launches of the gated delta rule.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use super::source::Source;
use crate::device::DeviceError;
use crate::op::{DeltaNet, HeadMap};

/// Columns of a head that one block of threads keeps, as delta_net.cu has it.
const COLUMNS: u32 = 16;

pub(super) fn delta_net(device: &CudaDevice, state: &mut State, o: &DeltaNet) -> Result<(), DeviceError> {
    #[repr(C)]
    struct Args {
        q: View,
        k: View,
        v: View,
        alpha: View,
        beta: View,
        a: View,
        dt_bias: View,
        state: View,
        out: View,
        factors: u64,
        grouped: u32,
        eps: f32,
    }
    let (k, v) = (device.input(&o.k)?, device.input(&o.v)?);
    if v.rows == 0 || v.cols == 0 || k.cols == 0 {
        return Ok(());
    }
    let pairs = o.k.rows * o.k.groups;
    let args = Args {
        q: device.input(&o.q)?,
        k,
        v,
        alpha: device.input(&o.alpha)?,
        beta: device.input(&o.beta)?,
        a: device.input(&o.a)?,
        dt_bias: device.input(&o.dt_bias)?,
        state: device.output(&o.state)?,
        out: device.output(&o.out)?,
        factors: state.workspace.between.at_least(&device.driver, pairs * 8)?,
        grouped: u32::from(o.heads == HeadMap::Grouped),
        eps: o.eps,
    };
    let defines = vec![("DELTA_WIDTH", k.cols), ("DELTA_V_WIDTH", v.cols)];
    let source = Source { file: "delta_net.cu", defines };
    let norms = device.kernel(state, source.clone(), "delta_norms")?;
    let rule = device.kernel(state, source, "delta_net")?;
    // SAFETY: `DeltaArgs` of delta_net.cu; views are inside their buffers and `Op::check` has compared their shapes; the
    // factors are two numbers for each token and key head.
    unsafe {
        let grid = [pairs.div_ceil(8) as u32, 1, 1];
        device.driver.launch(norms, Launch { grid, block: 256, shared: 0 }, &args)?;
        let grid = [v.cols.div_ceil(COLUMNS), v.groups, 1];
        device.driver.launch(rule, Launch { grid, block: 128, shared: 0 }, &args)
    }
}

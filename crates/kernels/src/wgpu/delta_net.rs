//! The gated delta rule: what can be made ahead, then the tokens, as many as one submit may hold at a time.

use super::device::{State, WgpuDevice};
use super::shader::{File, Kernel};
use crate::device::DeviceError;
use crate::op::{DeltaNet, HeadMap};
use crate::tensor::{DType, Tensor};

/// Rows of a state: THREADS of a column times ROWS in delta_net.wgsl.
const MAX_DEPTH: usize = 256;
/// Columns of a state in a workgroup.
const RUN: usize = 16;

pub(super) fn delta_net(device: &WgpuDevice, state: &mut State, o: &DeltaNet) -> Result<(), DeviceError> {
    let (core, tokens, heads, depth) = (device.core(), o.v.rows, o.v.groups, o.k.cols);
    if depth > MAX_DEPTH {
        return Err(core.unsupported(format!("delta nets with keys of {depth} columns, more than {MAX_DEPTH}")));
    }
    if o.out.is_empty() {
        return Ok(());
    }
    let token_work = (heads * o.v.cols * depth * 4) as u64;
    let at_once = ((core.options.work_per_submit / token_work.max(1)) as usize).clamp(1, tokens);
    for first in (0..tokens).step_by(at_once) {
        let part = first..tokens.min(first + at_once);
        let rows = part.len();
        let factors = state.scratch(core, 0, rows * heads * 16)?;
        let factors = core.window(&Tensor::dense(factors, DType::U32, rows, heads, 4), true)?.0;
        let runs = o.v.cols.div_ceil(RUN);
        let parameters = [
            ("tokens", rows as u32),
            ("heads", core.word("a number of heads", heads)?),
            ("key_heads", core.word("a number of heads", o.k.groups)?),
            ("grouped", (o.heads == HeadMap::Grouped).into()),
            ("eps", o.eps.to_bits()),
            ("depth", depth as u32),
            ("column_runs", runs as u32),
        ];
        let cut = |t: &Tensor| t.rows(part.clone());
        for (entry, groups) in [("delta_norms", (rows * heads).div_ceil(64)), ("delta_net", heads * runs)] {
            let call = device.call(Kernel::plain(File::DeltaNet, entry));
            let call = call.input(&cut(&o.q))?.input(&cut(&o.k))?.input(&cut(&o.v))?.input(&cut(&o.alpha))?;
            let call =
                call.input(&cut(&o.beta))?.input(&o.a)?.input(&o.dt_bias)?.output(&o.state)?.output(&cut(&o.out))?;
            call.buffer(&factors).parameters(&parameters).work(token_work * rows as u64).groups(state, groups)?;
        }
    }
    Ok(())
}

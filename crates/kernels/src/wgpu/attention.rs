//! Attention: how many workgroups, and how many of them in one submit.

use super::device::{State, WgpuDevice};
use super::shader::{File, Kernel};
use crate::device::DeviceError;
use crate::op::Attention;
use crate::tensor::DType;

/// Columns of the output that a workgroup makes: THREADS * COLUMNS in attention.wgsl.
const RUN: usize = 256;

pub(super) fn attention(device: &WgpuDevice, state: &mut State, o: &Attention) -> Result<(), DeviceError> {
    let core = device.core();
    if o.out.is_empty() {
        return Ok(());
    }
    let runs = o.out.cols.div_ceil(RUN);
    let groups = o.q.rows * o.q.groups * runs;
    let count = core.word("a number of workgroups", groups)?;
    core.word("a position", o.pos0 + o.q.rows)?;
    let (blocks, ratio) = o.select.as_ref().map_or((None, 1), |select| (Some(&select.blocks), select.ratio));
    // Multiply-adds of one workgroup, at most.
    let work = (o.pos0 + o.q.rows) as u64 * (o.q.cols + RUN) as u64;
    let at_once = ((core.options.work_per_submit / work.max(1)) as usize).clamp(1, groups);
    for first in (0..groups).step_by(at_once) {
        let here = at_once.min(groups - first);
        let call = device.call(Kernel::plain(File::Attention, "attention"));
        let call =
            call.input(&o.q)?.input(&o.k)?.input(&o.v)?.optional(o.gate.as_ref())?.optional(blocks)?.output(&o.out)?;
        let parameters = [
            ("heads", core.word("a number of heads", o.q.groups)?),
            ("share", core.word("query heads for a key head", o.q.groups / o.k.groups)?),
            ("pos0", o.pos0 as u32),
            ("scale", o.scale.to_bits()),
            ("half_k", (o.k.dtype == DType::F16).into()),
            ("half_v", (o.v.dtype == DType::F16).into()),
            ("has_gate", o.gate.is_some().into()),
            ("selects", blocks.is_some().into()),
            ("ratio", core.word("tokens in a block", ratio)?),
            ("column_runs", runs as u32),
            ("first", first as u32),
        ];
        // The grid may be folded, so a workgroup beyond the last of this call is told apart by the count.
        let end = count.min((first + here) as u32);
        call.parameters(&parameters).work(work * here as u64).groups_of(state, here, end)?;
    }
    Ok(())
}

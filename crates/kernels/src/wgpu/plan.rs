//! The plan: five calls, sizes known to the device alone.

use super::device::{State, WgpuDevice};
use super::shader::{File, Kernel};
use crate::device::DeviceError;
use crate::op::Plan;

pub(super) fn plan(device: &WgpuDevice, state: &mut State, o: &Plan) -> Result<(), DeviceError> {
    let (core, p, shape) = (device.core(), &o.plan, o.plan.shape);
    let blocks = shape.blocks();
    let counts = core.all_of(&state.scratch(core, 0, shape.experts() * 4)?)?;
    let left_out = core.all_of(&state.scratch(core, 1, blocks * 8)?)?;
    let words = [shape.entries(), shape.top_k(), shape.experts(), shape.tile(), blocks].map(|n| n as u32);
    for (entry, groups) in [
        ("hist", blocks),
        ("scan_blocks", shape.experts().div_ceil(256)),
        ("scan_experts", 1),
        ("scan_rows", shape.experts()),
        ("place", blocks),
    ] {
        let call = device.call(Kernel::plain(File::Plan, entry)).input(&o.ids)?.input(&o.weights)?;
        let call = call.output(&p.bcnt)?.output(&p.boff)?.output(&p.eoff)?.output(&p.tiles)?;
        let call = call.output(&p.stok)?.output(&p.sw)?.output(&p.pos)?.output(&p.meta)?;
        call.buffer(&counts).buffer(&left_out).words(&words).groups(state, groups)?;
    }
    Ok(())
}

//! The plan: one call where a workgroup can make it, otherwise five, sizes known to the device alone.

use super::device::{State, WgpuDevice};
use super::queue::Call;
use super::shader::{File, Kernel};
use crate::device::DeviceError;
use crate::op::Plan;

/// Experts that a workgroup counts at a time: RANGE in plan.wgsl.
const RANGE: usize = 2048;

pub(super) fn plan(device: &WgpuDevice, state: &mut State, o: &Plan) -> Result<(), DeviceError> {
    let (core, p, shape) = (device.core(), &o.plan, o.plan.shape);
    let (blocks, experts) = (shape.blocks(), shape.experts());
    let counts = core.all_of(&state.scratch(core, 0, experts * 4)?)?;
    let left_out = core.all_of(&state.scratch(core, 1, blocks * 8)?)?;
    let parameters = [
        ("entries", shape.entries()),
        ("top_k", shape.top_k()),
        ("experts", experts),
        ("tile", shape.tile()),
        ("blocks", blocks),
    ]
    .map(|(name, n)| (name, n as u32));
    let at_once = experts <= RANGE;
    let by_stages = [
        ("plan_hist", blocks),
        ("plan_sums", experts.div_ceil(256)),
        ("plan_scan", 1),
        ("plan_rows", experts),
        ("plan_place", blocks),
    ];
    let stages: &[_] = if blocks <= 1 && at_once { &[("plan_alone", 1)] } else { &by_stages };
    for &(entry, groups) in stages {
        let kernel = Kernel::plain(File::Plan, entry);
        // Subgroups have a counter for each expert.
        let call = if at_once { device.call(kernel) } else { Call::new(core, kernel) };
        let call = call.input(&o.ids)?.input(&o.weights)?;
        let call = call.output(&p.bcnt)?.output(&p.boff)?.output(&p.eoff)?.output(&p.tiles)?;
        let call = call.output(&p.stok)?.output(&p.sw)?.output(&p.pos)?.output(&p.meta)?;
        call.buffer(&counts).buffer(&left_out).parameters(&parameters).groups(state, groups)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_as_many_experts() {
        let source = Kernel::plain(File::Plan, "plan_hist").source();
        assert!(source.contains(&format!("const RANGE = {RANGE}u;")));
    }
}

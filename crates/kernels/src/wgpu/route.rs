//! The choice of experts.

use super::device::{State, WgpuDevice};
use super::shader::{File, Kernel};
use crate::device::DeviceError;
use crate::fallible::Fallible;
use crate::op::{Gating, Route};

pub(super) fn route(device: &WgpuDevice, state: &mut State, o: &Route) -> Result<(), DeviceError> {
    let (core, config, tokens, experts) = (device.core(), &o.config, o.logits.rows, o.logits.cols);
    if tokens == 0 {
        return Ok(());
    }
    let groups = config.groups.map_or(0, |limit| limit.groups);
    let scores = core.all_of(&state.scratch(core, 0, tokens * experts * 4)?)?;
    let keys = core.all_of(&state.scratch(core, 1, tokens * experts * 4)?)?;
    let group_keys = core.all_of(&state.scratch(core, 2, tokens * groups * 4)?)?;
    let op = state.fallible(core, Fallible::Route { layer: o.layer });
    let status = state.status.clone();
    let call = device.call(Kernel::plain(File::Route, "route")).input(&o.logits)?.optional(o.bias.as_ref())?;
    let call = call.output(&o.ids)?.output(&o.weights)?;
    let call = call.buffer(&scores).buffer(&keys).buffer(&group_keys).buffer(&status);
    let parameters = [
        ("experts", core.word("a number of experts", experts)?),
        ("sigmoids", (config.gating == Gating::Sigmoid).into()),
        ("has_bias", o.bias.is_some().into()),
        ("renormalise", config.renormalise.into()),
        ("scale", config.scale.to_bits()),
        ("groups", groups as u32),
        ("used", config.groups.map_or(0, |limit| limit.used) as u32),
        ("has_tail", config.tail_share.is_some().into()),
        ("tail_share", config.tail_share.unwrap_or(0.0).to_bits()),
        ("status", op),
    ];
    call.parameters(&parameters).groups(state, tokens)
}

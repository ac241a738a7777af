//! Launches of routing.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use super::source::Source;
use crate::device::DeviceError;
use crate::fallible::Fallible;
use crate::op::{Gating, Route};

/// What the kernel is told of this launch (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[("ROUTE_ARGS", size_of::<RouteArgs>())];

/// `RouteArgs` of route.cu.
#[repr(C)]
struct RouteArgs {
    logits: View,
    bias: View,
    weights: View,
    ids: View,
    status: u64,
    has_bias: u32,
    sigmoid_gating: u32,
    renormalise: u32,
    groups: u32,
    used: u32,
    has_tail: u32,
    op: u32,
    scale: f32,
    tail_share: f32,
}

pub(super) fn route(device: &CudaDevice, state: &mut State, o: &Route) -> Result<(), DeviceError> {
    let config = &o.config;
    let (logits, ids) = (device.input(&o.logits)?, device.output(&o.ids)?);
    if logits.rows == 0 {
        return Ok(());
    }
    let (groups, used) = config.groups.map_or((0, 0), |limit| (limit.groups as u32, limit.used as u32));
    let shared = 4 * (logits.cols + groups);
    if shared > device.machine().shared {
        return Err(DeviceError::Unsupported {
            device: device.driver.id().into(),
            what: format!("a choice among {} experts", logits.cols),
        });
    }
    let (bias, weights) = (device.optional(o.bias.as_ref())?, device.output(&o.weights)?);
    let (status, op) = state.fallible(Fallible::Route { layer: o.layer });
    let args = RouteArgs {
        logits,
        bias,
        weights,
        ids,
        status,
        has_bias: o.bias.is_some().into(),
        sigmoid_gating: u32::from(config.gating == Gating::Sigmoid),
        renormalise: config.renormalise.into(),
        groups,
        used,
        has_tail: config.tail_share.is_some().into(),
        op,
        scale: config.scale,
        tail_share: config.tail_share.unwrap_or_default(),
    };
    let kernel = device.kernel(state, Source::plain("route.cu"), "route")?;
    let launch = Launch { grid: [logits.rows, 1, 1], block: 32, shared };
    // SAFETY: `RouteArgs` of route.cu; views are inside their buffers and `Op::check` has compared their shapes.
    unsafe { device.driver.launch(kernel, launch, &args) }
}

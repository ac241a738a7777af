//! The plan, by `argon_plan`.

use argon_plan::{Buffers, build_lenient};

use super::CpuDevice;
use super::view::{View, ViewMut};
use crate::device::DeviceError;
use crate::op::Plan;

pub(super) fn plan(device: &CpuDevice, o: &Plan) -> Result<(), DeviceError> {
    let p = &o.plan;
    let ids = View::<i32>::of(device, &o.ids)?;
    let weights = View::<f32>::of(device, &o.weights)?;
    let (mut bcnt, mut boff) = (ViewMut::of(device, &p.bcnt)?, ViewMut::of(device, &p.boff)?);
    let (mut eoff, mut tiles) = (ViewMut::of(device, &p.eoff)?, ViewMut::of(device, &p.tiles)?);
    let (mut stok, mut sw) = (ViewMut::of(device, &p.stok)?, ViewMut::of(device, &p.sw)?);
    let (mut pos, mut meta) = (ViewMut::of(device, &p.pos)?, ViewMut::of(device, &p.meta)?);
    let mut out = Buffers {
        bcnt: bcnt.all_mut(),
        boff: boff.all_mut(),
        eoff: eoff.all_mut(),
        tiles: tiles.all_mut(),
        stok: stok.all_mut(),
        sw: sw.all_mut(),
        pos: pos.all_mut(),
        meta: meta.all_mut(),
    };
    let mut build = || build_lenient(device.plan, &p.shape, ids.all(), bytemuck::cast_slice(weights.all()), &mut out);
    // To wake the pool takes longer than a small plan.
    let built = if device.plan.is_serial(&p.shape) { build() } else { device.install(build) };
    built.map_err(|e| DeviceError::Shape { op: "plan", what: e.to_string() })
}

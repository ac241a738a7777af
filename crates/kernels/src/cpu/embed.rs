//! Rows of an embedding table.

use argon_gguf::decode_row;

use super::CpuDevice;
use super::copy::for_each_group;
use super::view::{View, ViewMut, WeightRows};
use crate::device::DeviceError;
use crate::op::Embed;

pub(super) fn embed(device: &CpuDevice, o: &Embed) -> Result<(), DeviceError> {
    let table = WeightRows::of(device, &o.table)?;
    let ids = View::<i32>::of(device, &o.ids)?;
    for token in 0..ids.rows() {
        for (group, &id) in ids.row(token).iter().enumerate() {
            if usize::try_from(id).is_err() || id as usize >= o.table.rows {
                let (entry, limit) = (token * ids.cols() + group, o.table.rows);
                return Err(DeviceError::IdOutOfRange { op: "embed", entry, id: id.into(), limit });
            }
        }
    }
    for_each_group(device, ViewMut::of(device, &o.out)?, |token, group, out: &mut [f32]| {
        decode_row(o.table.format, table.row(0, ids.row(token)[group] as usize), out);
    });
    Ok(())
}

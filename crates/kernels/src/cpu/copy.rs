//! Fill, copy and add: elements that move.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::CpuDevice;
use super::view::{Element, Tile, View, ViewMut};
use crate::device::DeviceError;
use crate::op::{Add, Copy, Fill};
use crate::tensor::{DType, Tensor};

/// Elements that one task moves, so that a task outweighs its scheduling.
const TASK: usize = 1 << 14;

/// Rows of `width` elements for one task.
pub(super) fn rows_per_task(width: usize) -> usize {
    (TASK / width.max(1)).max(1)
}

/// Calls `kernel` with the row, the group, and the elements of each group of `out`, side by side.
pub(super) fn for_each_group<T: Element>(
    device: &CpuDevice,
    out: ViewMut<'_, T>,
    kernel: impl Fn(usize, usize, &mut [T]) + Sync,
) {
    let [rows, groups, cols] = [rows_per_task(out.groups() * out.cols()), out.groups(), out.cols()];
    out.tiles([rows, groups.max(1), cols.max(1)]).for_each(&device.team, |mut tile: Tile<'_, T>| {
        for (i, row) in tile.rows.enumerate() {
            for group in 0..groups {
                kernel(row, group, tile.view.at_mut(i, group));
            }
        }
    });
}

pub(super) fn fill(device: &CpuDevice, o: &Fill) -> Result<(), DeviceError> {
    match o.dst.dtype {
        DType::F16 => fill_as(device, &o.dst, f16::from_f32(o.value)),
        _ => fill_as(device, &o.dst, o.value),
    }
}

fn fill_as<T: Element>(device: &CpuDevice, dst: &Tensor, value: T) -> Result<(), DeviceError> {
    for_each_group(device, ViewMut::of(device, dst)?, |_, _, dst| dst.fill(value));
    Ok(())
}

pub(super) fn copy(device: &CpuDevice, o: &Copy) -> Result<(), DeviceError> {
    match o.dst.dtype {
        DType::F16 => copy_by(device, o, |src, dst: &mut [f16]| dst.convert_from_f32_slice(src)),
        _ => copy_by(device, o, |src, dst: &mut [f32]| dst.copy_from_slice(src)),
    }
}

fn copy_by<T: Element>(
    device: &CpuDevice,
    o: &Copy,
    convert: impl Fn(&[f32], &mut [T]) + Sync,
) -> Result<(), DeviceError> {
    let src = View::<f32>::of(device, &o.src)?;
    let repeated = src.groups() == 1;
    for_each_group(device, ViewMut::of(device, &o.dst)?, |row, group, dst| {
        convert(src.at(row, if repeated { 0 } else { group }), dst);
    });
    Ok(())
}

pub(super) fn add(device: &CpuDevice, o: &Add) -> Result<(), DeviceError> {
    let src = View::<f32>::of(device, &o.src)?;
    for_each_group(device, ViewMut::of(device, &o.dst)?, |row, group, dst: &mut [f32]| {
        for (dst, src) in dst.iter_mut().zip(src.at(row, group)) {
            *dst += src;
        }
    });
    Ok(())
}

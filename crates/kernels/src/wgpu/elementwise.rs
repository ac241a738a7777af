//! Calls of the kernels that need no choice: a thread for each element, or a workgroup for each group.

use super::device::{State, WgpuDevice};
use super::shader::{File, Kernel};
use crate::device::DeviceError;
use crate::fallible::Fallible;
use crate::op::{
    Activation, Add, Combine, Conv, Copy, Embed, Fill, GatedNorm, HyperWrite, PleGate, RmsNorm, Rope, RopePairs,
};
use crate::tensor::{DType, Tensor};

type Result = std::result::Result<(), DeviceError>;

/// Threads that write all of a tensor: one for each element, or for each word that holds two.
fn items(t: &Tensor) -> usize {
    match t.dtype {
        _ if t.is_empty() => 0,
        DType::F16 => t.rows * t.groups * (t.cols / 2 + 1),
        _ => t.len(),
    }
}

pub(super) fn fill(device: &WgpuDevice, state: &mut State, o: &Fill) -> Result {
    let entry = if o.dst.dtype == DType::F16 { "fill_half" } else { "fill" };
    move_elements(device, state, entry, None, &o.dst, o.value.to_bits())
}

pub(super) fn copy(device: &WgpuDevice, state: &mut State, o: &Copy) -> Result {
    let entry = if o.dst.dtype == DType::F16 { "copy_half" } else { "copy" };
    move_elements(device, state, entry, Some(&o.src), &o.dst, 0)
}

pub(super) fn add(device: &WgpuDevice, state: &mut State, o: &Add) -> Result {
    move_elements(device, state, "add", Some(&o.src), &o.dst, 0)
}

fn move_elements(
    device: &WgpuDevice,
    state: &mut State,
    entry: &'static str,
    src: Option<&Tensor>,
    dst: &Tensor,
    value: u32,
) -> Result {
    let groups = device.core().word("a number of groups", dst.groups)?;
    let src_groups = device.core().word("a number of groups", src.map_or(1, |src| src.groups))?;
    let call = device.call(Kernel::plain(File::Copy, entry)).optional(src)?.output(dst)?;
    let parameters = [("groups", groups), ("src_groups", src_groups), ("value", value)];
    call.parameters(&parameters).threads(state, items(dst))
}

pub(super) fn embed(device: &WgpuDevice, state: &mut State, o: &Embed) -> Result {
    let core = device.core();
    let entries = o.ids.len();
    if entries == 0 {
        return Ok(());
    }
    let eights = o.out.cols.div_ceil(8);
    let ids_per_row = core.word("ids in a row", o.ids.cols)?;
    let limit = core.word("rows of a table", o.table.rows)?;
    let status = state.fallible(core, Fallible::Embed { limit: o.table.rows });
    let buffer = state.status.clone();
    let parameters = |eights, total| {
        [("ids_per_row", ids_per_row), ("eights", eights), ("total", total), ("limit", limit), ("status", status)]
    };
    let parts = core.parts(&o.table)?;
    for part in &parts {
        let call = device.call(Kernel::embed(o.table.format)).input(&o.ids)?.output(&o.out)?;
        let call = call.part(part).codebooks().buffer(&buffer);
        let total = core.word("columns to decode", entries * eights)?;
        call.parameters(&parameters(eights as u32, total)).groups(state, (entries * eights).div_ceil(256))?;
    }
    let Some(part) = parts.first() else {
        return Err(core.failed("an embedding table without rows"));
    };
    for (kernel, groups) in Kernel::CHECKS.into_iter().zip([entries.div_ceil(256), 1]) {
        let call = device.call(kernel).input(&o.ids)?.output(&o.out)?.part(part).codebooks().buffer(&buffer);
        let total = core.word("ids", entries)?;
        call.parameters(&parameters(1, total)).groups(state, groups)?;
    }
    Ok(())
}

pub(super) fn rms_norm(device: &WgpuDevice, state: &mut State, o: &RmsNorm) -> Result {
    norm(device, state, [&o.x, &o.weight, &o.out], None, o.eps, 0)
}

pub(super) fn gated_norm(device: &WgpuDevice, state: &mut State, o: &GatedNorm) -> Result {
    let activation = match o.activation {
        Activation::Sigmoid => 1,
        Activation::Silu => 2,
    };
    norm(device, state, [&o.x, &o.weight, &o.out], Some(&o.gate), o.eps, activation)
}

fn norm(
    device: &WgpuDevice,
    state: &mut State,
    [x, weight, out]: [&Tensor; 3],
    gate: Option<&Tensor>,
    eps: f32,
    activation: u32,
) -> Result {
    let groups = device.core().word("a number of groups", x.groups)?;
    let call =
        device.call(Kernel::plain(File::Norm, "rms_norm")).input(x)?.input(weight)?.optional(gate)?.output(out)?;
    let parameters = [
        ("groups", groups),
        ("weight_groups", weight.groups as u32),
        ("eps", eps.to_bits()),
        ("activation", activation),
    ];
    call.parameters(&parameters).groups(state, x.rows * x.groups)
}

pub(super) fn rope(device: &WgpuDevice, state: &mut State, o: &Rope) -> Result {
    let core = device.core();
    let groups = core.word("a number of groups", o.x.groups)?;
    let last = o.step.checked_mul(o.x.rows).and_then(|n| n.checked_add(o.pos0)).unwrap_or(usize::MAX);
    core.word("a position", last)?;
    let call = device.call(Kernel::plain(File::Rope, "rope")).output(&o.x)?.input(&o.freqs)?;
    let parameters = [
        ("groups", groups),
        ("neighbours", (o.pairs == RopePairs::Neighbours).into()),
        ("pos0", o.pos0 as u32),
        ("step", o.step as u32),
    ];
    call.parameters(&parameters).threads(state, o.x.rows * o.x.groups * o.freqs.cols)
}

pub(super) fn conv(device: &WgpuDevice, state: &mut State, o: &Conv) -> Result {
    let core = device.core();
    let parameters = [
        ("tokens", core.word("a number of tokens", o.x.rows)?),
        ("history", core.word("rows of a state", o.state.rows)?),
        ("dilation", core.word("a dilation", o.dilation)?),
        ("accumulate", o.accumulate.into()),
    ];
    for (entry, threads) in [("conv", o.x.len()), ("conv_state", if o.x.rows > 0 { o.x.cols } else { 0 })] {
        let call = device.call(Kernel::plain(File::Conv, entry)).input(&o.x)?.input(&o.weight)?;
        call.output(&o.state)?.output(&o.out)?.parameters(&parameters).threads(state, threads)?;
    }
    Ok(())
}

pub(super) fn hyper_write(device: &WgpuDevice, state: &mut State, o: &HyperWrite) -> Result {
    streams(device, state, "hyper_write", [&o.y, &o.inject, &o.x], o.x.groups)
}

/// The mean over streams of gated streams; `p` has the gates' logits `[T, 1, S * D]`.
pub(super) fn gate_mean(device: &WgpuDevice, state: &mut State, [p, normed, out]: [&Tensor; 3]) -> Result {
    streams(device, state, "gate_mean", [p, normed, out], normed.groups)
}

fn streams(
    device: &WgpuDevice,
    state: &mut State,
    entry: &'static str,
    [a, b, out]: [&Tensor; 3],
    streams: usize,
) -> Result {
    let call = device.call(Kernel::plain(File::Hyper, entry)).input(a)?.input(b)?.output(out)?;
    call.parameters(&[("streams", device.core().word("a number of streams", streams)?)]).threads(state, out.len())
}

pub(super) fn ple_gate(device: &WgpuDevice, state: &mut State, o: &PleGate) -> Result {
    let call = device.call(Kernel::plain(File::Ple, "ple_gate"));
    let call = call.input(&o.key)?.input(&o.query)?.input(&o.value)?.output(&o.out)?;
    let streams = device.core().word("a number of streams", o.key.groups)?;
    call.parameters(&[("streams", streams)]).groups(state, o.key.rows * o.key.groups)
}

pub(super) fn combine(device: &WgpuDevice, state: &mut State, o: &Combine) -> Result {
    let shared = o.shared.as_ref();
    let gate = shared.and_then(|shared| shared.gate.as_ref());
    let call = device.call(Kernel::plain(File::Combine, "combine"));
    let call = call.input(&o.rows)?.input(&o.weights)?.input(&o.plan.pos)?;
    let call = call.optional(shared.map(|shared| &shared.y))?.optional(gate)?.output(&o.out)?;
    let parameters = [
        ("has_shared", shared.is_some().into()),
        ("has_gate", gate.is_some().into()),
        ("accumulate", o.accumulate.into()),
    ];
    call.parameters(&parameters).threads(state, o.out.len())
}

//! Launches of the kernels that need no choice: a block of threads for each row or group.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use super::source::Source;
use crate::device::DeviceError;
use crate::fallible::Fallible;
use crate::op::{
    Activation, Add, Combine, Conv, Copy, Embed, Fill, GatedNorm, HyperWrite, PleGate, RmsNorm, Rope, RopePairs,
};
use crate::tensor::Tensor;

type Result = std::result::Result<(), DeviceError>;

/// What the kernels are told of these launches (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[
    ("FILL_ARGS", size_of::<FillArgs>()),
    ("COPY_ARGS", size_of::<CopyArgs>()),
    ("EMBED_ARGS", size_of::<EmbedArgs>()),
    ("NORM_ARGS", size_of::<NormArgs>()),
    ("NORM_PLAIN", Norm::Plain as usize),
    ("NORM_SILU", Norm::Silu as usize),
    ("NORM_KEPT", KEPT as usize),
    ("ROPE_ARGS", size_of::<RopeArgs>()),
    ("CONV_ARGS", size_of::<ConvArgs>()),
    ("CONV_TOKENS", CONV_TOKENS as usize),
    ("WRITE_ARGS", size_of::<WriteArgs>()),
    ("MEAN_ARGS", size_of::<MeanArgs>()),
    ("PLE_ARGS", size_of::<PleArgs>()),
    ("COMBINE_ARGS", size_of::<CombineArgs>()),
];

/// A block for each group of each row, with threads for the columns.
fn groups(t: &View) -> Launch {
    Launch { grid: [t.rows * t.groups, 1, 1], block: threads(t.cols), shared: 0 }
}

/// A block for each group of each row, with threads for quads of columns: an even share for each.
fn quads(t: &View) -> Launch {
    let quads = t.cols.div_ceil(4);
    Launch { block: quads.div_ceil(quads.div_ceil(320).max(1)).next_multiple_of(32).max(32), ..groups(t) }
}

/// Several blocks for a long group; their kernels stride by the grid.
fn wide(launch: Launch, cols: u32, each: u32) -> Launch {
    Launch { grid: [launch.grid[0], cols.div_ceil(each * launch.block).clamp(1, 64), 1], ..launch }
}

/// Whole warps, as many as the columns keep busy.
fn threads(cols: u32) -> u32 {
    cols.next_multiple_of(32).clamp(32, 256)
}

/// `FillArgs` of copy.cu.
#[repr(C)]
struct FillArgs {
    dst: View,
    value: f32,
}

pub(super) fn fill(device: &CudaDevice, state: &mut State, o: &Fill) -> Result {
    let args = FillArgs { dst: device.output(&o.dst)?, value: o.value };
    // SAFETY: `FillArgs` of copy.cu; the view is inside its buffer.
    unsafe { device.launch(state, ("copy.cu", "fill"), wide(groups(&args.dst), args.dst.cols, 4), &args) }
}

pub(super) fn copy(device: &CudaDevice, state: &mut State, o: &Copy) -> Result {
    source_to_destination(device, state, "copy", &o.src, &o.dst)
}

pub(super) fn add(device: &CudaDevice, state: &mut State, o: &Add) -> Result {
    source_to_destination(device, state, "add", &o.src, &o.dst)
}

/// `CopyArgs` of copy.cu.
#[repr(C)]
struct CopyArgs {
    src: View,
    dst: View,
}

fn source_to_destination(
    device: &CudaDevice,
    state: &mut State,
    name: &'static str,
    src: &Tensor,
    dst: &Tensor,
) -> Result {
    let args = CopyArgs { src: device.input(src)?, dst: device.output(dst)? };
    // SAFETY: `CopyArgs` of copy.cu; both views are inside their buffers and `Op::check` has compared their shapes.
    unsafe { device.launch(state, ("copy.cu", name), wide(quads(&args.dst), args.dst.cols, 16), &args) }
}

/// `EmbedArgs` of embed.cu.
#[repr(C)]
struct EmbedArgs {
    ids: View,
    out: View,
    table: u64,
    row_bytes: u64,
    status: u64,
    limit: u32,
    op: u32,
}

pub(super) fn embed(device: &CudaDevice, state: &mut State, o: &Embed) -> Result {
    let (ids, out, table) = (device.input(&o.ids)?, device.output(&o.out)?, device.weight(&o.table)?);
    if ids.rows == 0 || ids.cols == 0 {
        return Ok(());
    }
    let (status, op) = state.fallible(Fallible::Embed { limit: o.table.rows });
    let limit = o.table.rows.min(u32::MAX as usize) as u32;
    let args = EmbedArgs { ids, out, table, row_bytes: o.table.row_bytes as u64, status, limit, op };
    let source = Source::of_format("embed.cu", o.table.format);
    let check = device.kernel(state, source.clone(), "embed_check")?;
    let embed = device.kernel(state, source, "embed")?;
    let one = Launch { grid: [1, 1, 1], block: 256, shared: 0 };
    // SAFETY: `EmbedArgs` of embed.cu; views and table are inside their buffers, ids beyond the limit are not followed.
    unsafe {
        device.driver.launch(check, one, &args)?;
        device.driver.launch(embed, groups(&args.out), &args)
    }
}

/// `NormArgs` of norm.cu.
#[repr(C)]
struct NormArgs {
    x: View,
    weight: View,
    gate: View,
    out: View,
    eps: f32,
    activation: Norm,
}

/// What a norm is multiplied by: nothing, or an activation of the gate.
#[repr(u32)]
#[derive(Clone, Copy)]
enum Norm {
    Plain,
    Sigmoid,
    Silu,
}

pub(super) fn rms_norm(device: &CudaDevice, state: &mut State, o: &RmsNorm) -> Result {
    let (x, weight, out) = (device.input(&o.x)?, device.input(&o.weight)?, device.output(&o.out)?);
    norm(device, state, NormArgs { x, weight, gate: View::default(), out, eps: o.eps, activation: Norm::Plain })
}

pub(super) fn gated_norm(device: &CudaDevice, state: &mut State, o: &GatedNorm) -> Result {
    let (x, weight, gate) = (device.input(&o.x)?, device.input(&o.weight)?, device.input(&o.gate)?);
    let activation = match o.activation {
        Activation::Sigmoid => Norm::Sigmoid,
        Activation::Silu => Norm::Silu,
    };
    norm(device, state, NormArgs { x, weight, gate, out: device.output(&o.out)?, eps: o.eps, activation })
}

/// Quads of a group that a thread of norm.cu keeps.
const KEPT: u32 = 4;

/// A warp for a group that it can keep, a block for a wider one.
fn norm(device: &CudaDevice, state: &mut State, args: NormArgs) -> Result {
    const WARPS: u32 = 4;
    let (x, quads) = (&args.x, args.x.cols.div_ceil(4));
    let (kernel, launch) = if quads <= 32 * KEPT {
        let blocks = (x.rows * x.groups).div_ceil(WARPS);
        ("rms_norm_narrow", Launch { grid: [blocks, 1, 1], block: 32 * WARPS, shared: 0 })
    } else {
        ("rms_norm", Launch { block: threads(quads.div_ceil(KEPT)), ..groups(x) })
    };
    // SAFETY: `NormArgs` of norm.cu; views are inside their buffers and `Op::check` has compared their shapes.
    unsafe { device.launch(state, ("norm.cu", kernel), launch, &args) }
}

/// `RopeArgs` of rope.cu.
#[repr(C)]
struct RopeArgs {
    x: View,
    freqs: View,
    pos0: u64,
    step: u64,
    neighbours: u32,
}

pub(super) fn rope(device: &CudaDevice, state: &mut State, o: &Rope) -> Result {
    let (x, freqs) = (device.output(&o.x)?, device.input(&o.freqs)?);
    let neighbours = u32::from(o.pairs == RopePairs::Neighbours);
    let args = RopeArgs { x, freqs, pos0: o.pos0 as u64, step: o.step as u64, neighbours };
    if freqs.cols == 0 {
        return Ok(());
    }
    let launch = Launch { grid: [x.rows, 1, 1], block: threads(freqs.cols.saturating_mul(x.groups)), shared: 0 };
    // SAFETY: `RopeArgs` of rope.cu; the view is inside its buffer and has room for the pairs (`Op::check`).
    unsafe { device.launch(state, ("rope.cu", "rope"), launch, &args) }
}

/// `ConvArgs` of conv.cu.
#[repr(C)]
struct ConvArgs {
    x: View,
    weight: View,
    state: View,
    out: View,
    dilation: u32,
    accumulate: u32,
}

pub(super) fn conv(device: &CudaDevice, state: &mut State, o: &Conv) -> Result {
    let (x, weight) = (device.input(&o.x)?, device.input(&o.weight)?);
    let dilation = u32::try_from(o.dilation).map_err(|_| device.driver.failed("a dilation beyond 32 bits"))?;
    let (history, out) = (device.output(&o.state)?, device.output(&o.out)?);
    let args = ConvArgs { x, weight, state: history, out, dilation, accumulate: o.accumulate.into() };
    let source = Source::conv(o.weight.cols);
    let (conv, conv_state) =
        (device.kernel(state, source.clone(), "conv")?, device.kernel(state, source, "conv_state")?);
    let tokens = x.rows.div_ceil(CONV_TOKENS).min(65_535);
    let all = Launch { grid: [x.cols.div_ceil(4 * 128), tokens, 1], block: 128, shared: 0 };
    let last = Launch { grid: [x.cols.div_ceil(128), 1, 1], ..all };
    // SAFETY: `ConvArgs` of conv.cu; views are inside their buffers and `Op::check` has compared their shapes.
    unsafe {
        device.driver.launch(conv, all, &args)?;
        device.driver.launch(conv_state, last, &args)
    }
}

/// Tokens that a thread of conv.cu takes.
const CONV_TOKENS: u32 = 8;

/// `WriteArgs` of hyper.cu.
#[repr(C)]
struct WriteArgs {
    y: View,
    inject: View,
    x: View,
}

pub(super) fn hyper_write(device: &CudaDevice, state: &mut State, o: &HyperWrite) -> Result {
    let args = WriteArgs { y: device.input(&o.y)?, inject: device.input(&o.inject)?, x: device.output(&o.x)? };
    // SAFETY: `WriteArgs` of hyper.cu; views are inside their buffers and `Op::check` has compared their shapes.
    unsafe { device.launch(state, ("hyper.cu", "hyper_write"), quads(&args.x), &args) }
}

/// `MeanArgs` of hyper.cu.
#[repr(C)]
struct MeanArgs {
    p: View,
    normed: View,
    out: View,
}

/// The mean over streams of gated streams; `p` has the gates' logits `[T, 1, S * D]`.
pub(super) fn gate_mean(device: &CudaDevice, state: &mut State, p: View, normed: View, out: View) -> Result {
    let launch = quads(&out);
    // SAFETY: `MeanArgs` of hyper.cu; views are inside their buffers and `Op::check` has compared their shapes.
    unsafe { device.launch(state, ("hyper.cu", "gate_mean"), launch, &MeanArgs { p, normed, out }) }
}

/// `PleArgs` of ple.cu.
#[repr(C)]
struct PleArgs {
    key: View,
    query: View,
    value: View,
    out: View,
}

pub(super) fn ple_gate(device: &CudaDevice, state: &mut State, o: &PleGate) -> Result {
    let (key, query, value) = (device.input(&o.key)?, device.input(&o.query)?, device.input(&o.value)?);
    let args = PleArgs { key, query, value, out: device.output(&o.out)? };
    // SAFETY: `PleArgs` of ple.cu; views are inside their buffers and `Op::check` has compared their shapes.
    unsafe { device.launch(state, ("ple.cu", "ple_gate"), groups(&args.key), &args) }
}

/// `CombineArgs` of combine.cu.
#[repr(C)]
struct CombineArgs {
    rows: View,
    weights: View,
    shared: View,
    gate: View,
    out: View,
    pos: u64,
    has_shared: u32,
    has_gate: u32,
    accumulate: u32,
}

pub(super) fn combine(device: &CudaDevice, state: &mut State, o: &Combine) -> Result {
    let shared = o.shared.as_ref();
    let gate = shared.and_then(|shared| shared.gate.as_ref());
    let (rows, weights, out) = (device.input(&o.rows)?, device.input(&o.weights)?, device.output(&o.out)?);
    let args = CombineArgs {
        rows,
        weights,
        shared: device.optional(shared.map(|shared| &shared.y))?,
        gate: device.optional(gate)?,
        out,
        pos: device.input(&o.plan.pos)?.first,
        has_shared: shared.is_some().into(),
        has_gate: gate.is_some().into(),
        accumulate: o.accumulate.into(),
    };
    // SAFETY: `CombineArgs` of combine.cu; views are inside their buffers, a plan's positions are rows of `rows`.
    unsafe { device.launch(state, ("combine.cu", "combine"), quads(&out), &args) }
}

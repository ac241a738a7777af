//! Launches of attention.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use super::source::Source;
use crate::device::DeviceError;
use crate::op::Attention;

/// Keys in a tile of attention.cu.
const KEYS: usize = 32;

/// What the kernels are told of these launches (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[("ATTENTION_ARGS", size_of::<AttentionArgs>()), ("ATTENTION_KEYS", KEYS)];

/// `AttentionArgs` of attention.cu and attention_f16.cu.
#[repr(C)]
struct AttentionArgs {
    q: View,
    k: View,
    v: View,
    gate: View,
    out: View,
    blocks: View,
    pos0: u64,
    ratio: u32,
    has_gate: u32,
    has_blocks: u32,
    scale: f32,
}

pub(super) fn attention(device: &CudaDevice, state: &mut State, o: &Attention) -> Result<(), DeviceError> {
    let select = o.select.as_ref();
    let (q, k, v) = (device.input(&o.q)?, device.input(&o.k)?, device.input(&o.v)?);
    let out = device.output(&o.out)?;
    if out.rows == 0 || out.cols == 0 || out.groups == 0 {
        return Ok(());
    }
    let ratio = select.map_or(1, |select| select.ratio);
    let args = AttentionArgs {
        q,
        k,
        v,
        gate: device.optional(o.gate.as_ref())?,
        out,
        blocks: device.optional(select.map(|select| &select.blocks))?,
        pos0: o.pos0 as u64,
        ratio: u32::try_from(ratio).map_err(|_| device.driver.failed("a block beyond 32 bits"))?,
        has_gate: o.gate.is_some().into(),
        has_blocks: select.is_some().into(),
        scale: o.scale,
    };
    let (width, v_width) = (o.q.cols, o.v.cols);
    let limit = device.machine().shared as usize;
    let few = select.is_some() || o.q.rows < FEW_QUERIES;
    if on_tensor_cores(&args.k, &args.v)
        && let Some(by_query) = by_query(width, v_width, few, limit)
    {
        return tensor_cores(device, state, o, &args, by_query);
    }
    let fits = [64, 32, 16].into_iter().find(|&rows| shared(width, v_width, rows) <= limit);
    let rows = fits.ok_or_else(|| DeviceError::Unsupported {
        device: device.driver.id().into(),
        what: format!("attention heads of {width} and {v_width} columns"),
    })?;
    let kernel = device.kernel(state, Source::attention([width, v_width], rows), "attention")?;
    let all = o.q.rows * (o.q.groups / o.k.groups);
    let grid = [all.div_ceil(rows) as u32, k.groups, 1];
    let launch = Launch { grid, block: 256, shared: shared(width, v_width, rows) as u32 };
    // SAFETY: `AttentionArgs` of attention.cu; views are inside their buffers and `Op::check` has compared their shapes;
    // a key is read only below pos0 + T, which the caches hold.
    unsafe { device.driver.launch(kernel, launch, &args) }
}

/// Whether the kernel for tensor cores takes these keys and values: in f16, whole pieces of 16 bytes and 16 columns.
fn on_tensor_cores(k: &View, v: &View) -> bool {
    [k, v].iter().all(|t| {
        let strides = t.row_stride % 8 == 0 && t.group_stride % 8 == 0;
        t.half == 1 && t.cols > 0 && t.cols % 16 == 0 && t.cols <= 256 && t.first % 16 == 0 && strides
    })
}

/// Queries below which each has a block of threads of its own, which share its keys: more of the card has work.
const FEW_QUERIES: usize = 16;

/// Whether each query has a block of threads of its own: because queries are few or choose their keys, or because more rows at once
/// do not fit the card's shared memory. `None` if a query by itself does not fit either.
fn by_query(width: usize, v_width: usize, few: bool, limit: usize) -> Option<bool> {
    [false, true].into_iter().find(|&query| (query || !few) && shared_f16(width, v_width, query) + FIXED <= limit)
}

/// Bytes that attention_f16.cu takes beside them.
const FIXED: usize = 2304;

/// Bytes of shared memory that a launch asks for, as attention_f16.cu lays them out.
pub(super) fn shared_f16(width: usize, v_width: usize, by_query: bool) -> usize {
    let (rows, keys) = if by_query { (16, 64) } else { (64, 32) };
    let tiles = 2 * (2 * rows * (width + 8) + keys * (width + 8) + keys * (v_width + 8));
    let results = if by_query { 4 * 4 * rows * v_width } else { 0 };
    tiles.max(results)
}

fn tensor_cores(
    device: &CudaDevice,
    state: &mut State,
    o: &Attention,
    args: &AttentionArgs,
    by_query: bool,
) -> Result<(), DeviceError> {
    let heads = o.q.groups / o.k.groups;
    let (width, v_width) = (o.q.cols, o.v.cols);
    let kernel = device.kernel(state, Source::attention_f16([width, v_width], by_query), "attention_f16")?;
    let (blocks, groups) = match by_query {
        true => (o.q.rows, heads.div_ceil(16)),
        false => ((o.q.rows * heads).div_ceil(64), 1),
    };
    let grid = [blocks as u32, args.k.groups, groups as u32];
    let launch = Launch { grid, block: 128, shared: shared_f16(width, v_width, by_query) as u32 };
    // SAFETY: `AttentionArgs` of attention_f16.cu; views are inside their buffers and `Op::check` has compared their shapes;
    // a key is read only below pos0 + T, which the caches hold.
    unsafe { device.driver.launch(kernel, launch, args) }
}

/// Bytes of shared memory that a block of threads needs, as attention.cu lays them out.
pub(super) fn shared(width: usize, v_width: usize, rows: usize) -> usize {
    let pitch = width.next_multiple_of(4) + 4;
    let words = rows * pitch + KEYS * pitch.max(v_width) + rows * (KEYS + 1) + rows * (KEYS + 1).div_ceil(32);
    4 * words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shared memory of an H200, of cards of 8.6 and 8.9, and next to none.
    #[test]
    fn what_does_not_fit_a_card_is_cut_smaller() {
        assert_eq!(by_query(256, 256, false, 232_448), Some(false));
        assert_eq!(by_query(256, 256, true, 232_448), Some(true));
        assert_eq!(by_query(256, 256, false, 101_376), Some(true));
        assert_eq!(by_query(128, 128, false, 101_376), Some(false));
        assert_eq!(by_query(256, 256, false, 49_152), None);
    }
}

//! Launches of attention.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use super::source::Source;
use crate::device::DeviceError;
use crate::op::Attention;

/// Keys in a tile, as attention.cu has it.
const KEYS: usize = 32;

pub(super) fn attention(device: &CudaDevice, state: &mut State, o: &Attention) -> Result<(), DeviceError> {
    #[repr(C)]
    struct Args {
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
    let select = o.select.as_ref();
    let (q, k, v) = (device.input(&o.q)?, device.input(&o.k)?, device.input(&o.v)?);
    let out = device.output(&o.out)?;
    if out.rows == 0 || out.cols == 0 || out.groups == 0 {
        return Ok(());
    }
    let ratio = select.map_or(1, |select| select.ratio);
    let args = Args {
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
    let fits = [64, 32, 16].into_iter().find(|&rows| shared(width, v_width, rows) <= limit);
    let rows = fits.ok_or_else(|| DeviceError::Unsupported {
        device: device.driver.id().into(),
        what: format!("attention heads of {width} and {v_width} columns"),
    })?;
    let defines =
        vec![("ATTENTION_WIDTH", width as u32), ("ATTENTION_V_WIDTH", v_width as u32), ("ATTENTION_ROWS", rows as u32)];
    let kernel = device.kernel(state, Source { file: "attention.cu", defines }, "attention")?;
    let all = o.q.rows * (o.q.groups / o.k.groups);
    let grid = [all.div_ceil(rows) as u32, k.groups, 1];
    let launch = Launch { grid, block: 256, shared: shared(width, v_width, rows) as u32 };
    // SAFETY: `AttentionArgs` of attention.cu; views are inside their buffers and `Op::check` has compared their shapes;
    // a key is read only below pos0 + T, which the caches hold.
    unsafe { device.driver.launch(kernel, launch, &args) }
}

/// Bytes of shared memory that a block of threads needs, as attention.cu lays them out.
fn shared(width: usize, v_width: usize, rows: usize) -> usize {
    let pitch = width.next_multiple_of(4) + 4;
    let words = rows * pitch + KEYS * pitch.max(v_width) + rows * (KEYS + 1) + rows * (KEYS + 1).div_ceil(32);
    4 * words
}

//! Launches of the QSA indexer.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use crate::device::DeviceError;
use crate::op::{MeanPool, SelectBlocks};

/// What the kernels are told of these launches (host.cuh).
pub(super) const HOST: &[(&str, usize)] =
    &[("POOL_ARGS", size_of::<PoolArgs>()), ("SELECT_ARGS", size_of::<SelectArgs>()), ("SELECT_KEYS", KEYS)];

/// Keys of a block of threads that makes scores, a lane for each.
const KEYS: usize = 32;

/// Its queries, a warp for each.
const QUERIES: usize = 8;

/// Most bytes of scores at a time: long chunks are done in parts.
const SCORES: usize = 256 << 20;

/// `PoolArgs` of select_blocks.cu.
#[repr(C)]
struct PoolArgs {
    x: View,
    out: View,
    ratio: u32,
}

pub(super) fn mean_pool(device: &CudaDevice, state: &mut State, o: &MeanPool) -> Result<(), DeviceError> {
    let ratio = u32::try_from(o.ratio).map_err(|_| device.driver.failed("a block beyond 32 bits"))?;
    let args = PoolArgs { x: device.input(&o.x)?, out: device.output(&o.out)?, ratio };
    let launch = Launch { grid: [args.out.rows, 1, 1], block: 128, shared: 0 };
    // SAFETY: `PoolArgs` of select_blocks.cu; views are inside their buffers and `Op::check` has compared their shapes.
    unsafe { device.launch(state, ("select_blocks.cu", "mean_pool"), launch, &args) }
}

/// `SelectArgs` of select_blocks.cu.
#[repr(C)]
struct SelectArgs {
    q: View,
    keys: View,
    out: View,
    scores: u64,
    pos0: u64,
    stride: u64,
    ratio: u32,
}

pub(super) fn select_blocks(device: &CudaDevice, state: &mut State, o: &SelectBlocks) -> Result<(), DeviceError> {
    let ratio = u32::try_from(o.ratio).map_err(|_| device.driver.failed("a block beyond 32 bits"))?;
    let shared = 4 * KEYS * (o.keys.cols + 1);
    if shared > device.machine().shared as usize {
        return Err(DeviceError::Unsupported {
            device: device.driver.id().into(),
            what: format!("block keys of {} columns", o.keys.cols),
        });
    }
    let (keys, blocks) = (device.input(&o.keys)?, (o.pos0 + o.q.rows) / o.ratio);
    let part = (SCORES / 4 / blocks.max(1)).clamp(1, o.q.rows.max(1));
    let scores = state.workspace.between.at_least(&device.driver, part * blocks * 4)?;
    for first in (0..o.q.rows).step_by(part) {
        let rows = first..(first + part).min(o.q.rows);
        let (q, out) = (device.input(&o.q.rows(rows.clone()))?, device.output(&o.out.rows(rows.clone()))?);
        let pos0 = (o.pos0 + first) as u64;
        let args = SelectArgs { q, keys, out, scores, pos0, stride: blocks as u64, ratio };
        let grid = [blocks.div_ceil(KEYS) as u32, q.rows.div_ceil(QUERIES as u32), 1];
        let choose = Launch { grid: [q.rows, 1, 1], block: 256, shared: 0 };
        // SAFETY: `SelectArgs` of select_blocks.cu; views are inside their buffers, keys as many as the last query's
        // complete blocks (`Op::check`), scores for each query and block.
        unsafe {
            let score = Launch { grid, block: 32 * QUERIES as u32, shared: shared as u32 };
            device.launch(state, ("select_blocks.cu", "block_scores"), score, &args)?;
            device.launch(state, ("select_blocks.cu", "select_blocks"), choose, &args)?;
        }
    }
    Ok(())
}

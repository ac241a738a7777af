//! Launches of the QSA indexer.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use crate::device::DeviceError;
use crate::op::{MeanPool, SelectBlocks};

/// Most bytes of scores at a time: long chunks are done in parts.
const SCORES: usize = 256 << 20;

pub(super) fn mean_pool(device: &CudaDevice, state: &mut State, o: &MeanPool) -> Result<(), DeviceError> {
    #[repr(C)]
    struct Args {
        x: View,
        out: View,
        ratio: u32,
    }
    let ratio = u32::try_from(o.ratio).map_err(|_| device.driver.failed("a block beyond 32 bits"))?;
    let args = Args { x: device.input(&o.x)?, out: device.output(&o.out)?, ratio };
    let launch = Launch { grid: [args.out.rows, 1, 1], block: 128, shared: 0 };
    // SAFETY: `PoolArgs` of select_blocks.cu; views are inside their buffers and `Op::check` has compared their shapes.
    unsafe { device.launch(state, ("select_blocks.cu", "mean_pool"), launch, &args) }
}

pub(super) fn select_blocks(device: &CudaDevice, state: &mut State, o: &SelectBlocks) -> Result<(), DeviceError> {
    #[repr(C)]
    struct Args {
        q: View,
        keys: View,
        out: View,
        scores: u64,
        pos0: u64,
        stride: u64,
        ratio: u32,
    }
    let ratio = u32::try_from(o.ratio).map_err(|_| device.driver.failed("a block beyond 32 bits"))?;
    let shared = 4 * 32 * (o.keys.cols + 1);
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
        let args = Args { q, keys, out, scores, pos0, stride: blocks as u64, ratio };
        let grid = [blocks.div_ceil(32) as u32, q.rows.div_ceil(8), 1];
        let choose = Launch { grid: [q.rows, 1, 1], block: 256, shared: 0 };
        // SAFETY: `SelectArgs` of select_blocks.cu; views are inside their buffers, keys as many as the last query's
        // complete blocks (`Op::check`), scores for each query and block.
        unsafe {
            let score = Launch { grid, block: 256, shared: shared as u32 };
            device.launch(state, ("select_blocks.cu", "block_scores"), score, &args)?;
            device.launch(state, ("select_blocks.cu", "select_blocks"), choose, &args)?;
        }
    }
    Ok(())
}

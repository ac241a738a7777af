//! The QSA indexer: block keys, and the choice of blocks.

use super::device::{State, WgpuDevice};
use super::shader::{File, Kernel};
use crate::device::DeviceError;
use crate::op::{MeanPool, SelectBlocks};
use crate::tensor::{DType, Tensor};

pub(super) fn mean_pool(device: &WgpuDevice, state: &mut State, o: &MeanPool) -> Result<(), DeviceError> {
    let core = device.core();
    let call = device.call(Kernel::plain(File::SelectBlocks, "mean_pool"));
    let call = call.input(&o.x)?.optional(None)?.output(&o.out)?.buffer(&core.nothing);
    let parameters = [("ratio", core.word("rows in a block", o.ratio)?), ("heads", 0), ("pos0", 0), ("blocks", 0)];
    call.parameters(&parameters).threads(state, o.out.len())
}

pub(super) fn select_blocks(device: &WgpuDevice, state: &mut State, o: &SelectBlocks) -> Result<(), DeviceError> {
    let (core, tokens) = (device.core(), o.q.rows);
    if o.out.is_empty() {
        return Ok(());
    }
    let blocks = (o.pos0 + tokens) / o.ratio;
    let scores = state.scratch(core, 0, tokens * blocks * 4)?;
    let scores = core.window(&Tensor::dense(scores, DType::U32, tokens, 1, blocks), true)?.0;
    let parameters = [
        ("ratio", core.word("tokens in a block", o.ratio)?),
        ("heads", core.word("a number of heads", o.q.groups)?),
        ("pos0", core.word("a position", o.pos0 + tokens)? - tokens as u32),
        ("blocks", core.word("a number of blocks", blocks)?),
    ];
    let call = |entry| {
        let call = device.call(Kernel::plain(File::SelectBlocks, entry)).input(&o.q)?.input(&o.keys)?;
        Ok::<_, DeviceError>(call.output(&o.out)?.buffer(&scores).parameters(&parameters))
    };
    let work = (tokens * blocks) as u64;
    let dots = work * (o.q.groups * o.q.cols) as u64;
    call("block_scores")?.work(dots).threads(state, tokens * blocks)?;
    // A comparison for each bit of a score, and a few more.
    call("select_blocks")?.parameters(&[("total", 0)]).work(36 * work).groups(state, tokens)
}

//! Launches of the plan: which kernels, by variant and size.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use crate::device::DeviceError;
use crate::op::Plan;

/// A way to compute the plan; they differ in how, never in a byte of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanVariant {
    /// The fastest of the others for the number of entries.
    #[default]
    Auto,
    /// One launch; every block of threads counts all entries itself.
    Alone,
    /// One launch; blocks of threads count in clusters of four. From compute capability 9.0; [`Alone`](Self::Alone) before.
    Clustered,
    /// Two launches: count, then place; every block adds up the counts of the others.
    Two,
    /// Three launches: count, add up, place.
    Three,
    /// The starting point: count, scan, clear, and a rank by looking at every earlier entry of the block.
    Serial,
    /// Count, scan, and a rank by counters of four bits.
    Packed,
    /// Count and scan as one block of threads, then place.
    Fused,
}

impl PlanVariant {
    /// Every variant that is not a choice among others.
    pub const ALL: [Self; 7] =
        [Self::Alone, Self::Clustered, Self::Two, Self::Three, Self::Serial, Self::Packed, Self::Fused];

    /// The name a person types.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Alone => "alone",
            Self::Clustered => "clustered",
            Self::Two => "two",
            Self::Three => "three",
            Self::Serial => "serial",
            Self::Packed => "packed",
            Self::Fused => "fused",
        }
    }

    /// What is run for so many blocks of 1024 entries, with or without clusters of thread blocks.
    pub fn resolve(self, blocks: usize, clusters: bool) -> Self {
        match self {
            Self::Clustered if !clusters => Self::Alone,
            Self::Auto if blocks <= ALONE_BLOCKS => Self::Alone,
            Self::Auto if blocks <= TWO_BLOCKS || blocks <= MANY_BLOCKS && !clusters => Self::Two,
            Self::Auto if blocks <= MANY_BLOCKS => Self::Clustered,
            Self::Auto => Self::Three,
            chosen => chosen,
        }
    }
}

/// Blocks up to which counting everything in every block is faster than a second launch: on an H200, 7.2 us against 7.2
/// at 10 blocks, 8.5 against 7.8 at 20.
const ALONE_BLOCKS: usize = 10;

/// Blocks up to which a second launch is faster than clusters: 7.8 us against 8.2 at 20 blocks, 15.4 against 11.0 at 80.
const TWO_BLOCKS: usize = 24;

/// Blocks up to which adding up everybody's counts in every block is faster than a launch for it: 11.0 or 15.4 us against
/// 22.2 at 80 blocks; the work of the one grows with the square of the blocks, that of the other with the blocks.
const MANY_BLOCKS: usize = 192;

/// Threads of a block of entries.
const BLOCK: u32 = argon_plan::BLOCK as u32;

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    ids: u64,
    weights: u64,
    bcnt: u64,
    boff: u64,
    eoff: u64,
    tiles: u64,
    stok: u64,
    sw: u64,
    pos: u64,
    meta: u64,
    totals: u64,
    left: u64,
    entries: u32,
    top_k: u32,
    experts: u32,
    tile: u32,
    blocks: u32,
}

pub(super) fn plan(device: &CudaDevice, state: &mut State, o: &Plan) -> Result<(), DeviceError> {
    let (p, shape) = (&o.plan, o.plan.shape);
    let (experts, blocks) = (shape.experts() as u32, shape.blocks() as u32);
    let address = |t| device.output(t).map(|view| view.first);
    let totals = state.workspace.between.at_least(&device.driver, 4 * (shape.experts() + 2 * shape.blocks().max(1)))?;
    let args = Args {
        ids: device.input(&o.ids)?.first,
        weights: device.input(&o.weights)?.first,
        bcnt: address(&p.bcnt)?,
        boff: address(&p.boff)?,
        eoff: address(&p.eoff)?,
        tiles: address(&p.tiles)?,
        stok: address(&p.stok)?,
        sw: address(&p.sw)?,
        pos: address(&p.pos)?,
        meta: address(&p.meta)?,
        totals,
        left: totals + 4 * u64::from(experts),
        entries: shape.entries() as u32,
        top_k: shape.top_k() as u32,
        experts,
        tile: shape.tile() as u32,
        blocks,
    };
    let mut run = |name: &'static str, blocks: u32, block: u32, words: u32| {
        let launch = Launch { grid: [blocks, 1, 1], block, shared: 4 * words };
        // SAFETY: `PlanArgs` of plan.cu; every buffer is as long as the shape says (`Op::check`), and kernels write no
        // row that the shape has not.
        unsafe { device.launch(state, ("plan.cu", name), launch, &args) }
    };
    // More than there are entries for, to share the writing; whole clusters.
    let all = (blocks + 1).max(16).next_multiple_of(4);
    let (counted, scanned, counters) = (experts, 2 * experts + 1, 8 * experts);
    let placed = 3 * experts + 1 + counters;
    let most = (device.machine().shared - 8192) / 4;
    let mut variant = device.options.plan.resolve(shape.blocks(), device.clusters());
    if variant == PlanVariant::Clustered && placed + 3 * experts > most {
        variant = PlanVariant::Two;
    }
    if placed > most {
        variant = PlanVariant::Serial; // counters for so many experts do not fit
    }
    if scanned + experts > most {
        return Err(DeviceError::Unsupported {
            device: device.driver.id().into(),
            what: format!("a plan of {experts} experts"),
        });
    }
    match variant {
        PlanVariant::Auto | PlanVariant::Alone => run("plan_alone", all, BLOCK, placed),
        PlanVariant::Clustered => run("plan_clustered", all, BLOCK, placed + 3 * experts),
        PlanVariant::Two => {
            run("plan_hist", blocks, BLOCK, counted)?;
            run("plan_place", all, BLOCK, placed)
        }
        PlanVariant::Three => {
            run("plan_hist", blocks, BLOCK, counted)?;
            run("plan_sums", experts.div_ceil(128), 128, 0)?;
            run("plan_place_summed", all, BLOCK, placed)
        }
        PlanVariant::Serial => {
            run("plan_hist", blocks, BLOCK, counted)?;
            run("plan_scan_bare", 1, BLOCK, scanned)?;
            run("plan_clear", 2 * device.machine().processors, BLOCK, 0)?;
            run("plan_place_serial", blocks, BLOCK, 0)
        }
        PlanVariant::Packed => {
            run("plan_hist", blocks, BLOCK, counted)?;
            run("plan_scan", 1, BLOCK, scanned)?;
            run("plan_place_packed", blocks, BLOCK, counters)
        }
        PlanVariant::Fused => {
            run("plan_hist_scan", 1, BLOCK, scanned + experts)?;
            run("plan_place_match", blocks, BLOCK, counters)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_for_the_report_s_sizes() {
        use PlanVariant::{Alone, Auto, Clustered, Three, Two};
        // T of 128, 512, 1024, 2048, 8192 and 32768 with 10 experts each.
        let blocks = [2, 5, 10, 20, 80, 320];
        assert_eq!(blocks.map(|b| Auto.resolve(b, true)), [Alone, Alone, Alone, Two, Clustered, Three]);
        assert_eq!(blocks.map(|b| Auto.resolve(b, false)), [Alone, Alone, Alone, Two, Two, Three]);
        assert_eq!(Clustered.resolve(80, false), Alone);
        assert_eq!(Three.resolve(1, true), Three);
    }
}

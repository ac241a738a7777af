//! Launches of the plan: which kernels, by variant and size.

use argon_plan::Shape;

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
    /// Two launches: count, then place; every block of threads adds up the counts of all.
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
    pub const ALL: [Self; 6] = [Self::Alone, Self::Two, Self::Three, Self::Serial, Self::Packed, Self::Fused];

    /// The name a person types.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Alone => "alone",
            Self::Two => "two",
            Self::Three => "three",
            Self::Serial => "serial",
            Self::Packed => "packed",
            Self::Fused => "fused",
        }
    }

    /// What is run on a card whose blocks of threads may have so many bytes of shared memory: what was named, or else the
    /// fastest of those that there is room for.
    ///
    /// # Errors
    /// [`NoRoom`] for one that was named and has none.
    fn resolve(self, blocks: usize, experts: usize, shared: usize) -> Result<Self, NoRoom> {
        let fits = |variant: &Self| variant.words(experts) * 4 + SUMS <= shared;
        let limits = [(ALONE_BLOCKS, Self::Alone), (TWO_BLOCKS, Self::Two)];
        let fastest = limits.into_iter().find(|&(most, _)| blocks <= most).map_or(Self::Three, |(_, variant)| variant);
        let choices = match self {
            // In the end the one that keeps least in shared memory.
            Self::Auto => vec![fastest, Self::Two, Self::Serial],
            named => vec![named],
        };
        choices.into_iter().find(fits).ok_or(NoRoom { variant: self.name(), experts })
    }

    /// Words of shared memory of the kernel that needs most, as plan.cu lays them out.
    fn words(self, experts: usize) -> usize {
        match self {
            Self::Auto | Self::Alone => alone(experts),
            Self::Two | Self::Three => placed(experts),
            Self::Serial => laid_out(experts).max(argon_plan::BLOCK),
            // Beside the ids of a block of entries.
            Self::Packed => laid_out(experts).max(COUNTERS * experts + argon_plan::BLOCK),
            Self::Fused => (laid_out(experts) + experts).max(COUNTERS * experts),
        }
    }
}

/// Counters for so many experts have no room in shared memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a plan of {experts} experts by variant {variant}: the card's shared memory is too small")]
struct NoRoom {
    /// The variant's name.
    variant: &'static str,
    /// How many there are.
    experts: usize,
}

/// Bytes of sums of plan.cu's kernels, and the kilobyte that the driver takes.
const SUMS: usize = 2048;

/// Words of shared memory where experts are laid out: the row, the entries and the first tile of each.
fn laid_out(experts: usize) -> usize {
    3 * experts + 1
}

/// Those where ranks are found as well: entries before, and counters.
fn placed(experts: usize) -> usize {
    laid_out(experts) + experts + THREADS as usize / 128 * experts
}

/// Those where every block of threads counts everything: entries before, at and behind it.
fn alone(experts: usize) -> usize {
    placed(experts) + 3 * experts
}

/// Blocks of entries up to which counting everything in every block of threads is faster than a second launch: on an H200,
/// 2.7 us against 3.6 at 2 blocks, 3.1 against 3.7 at 3, 4.0 against 3.7 at 5.
const ALONE_BLOCKS: usize = 4;

/// Blocks up to which adding up everybody's counts in every block of threads is faster than a launch for it: 10.6 us against
/// 11.6 at 80 blocks, 14.5 against 14.2 at 100, 65 against 36 at 320.
const TWO_BLOCKS: usize = 96;

/// Threads of a block of entries, where there is one for each.
const BLOCK: u32 = argon_plan::BLOCK as u32;

/// Threads of a block that places entries: more blocks than multiprocessors of an H200 from 33 000 entries on.
const THREADS: u32 = 256;

/// Blocks of those that are worth having for their warps alone, one for each expert: more are as many as an H200 has multiprocessors.
const WRITERS: u32 = 128;

/// Words of counters that an expert has in a block of 1024 threads.
const COUNTERS: usize = 8;

/// What the kernels are told of these launches (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[
    ("PLAN_ARGS", size_of::<PlanArgs>()),
    ("PLAN_BLOCK", argon_plan::BLOCK),
    ("PLAN_THREADS", THREADS as usize),
    ("PLAN_COUNTERS", COUNTERS),
    ("META_TILES", argon_plan::meta::TILES),
    ("META_ROWS", argon_plan::meta::ROWS),
    ("META_WORDS", argon_plan::meta::WORDS),
];

/// `PlanArgs` of plan.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct PlanArgs {
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
    pairs: u64,
    totals: u64,
    left: u64,
    entries: u32,
    top_k: u32,
    experts: u32,
    tile: u32,
    blocks: u32,
}

/// Launches all [`steps`], or one of them alone: what that reads is of a whole plan before it.
pub(super) fn plan(device: &CudaDevice, state: &mut State, o: &Plan, alone: Option<usize>) -> Result<(), DeviceError> {
    let (p, shape) = (&o.plan, o.plan.shape);
    let (experts, blocks) = (shape.experts() as u32, shape.blocks() as u32);
    let address = |t| device.output(t).map(|view| view.first);
    let words = shape.experts() + (shape.experts() + 2) * shape.blocks();
    let totals = state.workspace.between.at_least(&device.driver, 4 * words)?;
    let left = totals + 4 * u64::from(experts);
    let args = PlanArgs {
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
        pairs: left + 8 * u64::from(blocks),
        totals,
        left,
        entries: shape.entries() as u32,
        top_k: shape.top_k() as u32,
        experts,
        tile: shape.tile() as u32,
        blocks,
    };
    for (number, step) in steps(device, &shape)?.into_iter().enumerate() {
        if alone.is_some_and(|alone| alone != number) {
            continue;
        }
        let launch = Launch { grid: [step.blocks, 1, 1], block: step.threads, shared: 4 * step.words as u32 };
        // SAFETY: `PlanArgs` of plan.cu; every buffer is as long as the shape says (`Op::check`), and kernels write no
        // row that the shape has not.
        unsafe { device.launch(state, ("plan.cu", step.kernel), launch, &args)? };
    }
    Ok(())
}

/// A launch of a plan.
pub(super) struct Step {
    /// What it does, as `argon bench plan` calls it.
    pub stage: &'static str,
    kernel: &'static str,
    blocks: u32,
    threads: u32,
    /// Of shared memory.
    words: usize,
}

/// The launches of a plan of this shape, in their order.
///
/// # Errors
/// [`DeviceError::Unsupported`] for a variant that the card has no room for.
pub(super) fn steps(device: &CudaDevice, shape: &Shape) -> Result<Vec<Step>, DeviceError> {
    let variant = device.options.plan.resolve(shape.blocks(), shape.experts(), device.machine().shared as usize);
    let variant = variant
        .map_err(|none| DeviceError::Unsupported { device: device.driver.id().into(), what: none.to_string() })?;
    let (blocks, experts) = (shape.blocks() as u32, shape.experts());
    let step = |stage, kernel, blocks, words| Step { stage, kernel, blocks, threads: BLOCK, words };
    let hist = || step("hist", "plan_hist", blocks, experts.next_multiple_of(2));
    // One more than there are entries for: it writes the sizes.
    let writers = (experts as u32).div_ceil(THREADS / 32).min(WRITERS);
    let all = ((shape.entries() as u32).div_ceil(THREADS) + 1).max(writers);
    let place = |stage, kernel, words| Step { stage, kernel, blocks: all, threads: THREADS, words };
    let (scanned, counters) = (laid_out(experts), COUNTERS * experts);
    Ok(match variant {
        PlanVariant::Auto | PlanVariant::Alone => vec![place("plan", "plan_alone", alone(experts))],
        PlanVariant::Two => vec![hist(), place("place", "plan_place", placed(experts))],
        PlanVariant::Three => vec![
            hist(),
            Step { threads: 128, ..step("scan", "plan_sums", (experts as u32).div_ceil(128), 0) },
            place("place", "plan_place_summed", placed(experts)),
        ],
        PlanVariant::Serial => vec![
            hist(),
            step("scan", "plan_scan_bare", 1, scanned),
            step("clear", "plan_clear", 2 * device.machine().processors, 0),
            step("place", "plan_place_serial", blocks, 0),
        ],
        PlanVariant::Packed => {
            vec![hist(), step("scan", "plan_scan", 1, scanned), step("place", "plan_place_packed", blocks, counters)]
        }
        PlanVariant::Fused => vec![
            step("hist_scan", "plan_hist_scan", 1, scanned + experts),
            step("place", "plan_place_match", blocks, counters),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shared memory of an H200, and of a card with 99 KB.
    const H200: usize = 232_448;
    const SMALL: usize = 101_376;

    #[test]
    fn the_choice_for_the_report_s_sizes() {
        use PlanVariant::{Alone, Auto, Three, Two};
        // T of 128, 512, 1024, 2048, 8192 and 32768 with 10 experts each.
        let chosen = [2, 5, 10, 20, 80, 320].map(|blocks| Auto.resolve(blocks, 512, H200).unwrap());
        assert_eq!(chosen, [Alone, Two, Two, Two, Two, Three]);
    }

    #[test]
    fn only_auto_is_replaced_where_it_does_not_fit() {
        use PlanVariant::{Alone, Auto, Fused, Serial, Three, Two};
        // Alone keeps 9 words of each expert, two and three launches 6, the others up to 8, serial 3.
        assert_eq!(Auto.resolve(1, 6000, H200), Ok(Alone));
        assert_eq!(Auto.resolve(1, 4096, SMALL), Ok(Two));
        assert_eq!(Auto.resolve(1, 5000, SMALL), Ok(Serial));
        for (variant, experts) in [(Alone, 4096), (Two, 5000), (Three, 5000), (Fused, 9000)] {
            assert_eq!(variant.resolve(1, experts, SMALL), Err(NoRoom { variant: variant.name(), experts }));
        }
        assert_eq!(Auto.resolve(1, 40_000, H200), Err(NoRoom { variant: "auto", experts: 40_000 }));
    }

    #[test]
    fn what_was_named_is_what_runs() {
        for variant in PlanVariant::ALL {
            for blocks in [1, 20, 80, 320] {
                assert_eq!(variant.resolve(blocks, 512, H200), Ok(variant));
            }
        }
    }
}

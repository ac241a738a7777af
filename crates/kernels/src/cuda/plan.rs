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
    /// One launch; blocks of threads count in clusters of four. From compute capability 9.0.
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

    /// What is run on a card: what was named, or else the fastest of those that the card's shared memory has room for.
    ///
    /// # Errors
    /// [`UnfitVariant`] for one that was named and has no room, or needs what the code may not use.
    fn resolve(self, blocks: usize, experts: usize, card: &Card) -> Result<Self, UnfitVariant> {
        let fastest = match (blocks, card.clusters) {
            (..=ALONE_BLOCKS, _) => Self::Alone,
            (..=TWO_BLOCKS, _) | (..=MANY_BLOCKS, false) => Self::Two,
            (..=MANY_BLOCKS, true) => Self::Clustered,
            _ => Self::Three,
        };
        let unfit = |variant: Self| variant.unfit(experts, card);
        match self {
            Self::Auto => {
                // In the end the one that keeps least in shared memory.
                let choices = [fastest, Self::Two, Self::Serial];
                choices.into_iter().find(|&choice| unfit(choice).is_none()).ok_or_else(|| self.too_many(experts))
            }
            named => unfit(named).map_or(Ok(named), Err),
        }
    }

    /// Why the variant cannot be had.
    fn unfit(self, experts: usize, card: &Card) -> Option<UnfitVariant> {
        if self == Self::Clustered && !card.clusters {
            return Some(UnfitVariant::Clusters);
        }
        // What kernels have beside it: the ids of a block of entries where ranks are found by looking, and some sums.
        let ids = if matches!(self, Self::Serial | Self::Packed) { argon_plan::BLOCK * 4 } else { 0 };
        let fits = self.words(experts) * 4 + ids + SUMS <= card.shared;
        (!fits).then(|| self.too_many(experts))
    }

    fn too_many(self, experts: usize) -> UnfitVariant {
        UnfitVariant::Experts { variant: self.name(), experts }
    }

    /// Words of shared memory of the kernel that needs most, as plan.cu lays them out.
    fn words(self, experts: usize) -> usize {
        match self {
            Self::Auto | Self::Alone | Self::Two | Self::Three => placed(experts),
            Self::Clustered => placed(experts) + 3 * experts,
            Self::Serial => scanned(experts),
            Self::Packed => scanned(experts).max(COUNTERS * experts),
            Self::Fused => (scanned(experts) + experts).max(COUNTERS * experts),
        }
    }
}

/// What a variant is chosen by, and refused for.
#[derive(Clone, Copy, Debug)]
struct Card {
    /// Shared memory that a block of threads may have, in bytes.
    shared: usize,
    /// Whether the code may use clusters of thread blocks.
    clusters: bool,
}

/// Why a plan is not computed by the variant that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum UnfitVariant {
    /// Code for cards before compute capability 9.0.
    #[error("a plan by variant clustered, which needs compute capability 9.0")]
    Clusters,
    /// Counters for so many experts have no room.
    #[error("a plan of {experts} experts by variant {variant}: the card's shared memory is too small")]
    Experts {
        /// The variant's name.
        variant: &'static str,
        /// How many there are.
        experts: usize,
    },
}

/// Bytes of sums of plan.cu's kernels, and the kilobyte that the driver takes.
const SUMS: usize = 2048;

/// Words of shared memory of a kernel that scans counts: they and the first tiles.
fn scanned(experts: usize) -> usize {
    2 * experts + 1
}

/// Words of shared memory of a kernel that scans and ranks: counts of other blocks as well, and counters.
fn placed(experts: usize) -> usize {
    scanned(experts) + experts + COUNTERS * experts
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

/// Words of counters that an expert has in a block of entries.
const COUNTERS: usize = 8;

/// Blocks of threads of a cluster.
const CLUSTER: u32 = 4;

/// What the kernels are told of these launches (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[
    ("PLAN_ARGS", size_of::<PlanArgs>()),
    ("PLAN_BLOCK", argon_plan::BLOCK),
    ("PLAN_CLUSTER", CLUSTER as usize),
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
    let totals = state.workspace.between.at_least(&device.driver, 4 * (shape.experts() + 2 * shape.blocks().max(1)))?;
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
        totals,
        left: totals + 4 * u64::from(experts),
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
    let card = Card { shared: device.machine().shared as usize, clusters: device.clusters() };
    let variant = device.options.plan.resolve(shape.blocks(), shape.experts(), &card);
    let variant = variant
        .map_err(|unfit| DeviceError::Unsupported { device: device.driver.id().into(), what: unfit.to_string() })?;
    let blocks = shape.blocks() as u32;
    // More than there are entries for, to share the writing; whole clusters.
    let all = (blocks + 1).max(16).next_multiple_of(CLUSTER);
    let (counted, counters) = (shape.experts(), COUNTERS * shape.experts());
    let (scanned, placed) = (scanned(shape.experts()), placed(shape.experts()));
    let step = |stage, kernel, blocks, words| Step { stage, kernel, blocks, threads: BLOCK, words };
    let hist = || step("hist", "plan_hist", blocks, counted);
    Ok(match variant {
        PlanVariant::Auto | PlanVariant::Alone => vec![step("plan", "plan_alone", all, placed)],
        PlanVariant::Clustered => vec![step("plan", "plan_clustered", all, placed + 3 * counted)],
        PlanVariant::Two => vec![hist(), step("place", "plan_place", all, placed)],
        PlanVariant::Three => vec![
            hist(),
            Step { threads: 128, ..step("scan", "plan_sums", (counted as u32).div_ceil(128), 0) },
            step("place", "plan_place_summed", all, placed),
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
            step("hist_scan", "plan_hist_scan", 1, scanned + counted),
            step("place", "plan_place_match", blocks, counters),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An H200, with and without clusters; and a card with 99 KB.
    const H200: Card = Card { shared: 232_448, clusters: true };
    const OLDER: Card = Card { clusters: false, ..H200 };
    const SMALL: Card = Card { shared: 101_376, clusters: false };

    #[test]
    fn the_choice_for_the_report_s_sizes() {
        use PlanVariant::{Alone, Auto, Clustered, Three, Two};
        // T of 128, 512, 1024, 2048, 8192 and 32768 with 10 experts each.
        let blocks = [2, 5, 10, 20, 80, 320];
        let chosen = |card: &Card| blocks.map(|b| Auto.resolve(b, 512, card).unwrap());
        assert_eq!(chosen(&H200), [Alone, Alone, Alone, Two, Clustered, Three]);
        assert_eq!(chosen(&OLDER), [Alone, Alone, Alone, Two, Two, Three]);
    }

    #[test]
    fn only_auto_is_replaced_where_it_does_not_fit() {
        use PlanVariant::{Alone, Auto, Clustered, Fused, Serial, Two};
        // Clusters keep 14 words of each expert, the others 11, a scan 2 or 3.
        assert_eq!(Auto.resolve(80, 4096, &H200), Ok(Clustered));
        assert_eq!(Auto.resolve(80, 5000, &H200), Ok(Two));
        assert_eq!(Auto.resolve(1, 4096, &SMALL), Ok(Serial));
        assert_eq!(Alone.resolve(1, 5000, &H200), Ok(Alone));
        for (variant, experts, card) in
            [(Clustered, 5000, H200), (Alone, 4096, SMALL), (Two, 4096, SMALL), (Fused, 9000, SMALL)]
        {
            let refused = UnfitVariant::Experts { variant: variant.name(), experts };
            assert_eq!(variant.resolve(1, experts, &card), Err(refused));
        }
        assert_eq!(Clustered.resolve(80, 512, &OLDER), Err(UnfitVariant::Clusters));
        assert_eq!(Auto.resolve(1, 40_000, &H200), Err(UnfitVariant::Experts { variant: "auto", experts: 40_000 }));
    }

    #[test]
    fn what_was_named_is_what_runs() {
        for variant in PlanVariant::ALL {
            for blocks in [1, 20, 80, 320] {
                assert_eq!(variant.resolve(blocks, 512, &H200), Ok(variant));
            }
        }
    }
}

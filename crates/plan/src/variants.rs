//! The ways to compute a plan. They differ in how, never in a byte of what.
//!
//! A module holds the stages in which its variant departs from [`stages`]; [`build`] shows which.

pub mod fused;
pub mod packed;
pub mod parallel;
pub mod serial;

use crate::buffers::Buffers;
use crate::error::Error;
use crate::shape::Shape;
use crate::stages;

/// A way to compute the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The faster of `Running` and `Parallel` for the shape and the thread pool at hand.
    #[default]
    Auto,
    /// Where the others come from. A pass of its own for the padding, and a rank by looking at every
    /// earlier entry: [`serial`].
    Serial,
    /// A rank by counters of 32 entries each, packed eight to a word: [`packed`].
    Packed,
    /// As `Running`, with `hist` and `scan` as one stage: [`fused`].
    Fused,
    /// One thread; each expert's rows are handed out by a running counter: all of [`stages`].
    Running,
    /// As `Running`, with the work shared out on the current rayon pool: [`parallel`].
    Parallel,
}

/// Entries from which `Auto` is `Parallel`. Measured on two cores of an AMD EPYC, 512 experts, best times
/// inside the pool: 240 to 192 us for 81,920 entries, 2057 to 1286 us for 655,360. A caller outside the
/// pool pays some 30 us to wake it, which eats the gain below 100,000.
const PARALLEL_ENTRIES: usize = 1 << 17;

impl Variant {
    /// Every variant that is not a choice among others.
    pub const ALL: [Self; 5] = [Self::Serial, Self::Packed, Self::Fused, Self::Running, Self::Parallel];

    /// The name a person types.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Serial => "serial",
            Self::Packed => "packed",
            Self::Fused => "fused",
            Self::Running => "running",
            Self::Parallel => "parallel",
        }
    }

    /// Whether it is computed without a thread pool, whatever the number of its threads.
    pub fn is_serial(self, shape: &Shape) -> bool {
        match self {
            Self::Auto => shape.entries() < PARALLEL_ENTRIES,
            Self::Parallel => false,
            Self::Serial | Self::Packed | Self::Fused | Self::Running => true,
        }
    }

    /// The variant that [`Auto`](Self::Auto) stands for; any other stands for itself.
    pub fn resolve(self, shape: &Shape) -> Self {
        match self {
            Self::Auto if self.is_serial(shape) => Self::Running,
            Self::Auto if rayon::current_num_threads() < 2 => Self::Running,
            Self::Auto => Self::Parallel,
            chosen => chosen,
        }
    }
}

/// Computes the plan of `ids` `[T*K]` and `weights` `[T*K]` (raw bits) into `out`.
///
/// # Errors
/// [`Error::InputLength`] and [`Error::BufferTooSmall`] for slices that do not fit the shape;
/// [`Error::IdOutOfRange`] for the first id outside -1..=E-1. Nothing is written then.
pub fn build(
    variant: Variant,
    shape: &Shape,
    ids: &[i32],
    weights: &[u32],
    out: &mut Buffers<'_>,
) -> Result<(), Error> {
    check_ids(shape, ids)?;
    build_lenient(variant, shape, ids, weights, out)
}

/// As [`build`], with a device's answer to a bad id: the entry is skipped and counted in
/// [`meta::REJECTED`](crate::meta::REJECTED).
///
/// # Errors
/// [`Error::InputLength`] and [`Error::BufferTooSmall`]. Nothing is written then.
pub fn build_lenient(
    variant: Variant,
    shape: &Shape,
    ids: &[i32],
    weights: &[u32],
    out: &mut Buffers<'_>,
) -> Result<(), Error> {
    for (name, found) in [("ids", ids.len()), ("weights", weights.len())] {
        if found != shape.entries() {
            return Err(Error::InputLength { name, found, entries: shape.entries() });
        }
    }
    out.check(shape)?;
    match variant.resolve(shape) {
        Variant::Serial => {
            stages::hist(shape, ids, out);
            serial::scan(shape, out);
            serial::clear(out);
            serial::place(shape, ids, weights, out);
        }
        Variant::Packed => {
            stages::hist(shape, ids, out);
            stages::scan(shape, out);
            packed::place(shape, ids, weights, out);
        }
        Variant::Fused => {
            fused::hist_scan(shape, ids, out);
            stages::place(shape, ids, weights, out);
        }
        Variant::Auto | Variant::Running => {
            stages::hist(shape, ids, out);
            stages::scan(shape, out);
            stages::place(shape, ids, weights, out);
        }
        Variant::Parallel => {
            parallel::hist(shape, ids, out);
            stages::scan(shape, out);
            parallel::place(shape, ids, weights, out);
        }
    }
    Ok(())
}

/// Checks that every id is -1 or an expert.
///
/// # Errors
/// [`Error::IdOutOfRange`] names the first that is neither.
pub fn check_ids(shape: &Shape, ids: &[i32]) -> Result<(), Error> {
    let experts = shape.experts();
    let known = |id| id == -1 || stages::expert_of(id, experts).is_some();
    match ids.iter().position(|&id| !known(id)) {
        Some(entry) => Err(Error::IdOutOfRange { entry, id: ids[entry], experts }),
        None => Ok(()),
    }
}

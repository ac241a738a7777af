//! The ways to compute a plan. They differ in how, never in a byte of what.

mod parallel;

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
    /// One thread; each expert's rows are handed out by a running counter: the functions of
    /// [`stages`](crate::stages).
    Running,
    /// As `Running`, over blocks and rows in parallel on the current rayon pool.
    Parallel,
}

/// Entries from which `Parallel` pays.
const PARALLEL_ENTRIES: usize = 1 << 16;

impl Variant {
    /// Every variant that is not a choice among others.
    pub const ALL: [Self; 2] = [Self::Running, Self::Parallel];

    /// The name a person types.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Running => "running",
            Self::Parallel => "parallel",
        }
    }

    /// The variant that [`Auto`](Self::Auto) stands for; any other stands for itself.
    pub fn resolve(self, shape: &Shape) -> Self {
        match self {
            Self::Auto if shape.entries() < PARALLEL_ENTRIES => Self::Running,
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
            return Err(Error::InputLength {
                name,
                found,
                entries: shape.entries(),
            });
        }
    }
    out.check(shape)?;
    match variant.resolve(shape) {
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
        Some(entry) => Err(Error::IdOutOfRange {
            entry,
            id: ids[entry],
            experts,
        }),
        None => Ok(()),
    }
}

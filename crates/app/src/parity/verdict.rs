//! What a comparison of logits must hold, with the reason for each number, and whether it does.

use argon_engine::compare::Comparison;
use argon_kernels::Precision;

use super::directory::{Arithmetic, Reference};

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Every logit within this distance, and the likeliest token the same at every position.
    Close(f64),
    /// Every logit within this distance; close calls may go the other way.
    Near(f64),
    /// The median over the positions of the KL divergence at most this.
    MedianKl(f64),
    /// Nothing: too few positions for a median to mean something.
    Shown,
}

/// Both sides compute in f32 on the same weights. Outside engines agree with each other within 6.4e-5; a wrong epsilon
/// in a norm alone shows as 1.4e-4.
const SAME_ARITHMETIC: f64 = 1e-4;

/// One side rounds its cached keys and values to f16: 6.1e-3 between outside engines.
const F16_CACHE: f64 = 2e-2;

/// Coarser operands on either side: a single expert chosen otherwise moves a position by about one logit, so only the
/// median says something. Between outside engines at most 1.8e-3.
const COARSE: f64 = 5e-3;

/// The same for families that are more sensitive, 8.4e-3 between outside engines.
const COARSE_SENSITIVE: f64 = 2e-2;
const SENSITIVE: [&str; 2] = ["qwen3next", "qwen35moe"];

/// A median of fewer positions is noise.
const FEWEST_POSITIONS: usize = 16;

impl Tolerance {
    /// What must hold between `reference` and a run of ours.
    pub fn between(reference: &Reference, run: &Run, architecture: &str, positions: usize) -> Tolerance {
        let same_arithmetic = reference.arithmetic == Arithmetic::F32 && run.precision == Precision::F32;
        match same_arithmetic {
            true if reference.kv_f16 || run.kv_f16 => Tolerance::Near(F16_CACHE),
            true => Tolerance::Close(SAME_ARITHMETIC),
            false if positions < FEWEST_POSITIONS => Tolerance::Shown,
            false if SENSITIVE.contains(&architecture) => Tolerance::MedianKl(COARSE_SENSITIVE),
            false => Tolerance::MedianKl(COARSE),
        }
    }

    /// Whether `found` holds; `None` where nothing must.
    pub fn holds(self, found: &Comparison) -> Option<bool> {
        // Only a number on one side that is none on the other is infinitely far: that is never agreement.
        let finite = found.max_abs.is_finite();
        match self {
            Tolerance::Close(limit) => Some(found.max_abs < limit && found.same_argmax == found.rows),
            Tolerance::Near(limit) => Some(found.max_abs < limit),
            Tolerance::MedianKl(limit) => Some(finite && found.median_kl < limit),
            Tolerance::Shown => None,
        }
    }
}

impl std::fmt::Display for Tolerance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tolerance::Close(limit) => write!(f, "max < {limit:.0e}, argmax"),
            Tolerance::Near(limit) => write!(f, "max < {limit:.0e}"),
            Tolerance::MedianKl(limit) => write!(f, "median KL < {limit:.0e}"),
            Tolerance::Shown => f.write_str("-"),
        }
    }
}

/// How we compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// The precision mode.
    pub precision: Precision,
    /// Whether keys and values are cached as f16.
    pub kv_f16: bool,
    /// Tokens that go through the model at once.
    pub chunk: usize,
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cache = if self.kv_f16 { " kvf16" } else { "" };
        write!(f, "{} ub{}{cache}", self.precision.name(), self.chunk)
    }
}

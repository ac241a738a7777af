//! Exact comparison of two plans, for parity tests.

use std::fmt;

use crate::buffers::meta;
use crate::plan::Plan;
use crate::tiles::Tile;

/// The first word at which two plans differ. Displays as `pos[17]: 3 != 4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Buffer and index: `pos[17]`, `bcnt[2, 60]`, `shape.tile`.
    pub word: String,
    /// The word in the first plan.
    pub left: i64,
    /// The word in the second plan.
    pub right: i64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} != {}", self.word, self.left, self.right)
    }
}

impl std::error::Error for Difference {}

/// Compares every defined word of two plans: shape and `meta` first, then what those lengths define.
///
/// Safe on arbitrary words, such as a device under test leaves behind.
///
/// # Errors
/// The first [`Difference`].
pub fn compare(left: &Plan, right: &Plan) -> Result<(), Difference> {
    let (a, b) = (&left.shape, &right.shape);
    for (name, a, b) in [
        ("entries", a.entries(), b.entries()),
        ("top_k", a.top_k(), b.top_k()),
        ("experts", a.experts(), b.experts()),
        ("tile", a.tile(), b.tile()),
    ] {
        if a != b {
            return Err(Difference { word: format!("shape.{name}"), left: a as i64, right: b as i64 });
        }
    }
    for (a, b) in views(left).iter().zip(&views(right)) {
        let end = a.defined.min(a.words.len()).min(b.words.len());
        if let Some(i) = (0..end).find(|&i| a.words.get(i) != b.words.get(i)) {
            return Err(a.difference(i, a.words.get(i), b.words.get(i)));
        }
    }
    Ok(())
}

/// Checks that each word beyond the defined ones still is `word`, with which the plan was
/// [filled](Plan::filled) before it was built.
///
/// # Errors
/// The first that is not, as a [`Difference`] of `word` and what is there.
pub fn check_untouched(plan: &Plan, word: u32) -> Result<(), Difference> {
    for view in views(plan) {
        let fill = match view.words {
            Words::Signed(_) => i64::from(word as i32),
            Words::Unsigned(_) => i64::from(word),
        };
        if let Some(i) = (view.defined..view.words.len()).find(|&i| view.words.get(i) != fill) {
            return Err(view.difference(i, fill, view.words.get(i)));
        }
    }
    Ok(())
}

/// One buffer of a plan, with what is needed to compare it and to name its words.
struct View<'a> {
    name: &'static str,
    words: Words<'a>,
    /// Words that the pipeline defines, from the first on.
    defined: usize,
    /// Words of one row of the buffer; 1 if it has a single index.
    columns: usize,
}

enum Words<'a> {
    Signed(&'a [i32]),
    Unsigned(&'a [u32]),
}

impl Words<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Signed(words) => words.len(),
            Self::Unsigned(words) => words.len(),
        }
    }

    fn get(&self, i: usize) -> i64 {
        match self {
            Self::Signed(words) => i64::from(words[i]),
            Self::Unsigned(words) => i64::from(words[i]),
        }
    }
}

impl View<'_> {
    fn difference(&self, i: usize, left: i64, right: i64) -> Difference {
        let Self { name, columns, .. } = self;
        let word = match columns {
            1 => format!("{name}[{i}]"),
            _ => format!("{name}[{}, {}]", i / columns, i % columns),
        };
        Difference { word, left, right }
    }
}

/// All buffers, `meta` first: once it agrees, so do the lengths that are defined in the others.
fn views(plan: &Plan) -> [View<'_>; 8] {
    use Words::{Signed, Unsigned};
    let shape = &plan.shape;
    let n = plan.meta[meta::TILES] as usize;
    let rows = plan.meta[meta::ROWS] as usize;
    let view = |name, words, defined, columns| View { name, words, defined, columns };
    [
        view("meta", Unsigned(&plan.meta), meta::WORDS, 1),
        view("eoff", Unsigned(&plan.eoff), shape.eoff_words(), 1),
        view("bcnt", Unsigned(&plan.bcnt), shape.block_words(), shape.experts()),
        view("boff", Unsigned(&plan.boff), shape.block_words(), shape.experts()),
        view("tiles", Unsigned(&plan.tiles), n.saturating_mul(Tile::WORDS), Tile::WORDS),
        view("pos", Signed(&plan.pos), shape.entries(), 1),
        view("stok", Signed(&plan.stok), rows, 1),
        view("sw", Unsigned(&plan.sw), rows, 1),
    ]
}

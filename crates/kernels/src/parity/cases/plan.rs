//! The plan, byte for byte.

use argon_plan::{BLOCK, Shape};

use super::List;
use crate::device::DeviceError;
use crate::op::{Plan, PlanBuffers};
use crate::parity::{Arena, Bound, Result};
use crate::tensor::{DType, Tensor};

/// Ids that the definition may look at: a tenth of a second.
const LOOKED_AT: usize = 1 << 29;

/// Whether the definition takes too long: it looks at all entries for each expert, for its count and for those of all blocks; for
/// each block and expert at the entries before it; and for each entry at those before that.
fn is_large(tokens: usize, top_k: usize, experts: usize) -> bool {
    let entries = tokens.saturating_mul(top_k);
    let for_each_expert = entries.saturating_mul(2 + entries / BLOCK / 2);
    experts.saturating_mul(for_each_expert).saturating_add(entries.saturating_mul(entries / 2)) > LOOKED_AT
}

/// How ids are drawn.
#[derive(Clone, Copy, Debug)]
pub enum Ids {
    /// Every expert alike.
    Uniform,
    /// A few experts get most.
    Skewed,
    /// All tokens on the last expert, so that every expert of a token is the same.
    One,
    /// All skipped.
    Skipped,
    /// Half of them are those of the entry before, so that an expert is a token's several times.
    Repeated,
    /// Skipped ones, and some outside the experts, just so and as far as can be.
    Bad,
}

impl Ids {
    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Ids::Uniform => "uniform",
            Ids::Skewed => "skewed",
            Ids::One => "one expert",
            Ids::Skipped => "all skipped",
            Ids::Repeated => "repeated",
            Ids::Bad => "some skipped, some of no expert",
        }
    }

    /// Ids of so many entries.
    pub fn draw(self, a: &Arena, entries: usize, experts: usize) -> Vec<i32> {
        let mut before = 0;
        let mut one = || match self {
            Ids::Uniform => a.below(experts) as i32,
            Ids::Skewed => (a.below(experts) * a.below(experts) / experts) as i32,
            Ids::One => experts as i32 - 1,
            Ids::Skipped => -1,
            Ids::Repeated if a.below(2) == 0 => before,
            Ids::Repeated => {
                before = a.below(experts) as i32;
                before
            }
            Ids::Bad => match a.below(16) {
                0 => [i32::MIN, i32::MAX][a.below(2)],
                _ => a.below(experts + 3) as i32 - 2,
            },
        };
        (0..entries).map(|_| one()).collect()
    }
}

pub(super) fn cases(list: &mut List) {
    let r = list.request;
    let asked = r.tokens.is_some() || r.experts.is_some() || r.top_k.is_some();
    let shapes: Vec<[usize; 4]> = match asked {
        true => [8, 16, 64]
            .map(|tile| [r.tokens.unwrap_or(512), r.top_k.unwrap_or(10), r.experts.unwrap_or(512), tile])
            .into(),
        false => (1..=16)
            .map(|k| [600 / k + k, k, 16 + 31 * k, 1 << (k % 7)])
            .chain([
                [0, 2, 8, 4],
                [1, 1, 1, 1],
                [512, 10, 512, 16],
                [40, 3, 4096, 8],
                [40, 3, 4095, 8],
                [1030, 2, 257, 12],
            ])
            .chain([[6554, 10, 512, 64], [16384, 4, 128, 192], [104_858, 10, 513, 192]])
            .collect(),
    };
    for [tokens, top_k, experts, tile] in shapes {
        add(list, [tokens, top_k, experts, tile], Ids::Bad);
    }
    let [tokens, top_k, experts] = [r.tokens.unwrap_or(300), r.top_k.unwrap_or(7), r.experts.unwrap_or(129)];
    for ids in [Ids::Uniform, Ids::Skewed, Ids::One, Ids::Repeated, Ids::Skipped] {
        add(list, [tokens, top_k, experts, 16], ids);
    }
}

fn add(list: &mut List, [tokens, top_k, experts, tile]: [usize; 4], ids: Ids) {
    let name = format!("T {tokens}, K {top_k}, E {experts}, tile {tile}, {}", ids.name());
    list.add(name, Bound::Exact, move |a| plan(a, shape([tokens, top_k, experts, tile])?, ids, |_| a.unit()).map(drop));
    if is_large(tokens, top_k, experts) {
        list.large();
    }
}

/// T, K, E and the tile height, if they are within the limits.
pub(super) fn shape([tokens, top_k, experts, tile]: [usize; 4]) -> Result<Shape> {
    Shape::new(tokens, top_k, experts, tile).map_err(|error| DeviceError::Shape { op: "plan", what: error.to_string() })
}

/// The plan of ids that are drawn so, and the entries' weights `[T, 1, K]`.
///
/// # Errors
/// Those of the device.
pub fn plan(a: &Arena, shape: Shape, ids: Ids, weight: impl FnMut(usize) -> f32) -> Result<(PlanBuffers, Tensor)> {
    let entries = [shape.tokens(), 1, shape.top_k()];
    let ids = a.ints(entries, &ids.draw(a, shape.entries(), shape.experts()))?;
    let weights = a.input(DType::F32, entries, weight)?;
    let plan = PlanBuffers::of(shape, |name, dtype, shape| a.output(name, dtype, shape))?;
    a.run(Plan { ids, weights: weights.clone(), plan: plan.clone() })?;
    Ok((plan, weights))
}

#[cfg(test)]
mod tests {
    use super::is_large;

    #[test]
    fn the_definition_is_waited_for_where_it_is_quick() {
        for [tokens, top_k, experts] in [[0, 2, 8], [512, 10, 512], [40, 3, 4096], [1900, 16, 16], [1, 2000, 16384]] {
            assert!(!is_large(tokens, top_k, experts), "{tokens} {top_k} {experts}");
        }
        for [tokens, top_k, experts] in
            [[16384, 4, 128], [1, 16000, 16384], [2, 16000, 16384], [6554, 10, 512], [usize::MAX, 2, 1]]
        {
            assert!(is_large(tokens, top_k, experts), "{tokens} {top_k} {experts}");
        }
    }
}

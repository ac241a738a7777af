//! Copies and conversions byte for byte, sums, norms and rotations.

use std::ops::Range;

use super::{F32, List};
use crate::op::{Activation, Add, Copy, Fill, GatedNorm, Op, RmsNorm, Rope, RopePairs};
use crate::parity::{Arena, Bound, Result};
use crate::tensor::DType;

/// Rows, groups, columns: one, and more than a block of threads takes with some left over.
const SHAPES: [[usize; 3]; 3] = [[1, 1, 1], [131, 3, 33], [5, 2, 2560]];

/// Numbers at the edges of f16: its largest, ties, subnormals, overflow.
const HARD: [f32; 11] =
    [65504.0, 65519.0, 65520.0, 1e6, -1e6, 6e-8, 2.9e-8, 3e-8, 1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0, -0.0];

pub(super) fn cases(list: &mut List) {
    for shape in SHAPES {
        for (name, dtype) in [("f32", DType::F32), ("f16", DType::F16)] {
            list.add(format!("fill {name} {shape:?}"), Bound::Exact, move |a| fill(a, dtype, shape));
            let name = if dtype == DType::F16 { "act_f16" } else { "copy" };
            list.add(format!("{name} {shape:?}"), Bound::Exact, move |a| copy(a, dtype, shape));
        }
        list.add(format!("repeat {shape:?}"), Bound::Exact, move |a| repeat(a, shape));
        list.add(format!("add {shape:?}"), Bound::Exact, move |a| add(a, shape));
        list.add(format!("rms_norm {shape:?}"), F32, move |a| rms_norm(a, shape, 1));
        for (name, activation) in [("sigmoid", Activation::Sigmoid), ("silu", Activation::Silu)] {
            let name = format!("gated_norm, {name} {shape:?}");
            list.add(name, F32, move |a| gated_norm(a, shape, activation, false));
        }
    }
    list.add("act_f16, hard numbers", Bound::Exact, round_hard_numbers);
    for (pairs, name) in [(RopePairs::Halves, "halves"), (RopePairs::Neighbours, "neighbours")] {
        for pos0 in [0, 131_071] {
            let rotation = Rotation { groups: 2, cols: 72, freqs: 32, pairs, pos0, step: 1 };
            list.add(format!("rope, {name}, position {pos0}"), F32, move |a| a.run_all(rotation.ops(a, &[0, 67])?));
        }
    }
}

/// A number that is no f16: the nearest is stored.
///
/// # Errors
/// Those of the device, here and in what follows.
pub fn fill(a: &Arena, dtype: DType, shape: [usize; 3]) -> Result {
    a.run(Fill { dst: a.output("dst", dtype, shape)?, value: 0.1 })
}

/// A copy of f32 to a tensor of `dtype`.
pub fn copy(a: &Arena, dtype: DType, shape: [usize; 3]) -> Result {
    a.run(Copy { src: a.units(DType::F32, shape)?, dst: a.output("dst", dtype, shape)? })
}

/// Conversion to f16 rounds to nearest, ties to even, keeps subnormals and infinities.
pub fn round_hard_numbers(a: &Arena) -> Result {
    let shape = [1, 1, HARD.len()];
    a.run(Copy { src: a.input(DType::F32, shape, |i| HARD[i])?, dst: a.output("dst", DType::F16, shape)? })
}

/// A copy of one group into each of several.
pub fn repeat(a: &Arena, [rows, groups, cols]: [usize; 3]) -> Result {
    let src = a.units(DType::F32, [rows, 1, cols])?;
    a.run(Copy { src, dst: a.output("dst", DType::F32, [rows, groups, cols])? })
}

/// A sum.
pub fn add(a: &Arena, shape: [usize; 3]) -> Result {
    let dst = a.in_out("dst", shape, |_| a.unit())?;
    a.run(Add { src: a.units(DType::F32, shape)?, dst })
}

/// A norm with one group of weights or one for each group.
pub fn rms_norm(a: &Arena, shape: [usize; 3], weights: usize) -> Result {
    let (x, weight) = (a.units(DType::F32, shape)?, a.units(DType::F32, [1, weights, shape[2]])?);
    a.run(RmsNorm { x, weight, eps: 1e-6, out: a.output("out", DType::F32, shape)? })
}

/// A gated norm, perhaps in place.
pub fn gated_norm(a: &Arena, shape: [usize; 3], activation: Activation, in_place: bool) -> Result {
    let x = if in_place { a.in_out("x", shape, |_| a.unit())? } else { a.units(DType::F32, shape)? };
    let gate = a.input(DType::F32, shape, |_| 10.0 * a.unit())?;
    let weight = a.units(DType::F32, [1, 1, shape[2]])?;
    let out = if in_place { x.clone() } else { a.output("out", DType::F32, shape)? };
    a.run(GatedNorm { x, gate, weight, eps: 1e-6, activation, out })
}

/// A rotation.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Groups of a token.
    pub groups: usize,
    /// Columns of a group.
    pub cols: usize,
    /// Frequencies, each of which turns a pair of columns.
    pub freqs: usize,
    /// The columns of a pair.
    pub pairs: RopePairs,
    /// Position of the first token.
    pub pos0: usize,
    /// Positions from a token to the next.
    pub step: usize,
}

impl Rotation {
    /// The op in several calls.
    pub fn ops(&self, a: &Arena, cuts: &[usize]) -> Result<Vec<Op>> {
        let Rotation { groups, cols, freqs: n, pairs, pos0, step } = *self;
        let x = a.in_out("x", [cuts[cuts.len() - 1], groups, cols], |_| a.unit())?;
        let freqs = a.input(DType::F32, [1, 1, n], |i| 1e6f32.powf(-(i as f32) / n as f32))?;
        let part = |part: Range<usize>| {
            let pos0 = pos0 + part.start * step;
            Rope { x: x.rows(part), freqs: freqs.clone(), pairs, pos0, step }
        };
        Ok(cuts.windows(2).map(|cut| part(cut[0]..cut[1]).into()).collect())
    }
}

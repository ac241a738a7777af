//! Copies and conversions byte for byte, sums, norms and rotations.

use super::{F32, List};
use crate::op::{Activation, Add, Copy, Fill, GatedNorm, RmsNorm, Rope, RopePairs};
use crate::parity::Bound;
use crate::tensor::DType;

/// Rows, groups, columns: one, and more than a block of threads takes with some left over.
const SHAPES: [[usize; 3]; 3] = [[1, 1, 1], [131, 3, 33], [5, 2, 2560]];

/// Numbers at the edges of f16: its largest, ties, subnormals, overflow.
const HARD: [f32; 11] =
    [65504.0, 65519.0, 65520.0, 1e6, -1e6, 6e-8, 2.9e-8, 3e-8, 1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0, -0.0];

pub(super) fn cases(list: &mut List) {
    for shape in SHAPES {
        copies(list, shape);
        norms(list, shape);
    }
    list.add("act_f16, hard numbers", Bound::Exact, |desk| {
        let (src, dst) = (desk.floats([1, 1, HARD.len()], &HARD)?, desk.output("dst", DType::F16, [1, 1, HARD.len()])?);
        desk.run(Copy { src, dst })
    });
    for (pairs, name) in [(RopePairs::Halves, "halves"), (RopePairs::Neighbours, "neighbours")] {
        for pos0 in [0, 131_071] {
            list.add(format!("rope, {name}, position {pos0}"), F32, move |desk| {
                let freqs = desk.numbers(32, |i| 1e6f32.powf(-(i as f32) / 32.0));
                let x = desk.changed("x", [67, 2, 72], &desk.numbers(67 * 2 * 72, |_| desk.unit()))?;
                desk.run(Rope { x, freqs: desk.floats([1, 1, 32], &freqs)?, pairs, pos0, step: 1 })
            });
        }
    }
}

fn copies(list: &mut List, shape: [usize; 3]) {
    let [rows, groups, cols] = shape;
    let size = rows * groups * cols;
    for (name, dtype) in [("f32", DType::F32), ("f16", DType::F16)] {
        // 0.1 is no f16: the nearest is stored.
        list.add(format!("fill {name} {shape:?}"), Bound::Exact, move |desk| {
            desk.run(Fill { dst: desk.output("dst", dtype, shape)?, value: 0.1 })
        });
        let name = if dtype == DType::F16 { "act_f16" } else { "copy" };
        list.add(format!("{name} {shape:?}"), Bound::Exact, move |desk| {
            desk.run(Copy { src: desk.units(shape)?, dst: desk.output("dst", dtype, shape)? })
        });
    }
    list.add(format!("repeat {shape:?}"), Bound::Exact, move |desk| {
        desk.run(Copy { src: desk.units([rows, 1, cols])?, dst: desk.output("dst", DType::F32, shape)? })
    });
    list.add(format!("add {shape:?}"), Bound::Exact, move |desk| {
        let dst = desk.changed("dst", shape, &desk.numbers(size, |_| desk.unit()))?;
        desk.run(Add { src: desk.units(shape)?, dst })
    });
}

fn norms(list: &mut List, shape: [usize; 3]) {
    let cols = shape[2];
    list.add(format!("rms_norm {shape:?}"), F32, move |desk| {
        let (x, weight) = (desk.units(shape)?, desk.units([1, 1, cols])?);
        desk.run(RmsNorm { x, weight, eps: 1e-6, out: desk.output("out", DType::F32, shape)? })
    });
    for (name, activation) in [("sigmoid", Activation::Sigmoid), ("silu", Activation::Silu)] {
        list.add(format!("gated_norm, {name} {shape:?}"), F32, move |desk| {
            let (x, gate, weight) = (desk.units(shape)?, desk.units(shape)?, desk.units([1, 1, cols])?);
            desk.run(GatedNorm { x, gate, weight, eps: 1e-6, activation, out: desk.output("out", DType::F32, shape)? })
        });
    }
}

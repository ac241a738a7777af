//! Fill, copy, add, embed.

use argon_kernels::DType::{F16, F32};
use argon_kernels::op::{Add, Copy, Embed, Fill};

use crate::harness::{EXACT, parity};

/// Rows, groups, columns: nothing, one, and a task's worth of elements and one row more.
const SHAPES: [[usize; 3]; 6] = [[0, 1, 8], [1, 1, 0], [1, 1, 1], [3, 4, 17], [129, 1, 128], [2, 2, 16400]];

#[test]
fn fill() {
    for shape in SHAPES {
        for dtype in [F32, F16] {
            // 0.1 is no f16: the nearest is stored.
            parity(EXACT, |a| vec![Fill { dst: a.output("dst", dtype, shape), value: 0.1 }.into()]);
        }
    }
}

#[test]
fn copy_and_convert() {
    for shape in SHAPES {
        for dtype in [F32, F16] {
            parity(EXACT, |a| vec![Copy { src: a.floats("src", shape), dst: a.output("dst", dtype, shape) }.into()]);
        }
    }
}

#[test]
fn copy_repeats_one_group() {
    for [rows, groups, cols] in SHAPES {
        parity(EXACT, |a| {
            vec![Copy { src: a.floats("src", [rows, 1, cols]), dst: a.output("dst", F32, [rows, groups, cols]) }.into()]
        });
    }
}

/// Conversion to f16 rounds to nearest, ties to even, keeps subnormals and infinities.
#[test]
fn f16_rounding() {
    let hard = [65504.0, 65519.0, 65520.0, 1e6, -1e6, 6e-8, 2.9e-8, 3e-8, 1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0, -0.0];
    parity(EXACT, |a| {
        let src = a.floats_by("src", F32, [1, 1, hard.len()], |i| hard[i]);
        vec![Copy { src, dst: a.output("dst", F16, [1, 1, hard.len()]) }.into()]
    });
}

#[test]
fn add() {
    for shape in SHAPES {
        parity(EXACT, |a| vec![Add { src: a.floats("src", shape), dst: a.floats("dst", shape) }.into()]);
    }
}

#[test]
fn embed() {
    for (ids, groups) in [(vec![], 1), (vec![4], 1), (vec![0, 4, 4, 2, 1, 3], 3)] {
        parity(EXACT, |a| {
            let shape = [ids.len() / groups, 1, groups];
            let ids = a.ints("ids", shape, &ids);
            vec![Embed { table: a.weight(5, 33), ids, out: a.output("out", F32, [shape[0], groups, 33]) }.into()]
        });
    }
}

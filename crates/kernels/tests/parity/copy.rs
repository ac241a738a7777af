//! Fill, copy, add, embed.

use argon_gguf::Format;
use argon_kernels::DType::{F16, F32};
use argon_kernels::parity::cases::{elementwise, gather};

use super::harness::{EXACT, parity};

/// Rows, groups, columns: nothing, one, and a task's worth of elements and one row more.
const SHAPES: [[usize; 3]; 6] = [[0, 1, 8], [1, 1, 0], [1, 1, 1], [3, 4, 17], [129, 1, 128], [2, 2, 16400]];

#[test]
fn fill() {
    for shape in SHAPES {
        for dtype in [F32, F16] {
            parity(EXACT, |a| elementwise::fill(a, dtype, shape));
        }
    }
}

#[test]
fn copy_and_convert() {
    for shape in SHAPES {
        for dtype in [F32, F16] {
            parity(EXACT, |a| elementwise::copy(a, dtype, shape));
        }
    }
}

#[test]
fn copy_repeats_one_group() {
    for shape in SHAPES {
        parity(EXACT, |a| elementwise::repeat(a, shape));
    }
}

#[test]
fn f16_rounding() {
    parity(EXACT, elementwise::round_hard_numbers);
}

#[test]
fn add() {
    for shape in SHAPES {
        parity(EXACT, |a| elementwise::add(a, shape));
    }
}

#[test]
fn embed() {
    for (ids, groups) in [(vec![], 1), (vec![4], 1), (vec![0, 4, 4, 2, 1, 3], 3)] {
        parity(EXACT, |a| gather::embed(a, a.weight(Format::F32, 1, 5, 33)?, &ids, groups));
    }
}

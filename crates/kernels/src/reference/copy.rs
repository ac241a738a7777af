//! Copy and add.

use super::Array;

/// `dst[r, g, c] = src[r, g or 0, c]` for `groups` groups.
pub fn copy(src: &Array, groups: usize) -> Array {
    let [rows, src_groups, cols] = src.shape;
    Array::from_fn([rows, groups, cols], |r, g, c| src[[r, if src_groups == 1 { 0 } else { g }, c]])
}

/// `dst + src`.
pub fn add(dst: &Array, src: &Array) -> Array {
    Array::from_fn(dst.shape, |r, g, c| dst[[r, g, c]] + src[[r, g, c]])
}

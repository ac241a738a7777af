//! Activations as integers.
//!
//! Every 32 neighbouring activations share a scale: `x = scale * q`, q an integer rounded to nearest. With one plane q has
//! 8 bits (-127..=127), with two it has 16 (`q = 256 high + low`, each part a signed byte that is not -128), so that the
//! same byte products serve both precisions.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use super::unpack::Coding;
use crate::cpu::isa::{Isa, Kernel, Simd};
use crate::cpu::memory::View;

/// Activations that share a scale.
pub(super) const BLOCK: usize = 32;

/// A block of 32 activations with `PLANES` planes, in 32-bit words.
pub(super) struct Words<const PLANES: usize>;

impl<const PLANES: usize> Words<PLANES> {
    /// Four bytes each: the planes one after the other, the high one first.
    pub const QUADS: usize = BLOCK / 4;
    /// What the zero of the weights' codes adds to a sum, negated, for each half of the block (for the whole in the first
    /// word if the weights share a scale in groups of 32). With minima, the sum of q in f32 instead.
    pub const CORRECTION: usize = PLANES * Self::QUADS;
    /// The scale in f32.
    pub const SCALE: usize = Self::CORRECTION + 2;
    /// All of them.
    pub const LEN: usize = Self::SCALE + 1;
}

/// Rows of quantised activations.
pub(super) struct Quantised {
    /// `[row][block][word]`
    words: Vec<i32>,
    /// Words of a row.
    stride: usize,
}

impl Quantised {
    /// Quantises the rows of `x` for weights of one coding; only rows for which `used` holds.
    pub fn new<const PLANES: usize>(
        isa: Isa,
        x: View<f32>,
        coding: Coding,
        used: impl Fn(usize) -> bool + Sync,
    ) -> Self {
        let stride = x.cols() / BLOCK * Words::<PLANES>::LEN;
        let mut words = vec![0; x.rows() * stride];
        if stride > 0 {
            let rows = words.par_chunks_exact_mut(stride).enumerate().with_min_len(4).filter(|(row, _)| used(*row));
            rows.for_each(|(row, words)| isa.run(Row::<PLANES> { x: x.row(row), coding, words }));
        }
        Self { words, stride }
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.stride * size_of::<i32>()
    }

    /// Blocks of `W` words of a row.
    pub fn row<const W: usize>(&self, row: usize) -> &[[i32; W]] {
        self.words[row * self.stride..(row + 1) * self.stride].as_chunks().0
    }
}

/// Quantises one row.
struct Row<'a, const PLANES: usize> {
    x: &'a [f32],
    coding: Coding,
    words: &'a mut [i32],
}

impl<const PLANES: usize> Kernel for Row<'_, PLANES> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let zero = if self.coding.zero == 128 && S::WIDE_SIGNED { 0 } else { i32::from(self.coding.zero) };
        let blocks = self.words.chunks_exact_mut(Words::<PLANES>::LEN);
        for (x, words) in self.x.as_chunks::<BLOCK>().0.iter().zip(blocks) {
            let (q, scale) = quantise(x, if PLANES == 1 { 127.0 } else { 127.0 * 257.0 });
            let mut planes = [[0i8; BLOCK]; 2];
            for i in 0..BLOCK {
                let q = q[i / 16 * 16 + self.coding.order.column(i % 16)];
                // A low part of -128 becomes -127: one unit in 65,000.
                let high = if PLANES == 1 { 0 } else { (q + 128) >> 8 };
                planes[0][i] = high as i8;
                planes[1][i] = (q - 256 * high).max(-127) as i8;
            }
            let bytes: &[u8] = bytemuck::cast_slice(&planes.as_flattened()[(2 - PLANES) * BLOCK..]);
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = i32::from_le_bytes(*bytes);
            }
            let half = |h: usize| -> i32 {
                let q = |plane: usize| planes[plane][16 * h..16 * h + 16].iter().map(|&q| i32::from(q)).sum::<i32>();
                256 * q(0) + q(1)
            };
            let sums = if self.coding.group == 16 { [half(0), half(1)] } else { [half(0) + half(1), 0] };
            for (h, sum) in sums.into_iter().enumerate() {
                words[Words::<PLANES>::CORRECTION + h] =
                    if self.coding.min { (sum as f32).to_bits() as i32 } else { -zero * sum };
            }
            words[Words::<PLANES>::SCALE] = scale.to_bits() as i32;
        }
    }
}

/// The integers nearest to `x / scale` with the scale that makes the largest of them `largest`.
///
/// A block below 2^-100 is zero. One with a number that is not finite has a scale that is NaN, and so has every product.
#[inline(always)]
fn quantise(x: &[f32; BLOCK], largest: f32) -> ([i32; BLOCK], f32) {
    // The bits of positive floats are in the order of the floats, and those of infinity and NaN are above all others.
    let top = x.iter().fold(0, |top, x| (x.to_bits() & 0x7fff_ffff).max(top));
    let top = f32::from_bits(top);
    if !top.is_finite() {
        return ([0; BLOCK], f32::NAN);
    }
    let inverse = if top < 2f32.powi(-100) { 0.0 } else { largest / top };
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    (x.map(|x| (x * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32), top / largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_exact_and_the_others_are_nearest() {
        let x: [f32; BLOCK] = std::array::from_fn(|i| (i as f32 - 20.0) * 1e6);
        let (q, scale) = quantise(&x, 127.0);
        assert_eq!((q[0], q[20], q[31]), (-127, 0, 70)); // 11 / 20 * 127 = 69.85
        assert!(x.iter().zip(q).all(|(x, q)| (x - q as f32 * scale).abs() <= 0.5001 * scale));
    }

    #[test]
    fn numbers_at_the_edges() {
        assert_eq!(quantise(&[0.0; BLOCK], 127.0), ([0; BLOCK], 0.0));
        assert_eq!(quantise(&[1e-38; BLOCK], 127.0).0, [0; BLOCK]);
        assert_eq!(quantise(&[f32::MAX; BLOCK], 127.0).0, [127; BLOCK]);
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut block = [1.0; BLOCK];
            block[7] = x;
            assert!(quantise(&block, 127.0).1.is_nan());
        }
    }
}

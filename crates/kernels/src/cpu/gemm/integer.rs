//! Products of weights as integer codes with activations as integers: exact in every group of 16 or 32, then scaled and
//! summed in f32.
//!
//! For a weight row n and an input row r, over blocks b of 32 columns and their groups g:
//!
//! ```text
//! out[r, n] = sum over b of x_scale[r, b] * sum over g in b of (w_scale[n, g] * sum over k in g of (code[n, k] - zero) * q[r, k])
//! ```
//!
//! Codes are unsigned, because that is what the byte products of x86 take; the zero's part is the initial value of the sum,
//! computed once when the activations are quantised. Where weights have minima, `min[n, g] * sum of q[r, k]` joins the
//! inner sum instead.

use super::quantise::{Quantised, Words};
use super::tune;
use super::unpack::{Coding, Panel};
use crate::cpu::isa::{Floats, Isa, Kernel, Simd};

/// Adds to `sums` the products of the input rows `rows` with a panel that begins in column `first`. The activations have
/// `PLANES` planes of [`Words`] with `W` words in all.
pub(super) fn multiply<const PLANES: usize, const W: usize>(
    isa: Isa,
    coding: Coding,
    x: &Quantised,
    rows: &[usize],
    first: usize,
    panel: &Panel,
    sums: &mut [Floats],
) {
    match coding {
        Coding { group: 16, min: false, .. } => {
            isa.run(Multiply::<PLANES, W, 2, NARROW> { x, rows, first, panel, sums })
        }
        Coding { group: 16, min: true, .. } => isa.run(Multiply::<PLANES, W, 2, MIN> { x, rows, first, panel, sums }),
        Coding { min: true, .. } => isa.run(Multiply::<PLANES, W, 1, MIN> { x, rows, first, panel, sums }),
        Coding { zero: 128, .. } => isa.run(Multiply::<PLANES, W, 1, WIDE> { x, rows, first, panel, sums }),
        Coding { .. } => isa.run(Multiply::<PLANES, W, 1, NARROW> { x, rows, first, panel, sums }),
    }
}

/// Codes up to 127.
const NARROW: u8 = 0;
/// Codes up to 255.
const WIDE: u8 = 1;
/// Codes up to 127 and minima.
const MIN: u8 = 2;

/// One tile with one panel; `GROUPS` groups share a block of activations, `KIND` is one of the above.
struct Multiply<'a, const PLANES: usize, const W: usize, const GROUPS: usize, const KIND: u8> {
    x: &'a Quantised,
    rows: &'a [usize],
    first: usize,
    panel: &'a Panel<'a>,
    sums: &'a mut [Floats],
}

impl<const PLANES: usize, const W: usize, const GROUPS: usize, const KIND: u8> Kernel
    for Multiply<'_, PLANES, W, GROUPS, KIND>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        tune::for_height!(self.rows, R => self.tile::<S, R>(simd));
    }
}

impl<const PLANES: usize, const W: usize, const GROUPS: usize, const KIND: u8> Multiply<'_, PLANES, W, GROUPS, KIND> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(self, simd: S) {
        let Self { x, rows, first, panel, sums } = self;
        let quads = Words::<PLANES>::QUADS / GROUPS;
        let blocks = panel.codes.len() / Words::<PLANES>::QUADS;
        let x: [&[[i32; W]]; R] = std::array::from_fn(|r| &x.row::<W>(rows[r])[first / 32..][..blocks]);
        let mut totals: [S::F32; R] = std::array::from_fn(|r| simd.load(&sums[r]));
        for (b, codes) in panel.codes.chunks_exact(Words::<PLANES>::QUADS).enumerate() {
            let mut block = [simd.splat(0.0); R];
            for g in 0..GROUPS {
                let mut low: [S::I32; R] = std::array::from_fn(|r| {
                    let correction = x[r][b][Words::<PLANES>::CORRECTION + g];
                    simd.splat_i32(if KIND == MIN { 0 } else { correction })
                });
                let mut high = [simd.splat_i32(0); R];
                for q in g * quads..(g + 1) * quads {
                    let codes = if KIND == WIDE { simd.wide_codes(&codes[q]) } else { simd.codes(&codes[q]) };
                    let dot =
                        |sum, x| if KIND == WIDE { simd.wide_dot(sum, codes, x) } else { simd.dot(sum, codes, x) };
                    for r in 0..R {
                        if PLANES == 2 {
                            high[r] = dot(high[r], x[r][b][q]);
                        }
                        low[r] = dot(low[r], x[r][b][(PLANES - 1) * Words::<PLANES>::QUADS + q]);
                    }
                }
                let scale = simd.load(&panel.scales[b * GROUPS + g]);
                for r in 0..R {
                    let sum = simd.to_f32(if PLANES == 2 { simd.join(high[r], low[r]) } else { low[r] });
                    block[r] = if g == 0 { simd.mul(sum, scale) } else { simd.mul_add(sum, scale, block[r]) };
                    if KIND == MIN {
                        let x_sum = f32::from_bits(x[r][b][Words::<PLANES>::CORRECTION + g] as u32);
                        block[r] = simd.mul_add(simd.load(&panel.mins[b * GROUPS + g]), simd.splat(x_sum), block[r]);
                    }
                }
            }
            for r in 0..R {
                let scale = f32::from_bits(x[r][b][Words::<PLANES>::SCALE] as u32);
                totals[r] = simd.mul_add(block[r], simd.splat(scale), totals[r]);
            }
        }
        for (sum, total) in sums.iter_mut().zip(totals) {
            simd.store(total, sum);
        }
    }
}

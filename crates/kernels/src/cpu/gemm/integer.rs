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

use super::quantise::{BLOCK, Quantised, Words};
use super::tune;
use super::unpack::{Coding, Panel};
use crate::cpu::isa::{Codes, Floats, Isa, Kernel, Simd};

/// Some rows of activations and their sums with one panel.
pub(super) struct Tile<'a> {
    /// The activations, in `PLANES` planes.
    pub x: &'a Quantised,
    /// Which of their rows, at most as many as a tile has.
    pub rows: &'a [usize],
    /// The column that the panel begins in.
    pub first: usize,
    /// To which the products are added.
    pub sums: &'a mut [Floats],
}

/// Multiplies a tile with a panel. The activations have `PLANES` planes of [`Words`] with `W` words in all.
pub(super) fn multiply<const PLANES: usize, const W: usize>(isa: Isa, coding: Coding, tile: Tile, panel: &Panel) {
    match coding {
        Coding { group: 16, min: false, .. } => {
            isa.run(Multiply::<PLANES, W, 2, NARROW> { tile, panel });
        }
        Coding { group: 16, min: true, .. } => {
            isa.run(Multiply::<PLANES, W, 2, MIN> { tile, panel });
        }
        Coding { min: true, .. } => isa.run(Multiply::<PLANES, W, 1, MIN> { tile, panel }),
        Coding { zero: 128, .. } => isa.run(Multiply::<PLANES, W, 1, WIDE> { tile, panel }),
        Coding { .. } => isa.run(Multiply::<PLANES, W, 1, NARROW> { tile, panel }),
    }
}

/// Quads of columns in a block of activations.
const QUADS: usize = BLOCK / 4;

/// A block of a panel.
struct Lanes<'a> {
    codes: &'a [Codes; QUADS],
    scales: &'a [Floats],
    mins: Option<&'a [Floats]>,
}

/// Codes up to 127.
const NARROW: u8 = 0;
/// Codes up to 255.
const WIDE: u8 = 1;
/// Codes up to 127 and minima.
const MIN: u8 = 2;

/// One tile with one panel; `GROUPS` groups share a block of activations, `KIND` is one of the above.
struct Multiply<'a, 'b, const PLANES: usize, const W: usize, const GROUPS: usize, const KIND: u8> {
    tile: Tile<'a>,
    panel: &'a Panel<'b>,
}

impl<const PLANES: usize, const W: usize, const GROUPS: usize, const KIND: u8> Kernel
    for Multiply<'_, '_, PLANES, W, GROUPS, KIND>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        tune::for_height!(self.tile.rows, R => self.tile::<S, R>(simd));
    }
}

impl<const PLANES: usize, const W: usize, const GROUPS: usize, const KIND: u8>
    Multiply<'_, '_, PLANES, W, GROUPS, KIND>
{
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(self, simd: S) {
        let Self { tile: Tile { x, rows, first, sums }, panel } = self;
        let blocks = panel.codes.len() / QUADS;
        let x: [*const [i32; W]; R] = std::array::from_fn(|r| x.row::<W>(rows[r])[first / BLOCK..][..blocks].as_ptr());
        let mut totals: [S::F32; R] = std::array::from_fn(|r| simd.load(&sums[r]));
        for b in 0..blocks {
            // SAFETY: below the number of blocks, as long as which the slices were cut above.
            let x: [&[i32; W]; R] = std::array::from_fn(|r| unsafe { &*x[r].add(b) });
            // SAFETY: below `panel.codes.len() / QUADS`.
            let codes = unsafe { &*panel.codes.as_ptr().add(b * QUADS).cast::<[Codes; QUADS]>() };
            let lanes =
                Lanes { codes, scales: &panel.scales[b * GROUPS..][..GROUPS], mins: panel.mins.get(b * GROUPS..) };
            let mut block = Self::scaled(simd, 0, &lanes, &x, None);
            // Not a loop: the compiler would keep it one.
            if GROUPS == 2 {
                block = Self::scaled(simd, 1, &lanes, &x, Some(block));
            }
            for r in 0..R {
                let scale = f32::from_bits(x[r][Words::<PLANES>::SCALE] as u32);
                totals[r] = simd.mul_add(block[r], simd.splat(scale), totals[r]);
            }
        }
        for (sum, total) in sums.iter_mut().zip(totals) {
            simd.store(total, sum);
        }
    }

    /// The products of group `g` of a block with their scale and minimum, added to `block`.
    #[inline(always)]
    fn scaled<S: Simd, const R: usize>(
        simd: S,
        g: usize,
        lanes: &Lanes,
        x: &[&[i32; W]; R],
        block: Option<[S::F32; R]>,
    ) -> [S::F32; R] {
        let (sums, scale) = (Self::group(simd, g, lanes.codes, x), simd.load(&lanes.scales[g]));
        let mut scaled = sums;
        for r in 0..R {
            scaled[r] = match block {
                None => simd.mul(sums[r], scale),
                Some(block) => simd.mul_add(sums[r], scale, block[r]),
            };
            if let (MIN, Some(mins)) = (KIND, lanes.mins) {
                let x_sum = f32::from_bits(x[r][Words::<PLANES>::CORRECTION + g] as u32);
                scaled[r] = simd.mul_add(simd.load(&mins[g]), simd.splat(x_sum), scaled[r]);
            }
        }
        scaled
    }

    /// The sums of a group's products, before any scale.
    #[inline(always)]
    fn group<S: Simd, const R: usize>(simd: S, g: usize, codes: &[Codes; QUADS], x: &[&[i32; W]; R]) -> [S::F32; R] {
        let mut low: [S::I32; R] = std::array::from_fn(|r| {
            let correction = x[r][Words::<PLANES>::CORRECTION + g];
            simd.splat_i32(if KIND == MIN { 0 } else { correction })
        });
        let mut high = [simd.splat_i32(0); R];
        for q in g * (QUADS / GROUPS)..(g + 1) * (QUADS / GROUPS) {
            let codes = if KIND == WIDE { simd.wide_codes(&codes[q]) } else { simd.codes(&codes[q]) };
            for r in 0..R {
                if PLANES == 2 {
                    high[r] = Self::dot(simd, high[r], codes, x[r][q]);
                }
                low[r] = Self::dot(simd, low[r], codes, x[r][(PLANES - 1) * QUADS + q]);
            }
        }
        let mut sums = [simd.splat(0.0); R];
        for r in 0..R {
            sums[r] = simd.to_f32(if PLANES == 2 { simd.join(high[r], low[r]) } else { low[r] });
        }
        sums
    }

    #[inline(always)]
    fn dot<S: Simd>(simd: S, sum: S::I32, codes: S::Bytes, x: i32) -> S::I32 {
        if KIND == WIDE { simd.wide_dot(sum, codes, x) } else { simd.dot(sum, codes, x) }
    }
}

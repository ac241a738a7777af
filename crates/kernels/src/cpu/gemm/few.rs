//! Products with few rows of activations, with AVX-512.
//!
//! What takes the time there is unpacking weights. So their columns stay in order, four weight rows to a vector, and never
//! leave the registers; it is the sums that are turned, so that lanes are weight rows:
//!
//! ```text
//! for each run of 32 columns
//!     unpack it for sixteen weight rows                             in registers
//!     for each row of activations
//!         four vectors of four weight rows' four sums each          of the group's products, exact
//!         one vector of sixteen sums                                still integers
//!         total += scales * that
//! ```
//!
//! These are the operations of [`super::integer`] in the same order, so that the bits are the same, too.

use std::arch::x86_64::*;

use super::ahead::Ahead;
use super::integer::Tile;
use super::quantise::Words;
use super::unpack::Stretch;
use super::unpack::avx512::{Columns, Rows, SCALES, load_floats as load, with_columns};
use crate::cpu::isa::{Avx512, Floats};

/// Most rows.
pub(super) const MOST: usize = 8;

/// Adds the products of at most [`MOST`] rows with all columns of a panel in a format that `unpack::avx512` takes.
pub(super) fn multiply<const PLANES: usize, const W: usize>(
    avx512: Avx512,
    weights: &Stretch,
    ahead: &mut Ahead,
    tile: Tile,
) {
    let format = weights.format;
    with_columns!(
        format,
        // SAFETY: `avx512` proves the features.
        B => unsafe { panel::<B, _, PLANES, W>(avx512, weights, ahead, tile) },
        unreachable!("{format} is not taken")
    );
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,gfni")]
fn panel<B: Columns<N>, const N: usize, const PLANES: usize, const W: usize>(
    avx512: Avx512,
    weights: &Stretch,
    ahead: &mut Ahead,
    tile: Tile,
) {
    const { assert!(B::SCALED <= SCALES && B::SCALED.is_multiple_of(N / 32)) }
    let Tile { x, rows, first, sums } = tile;
    let weights = Rows::<B>::new(weights);
    let runs = weights.blocks * (N / 32);
    let mut inputs: [&[[i32; W]]; MOST] = [&[]; MOST];
    for (input, &row) in inputs.iter_mut().zip(rows) {
        *input = &x.row::<W>(row)[first / 32..][..runs];
    }
    let groups = 32 / B::GROUP;
    let (mut scales, mut mins) = ([Floats::default(); 2 * SCALES], [Floats::default(); 2 * SCALES]);
    for run in 0..runs {
        ahead.step(1);
        let scaled = run % B::SCALED;
        if scaled == 0 {
            let count = B::SCALED.min(runs - run) * groups;
            B::scales(avx512, &weights, run * 32 / N, &mut scales[..count], &mut mins[..count]);
        }
        let codes = weights.codes::<N>(avx512, run);
        let (first, last) = (scaled * groups, scaled * groups + groups - 1);
        let first = Group { scale: load(&scales[first]), min: load(&mins[first]) };
        let last = Group { scale: load(&scales[last]), min: load(&mins[last]) };
        for (input, sum) in inputs.iter().zip(&mut *sums) {
            let input = &input[run];
            let block = if B::GROUP == 32 {
                let products = products::<PLANES, W, 2>(&codes, input, 0, !B::MIN);
                first.scaled::<PLANES, W>(products, B::MIN, input, 0, None)
            } else {
                let products = [
                    products::<PLANES, W, 1>(&[codes[0]], input, 0, !B::MIN),
                    products::<PLANES, W, 1>(&[codes[1]], input, 1, !B::MIN),
                ];
                let block = first.scaled::<PLANES, W>(products[0], B::MIN, input, 0, None);
                last.scaled::<PLANES, W>(products[1], B::MIN, input, 1, Some(block))
            };
            let total = _mm512_fmadd_ps(block, float(input[Words::<PLANES>::SCALE]), load(sum));
            // SAFETY: the aligned array is one vector long.
            unsafe { _mm512_store_ps(sum.0.as_mut_ptr(), total) };
        }
    }
}

/// What the weights of a group share, of sixteen weight rows.
#[derive(Clone, Copy)]
struct Group {
    scale: __m512,
    min: __m512,
}

impl Group {
    /// Products with its scale, and with its minimum where there are any, added to those of the group before.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn scaled<const PLANES: usize, const W: usize>(
        self,
        products: __m512,
        with_min: bool,
        input: &[i32; W],
        g: usize,
        before: Option<__m512>,
    ) -> __m512 {
        let scaled = match before {
            None => _mm512_mul_ps(products, self.scale),
            Some(before) => _mm512_fmadd_ps(products, self.scale, before),
        };
        if with_min { _mm512_fmadd_ps(self.min, float(input[Words::<PLANES>::CORRECTION + g]), scaled) } else { scaled }
    }
}

/// The sums of a group's products, in f32: of `H` halves of a run, from half `first` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn products<const PLANES: usize, const W: usize, const H: usize>(
    codes: &[[__m512i; 4]; H],
    input: &[i32; W],
    first: usize,
    corrected: bool,
) -> __m512 {
    let mut sum = of_plane(codes, &input[8 * (PLANES - 1) + 4 * first..]);
    if corrected {
        sum = _mm512_add_epi32(sum, _mm512_set1_epi32(input[Words::<PLANES>::CORRECTION + first]));
    }
    if PLANES == 2 {
        sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(of_plane(codes, &input[4 * first..])), sum);
    }
    _mm512_cvtepi32_ps(sum)
}

/// The sums of products with the activations of one plane.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn of_plane<const H: usize>(codes: &[[__m512i; 4]; H], input: &[i32]) -> __m512i {
    let mut sums = [_mm512_setzero_si512(); 4];
    for (h, codes) in codes.iter().enumerate() {
        let x = quads(&input[4 * h..]);
        for (sum, codes) in sums.iter_mut().zip(codes) {
            *sum = _mm512_dpbusd_epi32(*sum, *codes, x);
        }
    }
    of_rows(sums)
}

/// Four quads of activations, for each of four weight rows.
#[inline]
#[target_feature(enable = "avx512f")]
fn quads(words: &[i32]) -> __m512i {
    let words: &[i32; 4] = words.first_chunk().expect("four quads");
    // SAFETY: 16 bytes.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(words.as_ptr().cast()) })
}

/// Vector i has four numbers of weight rows i, 4 + i, 8 + i and 12 + i; lane n of the result is the sum of row n's.
#[inline]
#[target_feature(enable = "avx512f")]
fn of_rows([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
}

/// The float with these bits, in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn float(bits: i32) -> __m512 {
    _mm512_castsi512_ps(_mm512_set1_epi32(bits))
}

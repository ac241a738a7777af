//! Formats whose weights are entries of a grid, two neighbouring blocks of a weight row at a time: lane l of every vector
//! has columns `32 l..32 l + 32` of the 512.

use std::arch::x86_64::*;

use argon_gguf::quant::blocks::*;
use argon_gguf::quant::tables::*;

use super::{Lines, bytes};
use crate::cpu::gemm::across::{Grid, Unpacked};
use crate::cpu::isa::Avx512;

impl<const N: usize> Lines<N> {
    /// `table[index]` of the entries from `first` lines on, 256 of them; bit 7 of the index is the mask.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn of_256(&self, first: usize, index: __m512i, bit7: __mmask64) -> __m512i {
        let low = _mm512_permutex2var_epi8(self.line(first), index, self.line(first + 1));
        let high = _mm512_permutex2var_epi8(self.line(first + 2), index, self.line(first + 3));
        _mm512_mask_blend_epi8(bit7, low, high)
    }

    /// As [`Lines::of_256`], of 512 entries; the last mask is bit 8.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn of_512(&self, first: usize, index: __m512i, bit7: __mmask64, bit8: __mmask64) -> __m512i {
        _mm512_mask_blend_epi8(bit8, self.of_256(first, index, bit7), self.of_256(first + 4, index, bit7))
    }
}

/// The magnitudes of the 2-bit grids.
const LEVELS: [u8; 3] = [8, 25, 43];

/// Four magnitudes of each of `N` entries, from byte `first` on, as 2-bit numbers of levels.
const fn level_codes<const N: usize>(grid: &[u64; N], first: usize) -> [u8; N] {
    let mut codes = [0; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < 4 {
            let magnitude = (grid[i] >> (8 * (first + j))) as u8;
            let level = if magnitude == LEVELS[0] {
                0
            } else if magnitude == LEVELS[1] {
                1
            } else {
                2
            };
            codes[i] |= level << (2 * j);
            j += 1;
        }
        i += 1;
    }
    codes
}

/// The levels of an octet's first four weights, and of its last four.
static IQ2XXS_LEVELS: [Lines<4>; 2] =
    [Lines::new(&level_codes(&IQ2XXS_GRID, 0)), Lines::new(&level_codes(&IQ2XXS_GRID, 4))];
static IQ2XS_LEVELS: [Lines<8>; 2] =
    [Lines::new(&level_codes(&IQ2XS_GRID, 0)), Lines::new(&level_codes(&IQ2XS_GRID, 4))];
static IQ2S_LEVELS: [Lines<16>; 2] = [Lines::new(&level_codes(&IQ2S_GRID, 0)), Lines::new(&level_codes(&IQ2S_GRID, 4))];

/// For an index with a level in bits `2 * j` and up, and a sign in bit `4 + j`: the code, which is 64 more or less than that.
const fn signed_levels(j: usize) -> [u8; 64] {
    let mut codes = [0; 64];
    let mut i = 0;
    while i < 64 {
        let level = (i >> (2 * j)) & 3;
        let magnitude = if level < 3 { LEVELS[level] } else { 0 };
        codes[i] = if (i >> (4 + j)) & 1 == 1 { 64 - magnitude } else { 64 + magnitude };
        i += 1;
    }
    codes
}

static EVEN: Lines<1> = Lines::new(&signed_levels(0));
static ODD: Lines<1> = Lines::new(&signed_levels(1));

/// The codes of positive weights, 64 more than the magnitudes `i` of a quad.
const fn positive<const N: usize>(grid: &[u32; N], i: usize) -> [u8; N] {
    let mut codes = [0; N];
    let mut entry = 0;
    while entry < N {
        codes[entry] = 64 + (grid[entry] >> (8 * i)) as u8;
        entry += 1;
    }
    codes
}

static IQ3XXS_POSITIVE: [Lines<4>; 4] = [
    Lines::new(&positive(&IQ3XXS_GRID, 0)),
    Lines::new(&positive(&IQ3XXS_GRID, 1)),
    Lines::new(&positive(&IQ3XXS_GRID, 2)),
    Lines::new(&positive(&IQ3XXS_GRID, 3)),
];
static IQ3S_POSITIVE: [Lines<8>; 4] = [
    Lines::new(&positive(&IQ3S_GRID, 0)),
    Lines::new(&positive(&IQ3S_GRID, 1)),
    Lines::new(&positive(&IQ3S_GRID, 2)),
    Lines::new(&positive(&IQ3S_GRID, 3)),
];

/// Every other byte of 128, from `first` on.
const fn every_other(first: u8) -> [u8; 64] {
    let mut places = [0; 64];
    let mut i = 0;
    while i < 64 {
        places[i] = 2 * i as u8 + first;
        i += 1;
    }
    places
}

static EVEN_BYTES: Lines<1> = Lines::new(&every_other(0));
static ODD_BYTES: Lines<1> = Lines::new(&every_other(1));

/// The even words of 32 and the odd ones.
#[inline]
#[target_feature(enable = "avx512f")]
fn even_and_odd(a: __m512i, b: __m512i) -> [__m512i; 2] {
    let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    [_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b)]
}

/// 32 bytes and another 32.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn joined(a: &[u8; 32], b: &[u8; 32]) -> __m512i {
    // SAFETY: as long as half a vector.
    let [a, b] = unsafe { [_mm256_loadu_si256(a.as_ptr().cast()), _mm256_loadu_si256(b.as_ptr().cast())] };
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b)
}

/// Eight bytes and another eight, each in a lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn in_lanes(a: [u8; 8], b: [u8; 8]) -> __m512i {
    _mm512_cvtepu8_epi32(_mm_set_epi64x(i64::from_le_bytes(b), i64::from_le_bytes(a)))
}

/// Eight bits from each of eight places in every eight bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn bits_from(places: [u8; 8], from: __m512i) -> __m512i {
    _mm512_multishift_epi64_epi8(_mm512_set1_epi64(i64::from_le_bytes(places)), from)
}

/// Seven bits of each byte, and their parity on top.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn with_parity(bytes: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(bytes, _mm512_set1_epi64(0x0102_0408_1020_407f))
}

/// Seven bits of each byte, above the lowest one, moved down, and their parity on top.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn upper_with_parity(bytes: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(bytes, _mm512_set1_epi64(0x0204_0810_2040_80fe))
}

/// `d (0.5 + s)`, exactly, for the two blocks' d.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn scaled<const N: usize>(a: F16, b: F16, s: [__m512i; N]) -> [__m512; N] {
    let d = _mm256_mask_set1_epi16(_mm256_set1_epi16(i16::from_le_bytes(a.0)), 0xff00, i16::from_le_bytes(b.0));
    let d = _mm512_cvtph_ps(d);
    let half = _mm512_mul_ps(d, _mm512_set1_ps(0.5));
    let mut scales = [half; N];
    for (scale, s) in scales.iter_mut().zip(s) {
        *scale = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), d, half);
    }
    scales
}

/// The low nibble of each lane's byte and the high one.
#[inline]
#[target_feature(enable = "avx512f")]
fn nibbles(bytes: __m512i) -> [__m512i; 2] {
    [_mm512_and_si512(bytes, _mm512_set1_epi32(15)), _mm512_srli_epi32::<4>(bytes)]
}

/// For four octets of weights in each lane: `levels` of their first and of their last four, and their signs. The codes, in
/// order of pairs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn octets([low, high]: [__m512i; 2], signs: __m512i) -> [__m512i; 8] {
    // Octets 0 and 1, then 2 and 3: the levels of the low halves, then of the high ones; the signs in the upper four bits.
    let pairs = [
        _mm512_mask_blend_epi16(0xaaaa_aaaa, low, _mm512_slli_epi32::<16>(high)),
        _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(low), high),
    ];
    let signs = [bits_from([60, 4, 0, 8, 28, 36, 32, 40], signs), bits_from([12, 20, 16, 24, 44, 52, 48, 56], signs)];
    let (even, odd, levels) = (EVEN.line(0), ODD.line(0), _mm512_set1_epi8(0x0f));
    let mut codes = [_mm512_setzero_si512(); 8];
    for half in 0..2 {
        let (pair, signs) = (pairs[half], signs[half]);
        // levels ? pair : signs
        let first = _mm512_ternarylogic_epi64::<0xca>(levels, pair, signs);
        let last =
            _mm512_ternarylogic_epi64::<0xca>(levels, _mm512_srli_epi16::<4>(pair), _mm512_srli_epi16::<2>(signs));
        codes[4 * half] = _mm512_permutexvar_epi8(first, even);
        codes[4 * half + 1] = _mm512_permutexvar_epi8(first, odd);
        codes[4 * half + 2] = _mm512_permutexvar_epi8(last, even);
        codes[4 * half + 3] = _mm512_permutexvar_epi8(last, odd);
    }
    codes
}

/// Makes weights negative: `codes` has four vectors, weight i of four quads in each; `signs` a byte for each quad, with
/// the sign of weight i in bit i.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn negate(codes: &mut [__m512i], signs: __m512i) {
    for (i, codes) in codes.iter_mut().enumerate() {
        let negative = _mm512_test_epi8_mask(signs, _mm512_set1_epi8(1 << i));
        *codes = _mm512_mask_sub_epi8(*codes, negative, _mm512_set1_epi8(-128), *codes);
    }
}

/// From the sign byte of each of four octets, the ones of quads 0 to 3, then 4 to 7: in the low nibbles.
#[inline]
#[target_feature(enable = "avx512f,avx512vbmi")]
fn signs_of_quads(octets: __m512i) -> [__m512i; 2] {
    [bits_from([0, 4, 8, 12, 32, 36, 40, 44], octets), bits_from([16, 20, 24, 28, 48, 52, 56, 60], octets)]
}

/// A grid's `unpack`: the capability proves the features of the function that does it.
macro_rules! grid {
    ($block:ident, groups $groups:literal, factor $factor:literal, $unpack:ident) => {
        impl Grid for $block {
            const GROUPS: usize = $groups;
            const FACTOR: f32 = $factor;

            #[inline(always)]
            fn unpack(_: Avx512, a: &Self, b: &Self) -> Unpacked {
                // SAFETY: the capability.
                unsafe { $unpack(a, b) }
            }
        }
    };
}

grid!(BlockIQ2_XXS, groups 1, factor 0.25, iq2_xxs);
grid!(BlockIQ2_XS, groups 2, factor 0.25, iq2_xs);
grid!(BlockIQ2_S, groups 2, factor 0.25, iq2_s);
grid!(BlockIQ3_XXS, groups 1, factor 0.5, iq3_xxs);
grid!(BlockIQ3_S, groups 1, factor 2.0, iq3_s);

/// In 32 weights: four indices, and a word of four 7-bit sign masks and a scale.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni")]
fn iq2_xxs(a: &BlockIQ2_XXS, b: &BlockIQ2_XXS) -> Unpacked {
    let [index, words] = even_and_odd(bytes(&a.qs), bytes(&b.qs));
    let bit7 = _mm512_movepi8_mask(index);
    let [low, high] = &IQ2XXS_LEVELS;
    let levels = [low.of_256(0, index, bit7), high.of_256(0, index, bit7)];
    let signs = with_parity(bits_from([0, 7, 14, 21, 32, 39, 46, 53], words));
    let [scale] = scaled(a.d, b.d, [_mm512_srli_epi32::<28>(words)]);
    Unpacked { codes: octets(levels, signs), scales: [scale; 2] }
}

/// In eight weights: a word with a 9-bit index and a 7-bit sign mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,gfni")]
fn iq2_xs(a: &BlockIQ2_XS, b: &BlockIQ2_XS) -> Unpacked {
    let (first, second) = (bytes(bytemuck::cast_ref(&a.qs)), bytes(bytemuck::cast_ref(&b.qs)));
    let index = _mm512_permutex2var_epi8(first, EVEN_BYTES.line(0), second);
    let upper = _mm512_permutex2var_epi8(first, ODD_BYTES.line(0), second);
    let (bit7, bit8) = (_mm512_movepi8_mask(index), _mm512_test_epi8_mask(upper, _mm512_set1_epi8(1)));
    let [low, high] = &IQ2XS_LEVELS;
    let levels = [low.of_512(0, index, bit7, bit8), high.of_512(0, index, bit7, bit8)];
    let scales = scaled(a.d, b.d, nibbles(in_lanes(a.scales, b.scales)));
    Unpacked { codes: octets(levels, upper_with_parity(upper)), scales }
}

/// In eight weights: eight bits of an index, two more of it elsewhere, and eight signs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn iq2_s(a: &BlockIQ2_S, b: &BlockIQ2_S) -> Unpacked {
    let (index, signs) = (joined(&a.qs, &b.qs), joined(&a.signs, &b.signs));
    let upper = bits_from([0, 2, 4, 6, 32, 34, 36, 38], in_lanes(a.qh, b.qh));
    let bit7 = _mm512_movepi8_mask(index);
    let [bit8, bit9] = [1, 2].map(|bit| _mm512_test_epi8_mask(upper, _mm512_set1_epi8(bit)));
    let mut levels = [index; 2];
    for (levels, table) in levels.iter_mut().zip(&IQ2S_LEVELS) {
        let halves = [table.of_512(0, index, bit7, bit8), table.of_512(8, index, bit7, bit8)];
        *levels = _mm512_mask_blend_epi8(bit9, halves[0], halves[1]);
    }
    let scales = scaled(a.d, b.d, nibbles(in_lanes(a.scales, b.scales)));
    Unpacked { codes: octets(levels, signs), scales }
}

/// In four weights: an index; in 32: a word as IQ2_XXS has it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
fn iq3_xxs(a: &BlockIQ3_XXS, b: &BlockIQ3_XXS) -> Unpacked {
    let words = joined(&a.scales_and_signs, &b.scales_and_signs);
    let signs = signs_of_quads(with_parity(bits_from([0, 7, 14, 21, 32, 39, 46, 53], words)));
    let mut codes = [words; 8];
    for (half, index) in even_and_odd(bytes(&a.qs), bytes(&b.qs)).into_iter().enumerate() {
        let bit7 = _mm512_movepi8_mask(index);
        let codes = &mut codes[4 * half..4 * half + 4];
        for (codes, table) in codes.iter_mut().zip(&IQ3XXS_POSITIVE) {
            *codes = table.of_256(0, index, bit7);
        }
        negate(codes, signs[half]);
    }
    let [scale] = scaled(a.d, b.d, [_mm512_srli_epi32::<28>(words)]);
    Unpacked { codes, scales: [scale; 2] }
}

/// In four weights: eight bits of an index and one more elsewhere; in eight: eight signs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
fn iq3_s(a: &BlockIQ3_S, b: &BlockIQ3_S) -> Unpacked {
    let signs = signs_of_quads(joined(&a.signs, &b.signs));
    let upper = in_lanes(a.qh, b.qh);
    let upper = [bits_from([0, 1, 2, 3, 32, 33, 34, 35], upper), bits_from([4, 5, 6, 7, 36, 37, 38, 39], upper)];
    let mut codes = [signs[0]; 8];
    for (half, index) in even_and_odd(bytes(&a.qs), bytes(&b.qs)).into_iter().enumerate() {
        let bit7 = _mm512_movepi8_mask(index);
        let bit8 = _mm512_test_epi8_mask(upper[half], _mm512_set1_epi8(1));
        let codes = &mut codes[4 * half..4 * half + 4];
        for (codes, table) in codes.iter_mut().zip(&IQ3S_POSITIVE) {
            *codes = table.of_512(0, index, bit7, bit8);
        }
        negate(codes, signs[half]);
    }
    // A nibble for every lane, the low one of a byte first.
    let places = [0, 0, 1, 1, 2, 2, 3, 3].map(|i: usize| [a.scales[i], b.scales[i]]);
    let bytes = in_lanes(places.map(|[a, _]| a), places.map(|[_, b]| b));
    let nibbles = _mm512_and_si512(_mm512_srlv_epi32(bytes, _mm512_set1_epi64(4 << 32)), _mm512_set1_epi32(15));
    let [scale] = scaled(a.d, b.d, [nibbles]);
    Unpacked { codes, scales: [scale; 2] }
}

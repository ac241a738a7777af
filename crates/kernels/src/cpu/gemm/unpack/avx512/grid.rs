//! Formats whose weights are entries of a grid.

use std::arch::x86_64::*;

use argon_gguf::quant::blocks::*;
use argon_gguf::quant::tables::*;

use super::{Ahead, Panel, Rows, Stretch, Supply, bytes, halves};
use crate::cpu::isa::{Avx512, Codes, Floats, LANES, store, transpose};

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

static IQ2XS_LOW: [u8; 512] = level_codes(&IQ2XS_GRID, 0);
static IQ2XS_HIGH: [u8; 512] = level_codes(&IQ2XS_GRID, 4);

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

static EVEN: [u8; 64] = signed_levels(0);
static ODD: [u8; 64] = signed_levels(1);

/// The part `i` of a table of bytes, in 64 bytes each.
#[inline]
#[target_feature(enable = "avx512f")]
fn part<const N: usize>(table: &[u8; N], i: usize) -> __m512i {
    bytes(&table.as_chunks().0[i])
}

/// `table[index]` for 512 entries; bits 7 and 8 of the index are the masks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn look_up_512(table: &[u8; 512], index: __m512i, bit7: __mmask64, bit8: __mmask64) -> __m512i {
    let quarter0 = _mm512_permutex2var_epi8(part(table, 0), index, part(table, 1));
    let quarter1 = _mm512_permutex2var_epi8(part(table, 2), index, part(table, 3));
    let quarter2 = _mm512_permutex2var_epi8(part(table, 4), index, part(table, 5));
    let quarter3 = _mm512_permutex2var_epi8(part(table, 6), index, part(table, 7));
    let half0 = _mm512_mask_blend_epi8(bit7, quarter0, quarter1);
    let half1 = _mm512_mask_blend_epi8(bit7, quarter2, quarter3);
    _mm512_mask_blend_epi8(bit8, half0, half1)
}

/// For four octets of weights in each lane: `low` and `high` hold the levels of an octet's first and last four, `signs` its
/// signs. The codes, in order of pairs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn expand(low: __m512i, high: __m512i, signs: __m512i, codes: &mut [Codes; 8]) {
    // Octets 0 and 1, then 2 and 3: the levels of the low halves, then of the high ones; the signs in the upper four bits.
    let pairs = [
        _mm512_mask_blend_epi16(0xaaaa_aaaa, low, _mm512_slli_epi32::<16>(high)),
        _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(low), high),
    ];
    let shifts = [
        _mm512_set1_epi64(i64::from_le_bytes([60, 4, 0, 8, 28, 36, 32, 40])),
        _mm512_set1_epi64(i64::from_le_bytes([12, 20, 16, 24, 44, 52, 48, 56])),
    ];
    let (even, odd, levels) = (bytes(&EVEN), bytes(&ODD), _mm512_set1_epi8(0x0f));
    for half in 0..2 {
        let (pair, signs) = (pairs[half], _mm512_multishift_epi64_epi8(shifts[half], signs));
        // levels ? pair : signs
        let first = _mm512_ternarylogic_epi64::<0xca>(levels, pair, signs);
        let last =
            _mm512_ternarylogic_epi64::<0xca>(levels, _mm512_srli_epi16::<4>(pair), _mm512_srli_epi16::<2>(signs));
        store(_mm512_permutexvar_epi8(first, even), &mut codes[4 * half]);
        store(_mm512_permutexvar_epi8(first, odd), &mut codes[4 * half + 1]);
        store(_mm512_permutexvar_epi8(last, even), &mut codes[4 * half + 2]);
        store(_mm512_permutexvar_epi8(last, odd), &mut codes[4 * half + 3]);
    }
}

/// IQ2_XS, a run of 32 columns at a time.
pub(super) struct Iq2Xs<'a, 'b, 'c> {
    rows: Rows<'a, BlockIQ2_XS>,
    ahead: &'c mut Ahead<'b>,
    /// For each run of a block, what the indices' low bytes are, then the high ones.
    words: [Codes; LANES],
}

impl<'a, 'b, 'c> Iq2Xs<'a, 'b, 'c> {
    pub fn new(_: Avx512, weights: &Stretch<'a>, ahead: &'c mut Ahead<'b>) -> Self {
        Self { rows: Rows::new(weights), ahead, words: [Codes::default(); LANES] }
    }

    /// Reads block `b`, of 256 columns, of all rows.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn read(&mut self, b: usize, scales: &mut [Floats; 16]) {
        // In every eight bytes, that is four words: the low bytes, then the high ones.
        let split = _mm512_set4_epi32(0x0f0d_0b09, 0x0e0c_0a08, 0x0705_0301, 0x0604_0200);
        let blocks = self.rows.at(b);
        let mut d = [[0; 2]; LANES];
        let mut nibbles = [[0; 8]; LANES];
        let mut words = [_mm512_setzero_si512(); LANES];
        for row in 0..LANES {
            d[row] = blocks[row].d.0;
            nibbles[row] = blocks[row].scales;
            words[row] = _mm512_shuffle_epi8(bytes(bytemuck::cast_ref(&blocks[row].qs)), split);
        }
        for (to, words) in self.words.iter_mut().zip(transpose(words)) {
            store(words, to);
        }
        quarter_scales(halves(&d), &nibbles, scales);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
    fn unpack(&self, run: usize, codes: &mut [Codes; 8]) {
        // The byte above seven sign bits shifted up by one: those bits, and their parity on top.
        let parity = _mm512_set1_epi64(0x0204_0810_2040_80fe);
        let (index, high) = (bytes(&self.words[2 * run].0), bytes(&self.words[2 * run + 1].0));
        let (bit7, bit8) = (_mm512_movepi8_mask(index), _mm512_test_epi8_mask(high, _mm512_set1_epi8(1)));
        let low_levels = look_up_512(&IQ2XS_LOW, index, bit7, bit8);
        let high_levels = look_up_512(&IQ2XS_HIGH, index, bit7, bit8);
        let signs = _mm512_gf2p8affine_epi64_epi8::<0>(high, parity);
        expand(low_levels, high_levels, signs, codes);
    }
}

impl Supply for Iq2Xs<'_, '_, '_> {
    #[inline(always)]
    fn block(&mut self, b: usize, panel: &mut Panel) {
        self.ahead.step(1);
        let (scales, _) = panel.scales.as_chunks_mut();
        let (codes, _) = panel.codes.as_chunks_mut();
        // SAFETY: `new` took the capability.
        unsafe {
            if b.is_multiple_of(8) {
                self.read(b / 8, &mut scales[b / 8]);
            }
            self.unpack(b % 8, &mut codes[b]);
        }
    }
}

/// The scales `d (0.5 + s) / 4` of sixteen rows, s their sixteen nibbles.
#[inline]
#[target_feature(enable = "avx512f")]
fn quarter_scales(d: __m512, nibbles: &[[u8; 8]; LANES], scales: &mut [Floats; 16]) {
    // SAFETY: two vectors long.
    let (first, last) =
        unsafe { (_mm512_loadu_si512(nibbles.as_ptr().cast()), _mm512_loadu_si512(nibbles[8..].as_ptr().cast())) };
    // 1 + s / 16, by its bits; d (0.5 + s) / 4 = 4 d (1 + s / 16) - 31 / 8 d, exactly.
    let (mask, one) = (_mm512_set1_epi32(15 << 19), _mm512_castps_si512(_mm512_set1_ps(1.0)));
    let (factor, rest) = (_mm512_mul_ps(d, _mm512_set1_ps(4.0)), _mm512_mul_ps(d, _mm512_set1_ps(-31.0 / 8.0)));
    let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    let halves = [_mm512_permutex2var_epi32(first, even, last), _mm512_permutex2var_epi32(first, odd, last)];
    for (nibbles, scales) in halves.into_iter().zip(scales.as_chunks_mut::<8>().0) {
        let places = [
            _mm512_slli_epi32::<19>(nibbles),
            _mm512_slli_epi32::<15>(nibbles),
            _mm512_slli_epi32::<11>(nibbles),
            _mm512_slli_epi32::<7>(nibbles),
            _mm512_slli_epi32::<3>(nibbles),
            _mm512_srli_epi32::<1>(nibbles),
            _mm512_srli_epi32::<5>(nibbles),
            _mm512_srli_epi32::<9>(nibbles),
        ];
        for (place, scales) in places.into_iter().zip(scales) {
            // place & mask | one
            let value = _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xea>(place, mask, one));
            // SAFETY: the aligned array is one vector long.
            unsafe { _mm512_store_ps(scales.0.as_mut_ptr(), _mm512_fmadd_ps(value, factor, rest)) };
        }
    }
}

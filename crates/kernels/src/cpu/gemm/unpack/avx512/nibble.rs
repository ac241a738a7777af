//! Formats with two weights in a byte: in 32 weights, bytes 0 to 15 hold weights 0 to 15 in their low nibbles, 16 to 31 in
//! their high ones.

use std::arch::x86_64::*;

use argon_gguf::quant::blocks::*;
use bytemuck::Pod;

use super::super::iq::UNEVEN;
use super::super::other::FP4;
use super::{Ahead, Lines, Panel, Rows, Stretch, Supply};
use crate::cpu::isa::{Avx512, Codes, Floats, LANES, store};

/// What vpermb takes as a table of 16 entries, whatever is in the upper bits of an index.
const fn four_times(table: &[u8; 16]) -> Lines<1> {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[i] = table[i % 16];
        i += 1;
    }
    Lines::new(&all)
}

static UNEVEN_TABLE: Lines<1> = four_times(&UNEVEN);
static FP4_TABLE: Lines<1> = four_times(&FP4);

/// A block of such weights.
pub(super) trait Nibbles: Pod {
    /// Runs of 32 weights in a block.
    const RUNS: usize;
    /// Runs whose scales are read together.
    const SCALES: usize;

    /// The code of each nibble.
    fn table() -> &'static Lines<1>;

    /// The nibbles of a run.
    fn nibbles(&self, run: usize) -> &[u8; 16];

    /// The scales of runs `first..first + to.len()` of sixteen rows, at most [`Nibbles::SCALES`] of them.
    fn scales(avx512: Avx512, rows: &Rows<Self>, first: usize, to: &mut [Floats]);
}

/// A run of 32 columns at a time.
pub(super) struct Runs<'a, 'b, 'c, B> {
    rows: Rows<'a, B>,
    ahead: &'c mut Ahead<'b>,
    avx512: Avx512,
}

impl<'a, 'b, 'c, B: Nibbles> Runs<'a, 'b, 'c, B> {
    pub fn new(avx512: Avx512, weights: &Stretch<'a>, ahead: &'c mut Ahead<'b>) -> Self {
        Self { rows: Rows::new(weights), ahead, avx512 }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn unpack(&self, run: usize, codes: &mut [Codes; 8]) {
        let table = B::table().line(0);
        let blocks = self.rows.at(run / B::RUNS);
        let mut quads = [_mm512_setzero_si512(); 4];
        for (i, quads) in quads.iter_mut().enumerate() {
            let nibbles = |row: usize| blocks[row].nibbles(run % B::RUNS).as_ptr().cast();
            // SAFETY: 16 bytes each.
            unsafe {
                let v = _mm512_castsi128_si512(_mm_loadu_si128(nibbles(i)));
                let v = _mm512_inserti32x4::<1>(v, _mm_loadu_si128(nibbles(4 + i)));
                let v = _mm512_inserti32x4::<2>(v, _mm_loadu_si128(nibbles(8 + i)));
                *quads = _mm512_inserti32x4::<3>(v, _mm_loadu_si128(nibbles(12 + i)));
            }
        }
        let (ab_low, ab_high) = (_mm512_unpacklo_epi32(quads[0], quads[1]), _mm512_unpackhi_epi32(quads[0], quads[1]));
        let (cd_low, cd_high) = (_mm512_unpacklo_epi32(quads[2], quads[3]), _mm512_unpackhi_epi32(quads[2], quads[3]));
        let columns = [
            _mm512_unpacklo_epi64(ab_low, cd_low),
            _mm512_unpackhi_epi64(ab_low, cd_low),
            _mm512_unpacklo_epi64(ab_high, cd_high),
            _mm512_unpackhi_epi64(ab_high, cd_high),
        ];
        for (i, column) in columns.into_iter().enumerate() {
            store(_mm512_permutexvar_epi8(column, table), &mut codes[i]);
            store(_mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(column), table), &mut codes[4 + i]);
        }
    }
}

impl<B: Nibbles> Supply for Runs<'_, '_, '_, B> {
    #[inline(always)]
    fn block(&mut self, b: usize, panel: &mut Panel) {
        self.ahead.step(1);
        let (codes, _) = panel.codes.as_chunks_mut();
        if b.is_multiple_of(B::SCALES) {
            let end = codes.len().min(b + B::SCALES);
            B::scales(self.avx512, &self.rows, b, &mut panel.scales[b..end]);
        }
        // SAFETY: `new` took the capability.
        unsafe { self.unpack(b, &mut codes[b]) }
    }
}

/// A vector of floats.
#[inline]
#[target_feature(enable = "avx512f")]
fn store_floats(value: __m512, to: &mut Floats) {
    // SAFETY: the aligned array is one vector long.
    unsafe { _mm512_store_ps(to.0.as_mut_ptr(), value) }
}

/// A vector of words.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_words(from: &[u32; LANES]) -> __m512i {
    // SAFETY: as long as a vector.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

impl Nibbles for BlockIQ4_NL {
    const RUNS: usize = 1;
    const SCALES: usize = 4;

    #[inline(always)]
    fn table() -> &'static Lines<1> {
        &UNEVEN_TABLE
    }

    #[inline(always)]
    fn nibbles(&self, _: usize) -> &[u8; 16] {
        &self.qs
    }

    #[inline(always)]
    fn scales(_: Avx512, rows: &Rows<Self>, first: usize, to: &mut [Floats]) {
        // SAFETY: the capability.
        unsafe { iq4_nl_scales(rows, first, to) }
    }
}

/// The halves in front of up to four blocks of each row, 18 bytes apart.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq4_nl_scales(rows: &Rows<BlockIQ4_NL>, first: usize, to: &mut [Floats]) {
    let bytes = 18 * (rows.blocks - first);
    let there = if bytes < 64 { (1 << bytes) - 1 } else { u64::MAX };
    // For every eight bytes of the result.
    let places = _mm512_set1_epi64(i64::from_le_bytes([0, 1, 18, 19, 36, 37, 54, 55]));
    let mut eights = [_mm512_setzero_si512(); 2];
    for (row, block) in rows.at(first).into_iter().enumerate() {
        // SAFETY: the mask covers blocks of the row alone.
        let block = unsafe { _mm512_maskz_loadu_epi8(there, std::ptr::from_ref(block).cast()) };
        let eight = &mut eights[row / 8];
        *eight = _mm512_mask_permutexvar_epi8(*eight, 0xff << (8 * (row % 8)), places, block);
    }
    // Half i of every row.
    let halves = _mm512_castsi256_si512(_mm256_setr_epi16(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60));
    for (i, to) in to.iter_mut().enumerate() {
        let index = _mm512_add_epi16(halves, _mm512_set1_epi16(i as i16));
        let halves = _mm512_castsi512_si256(_mm512_permutex2var_epi16(eights[0], index, eights[1]));
        store_floats(_mm512_cvtph_ps(halves), to);
    }
}

impl Nibbles for BlockIQ4_XS {
    const RUNS: usize = 8;
    const SCALES: usize = 8;

    #[inline(always)]
    fn table() -> &'static Lines<1> {
        &UNEVEN_TABLE
    }

    #[inline(always)]
    fn nibbles(&self, run: usize) -> &[u8; 16] {
        &self.qs.as_chunks().0[run]
    }

    #[inline(always)]
    fn scales(_: Avx512, rows: &Rows<Self>, first: usize, to: &mut [Floats]) {
        // SAFETY: the capability.
        unsafe { iq4_xs_scales(rows, first, to) }
    }
}

/// `d (s - 32)`, s of four bits and two more of it elsewhere.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq4_xs_scales(rows: &Rows<BlockIQ4_XS>, first: usize, to: &mut [Floats]) {
    let (mut d, mut low, mut high) = ([0; LANES], [0; LANES], [0; LANES]);
    for (row, block) in rows.at(first / 8).into_iter().enumerate() {
        d[row] = u32::from(u16::from_le_bytes(block.d.0));
        low[row] = u32::from_le_bytes(block.scales_l);
        high[row] = u32::from(block.scales_h.get()) << 4;
    }
    let (mut low, mut high) = (load_words(&low), load_words(&high));
    let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(load_words(&d)));
    for to in to {
        // low & 15 | high & 48
        let s = _mm512_and_si512(low, _mm512_set1_epi32(15));
        let s = _mm512_ternarylogic_epi32::<0xf8>(s, high, _mm512_set1_epi32(48));
        let s = _mm512_cvtepi32_ps(_mm512_sub_epi32(s, _mm512_set1_epi32(32)));
        store_floats(_mm512_mul_ps(d, s), to);
        (low, high) = (_mm512_srli_epi32::<4>(low), _mm512_srli_epi32::<2>(high));
    }
}

impl Nibbles for BlockMXFP4 {
    const RUNS: usize = 1;
    const SCALES: usize = 1;

    #[inline(always)]
    fn table() -> &'static Lines<1> {
        &FP4_TABLE
    }

    #[inline(always)]
    fn nibbles(&self, _: usize) -> &[u8; 16] {
        &self.qs
    }

    #[inline(always)]
    fn scales(_: Avx512, rows: &Rows<Self>, first: usize, to: &mut [Floats]) {
        // SAFETY: the capability.
        unsafe { mxfp4_scales(rows, first, &mut to[0]) }
    }
}

/// `2^(e - 128)`: the floats of two exponents below 2 are subnormal.
#[inline]
#[target_feature(enable = "avx512f")]
fn mxfp4_scales(rows: &Rows<BlockMXFP4>, first: usize, to: &mut Floats) {
    let mut e = [0; LANES];
    for (row, block) in rows.at(first).into_iter().enumerate() {
        e[row] = u32::from(block.e);
    }
    let e = load_words(&e);
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
    let small = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
    let bits = _mm512_mask_blend_epi32(_mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2)), normal, small);
    store_floats(_mm512_castsi512_ps(bits), to);
}

//! Blocks of 32 weights, and IQ4_XS, whose runs of 32 are like those of IQ4_NL. With two weights in a byte, bytes 0 to 15
//! hold weights 0 to 15 in their low nibbles, 16 to 31 in their high ones.

use std::arch::x86_64::*;

use argon_gguf::quant::blocks::*;

use super::super::iq::UNEVEN;
use super::super::other::FP4;
use super::{Columns, Lines, Rows, beside, each, halves, nibbles, store_floats, words};
use crate::cpu::isa::{Avx512, Floats};

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

/// The entry of each low nibble, and of each high one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn looked_up(rows: [&[u8; 16]; 4], table: &Lines<1>) -> [__m512i; 2] {
    let (bytes, table) = (beside(rows), table.line(0));
    [_mm512_permutexvar_epi8(bytes, table), _mm512_permutexvar_epi8(_mm512_srli_epi16::<4>(bytes), table)]
}

/// The nibbles themselves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn four_bits(rows: [&[u8; 16]; 4]) -> [__m512i; 2] {
    nibbles(beside(rows))
}

/// Nibbles, with a fifth bit from a word of each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn five_bits(qs: [&[u8; 16]; 4], qh: [[u8; 4]; 4]) -> [__m512i; 2] {
    let [low, high] = nibbles(beside(qs));
    let [mut first, mut last] = [0; 2];
    for (row, qh) in qh.into_iter().enumerate() {
        let qh = u64::from(u32::from_le_bytes(qh));
        first |= (qh & 0xffff) << (16 * row);
        last |= (qh >> 16) << (16 * row);
    }
    let fifth = _mm512_set1_epi8(16);
    [_mm512_mask_add_epi8(low, first, low, fifth), _mm512_mask_add_epi8(high, last, high, fifth)]
}

/// The bytes of four rows, which become unsigned.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn unsigned(rows: [&[i8; 32]; 4]) -> [__m512i; 2] {
    let rows = rows.map(|row| -> &[[u8; 16]; 2] { bytemuck::cast_ref(row) });
    let (first, last) = (beside(rows.map(|row| &row[0])), beside(rows.map(|row| &row[1])));
    let sign = _mm512_set1_epi8(-128);
    [_mm512_xor_si512(first, sign), _mm512_xor_si512(last, sign)]
}

/// The halves that begin up to four neighbouring blocks of each row.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn first_halves<B: bytemuck::Pod>(rows: &Rows<B>, first: usize, to: &mut [Floats]) {
    const { assert!(3 * size_of::<B>() + 2 <= 64) }
    let bytes = size_of::<B>() * (rows.blocks - first);
    let there = if bytes < 64 { (1 << bytes) - 1 } else { u64::MAX };
    // For every eight bytes of the result.
    let block = [0, 1, 2, 3].map(|i| [i * size_of::<B>() as u8, i * size_of::<B>() as u8 + 1]);
    let places = _mm512_set1_epi64(i64::from_le_bytes(bytemuck::cast(block)));
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

/// A half of one block of each row.
#[inline]
#[target_feature(enable = "avx512f")]
fn one<B: bytemuck::Pod>(rows: &Rows<B>, block: usize, half: impl Fn(&B) -> F16, to: &mut [Floats]) {
    store_floats(halves(each(rows.at(block), half)), &mut to[0]);
}

/// A format's [`Columns`], whose functions' features the capability proves.
macro_rules! columns {
    ($block:ident, scaled $scaled:literal, codes |$blocks:ident| $codes:expr,
     scales |$rows:ident, $first:ident, $scales:ident, $mins:pat_param| $read:expr) => {
        impl Columns<32> for $block {
            const SCALED: usize = $scaled;

            #[inline(always)]
            fn four(_: Avx512, $blocks: [&Self; 4], _: usize) -> [__m512i; 2] {
                // SAFETY: the capability.
                unsafe { $codes }
            }

            #[inline(always)]
            fn scales(_: Avx512, $rows: &Rows<Self>, $first: usize, $scales: &mut [Floats], $mins: &mut [Floats]) {
                // SAFETY: the capability.
                unsafe { $read }
            }
        }
    };
}

columns!(BlockQ8_0, scaled 1, codes |b| unsigned(b.map(|b| &b.qs)),
    scales |rows, first, scales, _| one(rows, first, |b| b.d, scales));
columns!(BlockQ4_0, scaled 4, codes |b| four_bits(b.map(|b| &b.qs)),
    scales |rows, first, scales, _| first_halves(rows, first, scales));
columns!(BlockQ4_1, scaled 1, codes |b| four_bits(b.map(|b| &b.qs)),
scales |rows, first, scales, mins| {
    one(rows, first, |b| b.d, scales);
    one(rows, first, |b| b.m, mins)
});
columns!(BlockQ5_0, scaled 1, codes |b| five_bits(b.map(|b| &b.qs), b.map(|b| b.qh)),
    scales |rows, first, scales, _| one(rows, first, |b| b.d, scales));
columns!(BlockQ5_1, scaled 1, codes |b| five_bits(b.map(|b| &b.qs), b.map(|b| b.qh)),
scales |rows, first, scales, mins| {
    one(rows, first, |b| b.d, scales);
    one(rows, first, |b| b.m, mins)
});
columns!(BlockIQ4_NL, scaled 4, codes |b| looked_up(b.map(|b| &b.qs), &UNEVEN_TABLE),
    scales |rows, first, scales, _| first_halves(rows, first, scales));
columns!(BlockMXFP4, scaled 1, codes |b| looked_up(b.map(|b| &b.qs), &FP4_TABLE),
    scales |rows, first, scales, _| mxfp4_scales(rows, first, scales));

/// `2^(e - 128)`: the floats of two exponents below 2 are subnormal.
#[inline]
#[target_feature(enable = "avx512f")]
fn mxfp4_scales(rows: &Rows<BlockMXFP4>, first: usize, to: &mut [Floats]) {
    let e = words(each(rows.at(first), |block| u32::from(block.e)));
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
    let small = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
    let bits = _mm512_mask_blend_epi32(_mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2)), normal, small);
    store_floats(_mm512_castsi512_ps(bits), &mut to[0]);
}

impl Columns<256> for BlockIQ4_XS {
    const SCALED: usize = 8;

    #[inline(always)]
    fn four(_: Avx512, blocks: [&Self; 4], run: usize) -> [__m512i; 2] {
        // SAFETY: the capability.
        unsafe { looked_up(blocks.map(|block| &block.qs.as_chunks().0[run]), &UNEVEN_TABLE) }
    }

    #[inline(always)]
    fn scales(_: Avx512, rows: &Rows<Self>, block: usize, scales: &mut [Floats], _: &mut [Floats]) {
        // SAFETY: the capability.
        unsafe { iq4_xs_scales(rows, block, scales) }
    }
}

/// `d (s - 32)`, s of four bits and two more of it elsewhere.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
fn iq4_xs_scales(rows: &Rows<BlockIQ4_XS>, block: usize, to: &mut [Floats]) {
    let blocks = rows.at(block);
    let mut low = words(each(blocks, |block| u32::from_le_bytes(block.scales_l)));
    let mut high = words(each(blocks, |block| u32::from(block.scales_h.get()) << 4));
    let d = halves(each(blocks, |block| block.d));
    for to in to {
        // low & 15 | high & 48
        let s = _mm512_and_si512(low, _mm512_set1_epi32(15));
        let s = _mm512_ternarylogic_epi32::<0xf8>(s, high, _mm512_set1_epi32(48));
        let s = _mm512_cvtepi32_ps(_mm512_sub_epi32(s, _mm512_set1_epi32(32)));
        store_floats(_mm512_mul_ps(d, s), to);
        (low, high) = (_mm512_srli_epi32::<4>(low), _mm512_srli_epi32::<2>(high));
    }
}

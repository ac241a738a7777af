//! Super-blocks of 256 weights whose groups have small integer scales.

use std::arch::x86_64::*;

use argon_gguf::quant::blocks::*;
use bytemuck::Pod;

use super::{Columns, Rows, beside, each, halves, nibbles, store_floats, turned, words};
use crate::cpu::isa::{Avx512, Floats, LANES};

/// 16 bytes of a row's block, from byte `16 i` of a field on.
#[inline(always)]
fn sixteenth(field: &[u8], i: usize) -> &[u8; 16] {
    &field.as_chunks().0[i]
}

/// Every byte moved down by `n` bits, with bits of its neighbour on top.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn down(bytes: __m512i, n: usize) -> __m512i {
    _mm512_srlv_epi16(bytes, _mm512_set1_epi16(n as i16))
}

/// `code` plus `value` where the byte of `bits` has bit `bit`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn plus(code: __m512i, bits: __m512i, bit: usize, value: i8) -> __m512i {
    let there = _mm512_test_epi8_mask(bits, _mm512_set1_epi8(1 << bit));
    _mm512_mask_add_epi8(code, there, code, _mm512_set1_epi8(value))
}

/// A format's [`Columns`]: `half` are the codes of one half of a run.
macro_rules! columns {
    ($block:ident, $half:ident, $scales:ident) => {
        impl Columns<256> for $block {
            const SCALED: usize = 8;

            #[inline(always)]
            fn four(_: Avx512, blocks: [&Self; 4], run: usize) -> [__m512i; 2] {
                // SAFETY: the capability.
                unsafe { [$half(blocks, run, 0), $half(blocks, run, 1)] }
            }

            #[inline(always)]
            fn scales(_: Avx512, rows: &Rows<Self>, block: usize, scales: &mut [Floats], mins: &mut [Floats]) {
                // SAFETY: the capability.
                unsafe { $scales(rows.at(block), scales, mins) }
            }
        }
    };
}

columns!(BlockQ2_K, q2, q2_scales);
columns!(BlockQ3_K, q3, q3_scales);
columns!(BlockQ4_K, q4, six_bit_scales);
columns!(BlockQ5_K, q5, six_bit_scales);
columns!(BlockQ6_K, q6, q6_scales);

/// A byte holds four weights that lie 32 apart, within each half of 128.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn two_bits(qs: [&[u8; 64]; 4], run: usize, half: usize) -> __m512i {
    let bytes = beside(qs.map(|qs| sixteenth(qs, run / 4 * 2 + half)));
    _mm512_and_si512(down(bytes, run % 4 * 2), _mm512_set1_epi8(3))
}

/// A byte holds two weights that lie 32 apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn four_bits(qs: [&[u8; 128]; 4], run: usize, half: usize) -> __m512i {
    let bytes = beside(qs.map(|qs| sixteenth(qs, run / 2 * 2 + half)));
    _mm512_and_si512(down(bytes, run % 2 * 4), _mm512_set1_epi8(15))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn q2(blocks: [&BlockQ2_K; 4], run: usize, half: usize) -> __m512i {
    two_bits(each(blocks, |block| &block.qs), run, half)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn q3(blocks: [&BlockQ3_K; 4], run: usize, half: usize) -> __m512i {
    let high = beside(each(blocks, |block| sixteenth(&block.hmask, half)));
    plus(two_bits(each(blocks, |block| &block.qs), run, half), high, run, 4)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn q4(blocks: [&BlockQ4_K; 4], run: usize, half: usize) -> __m512i {
    four_bits(each(blocks, |block| &block.qs), run, half)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn q5(blocks: [&BlockQ5_K; 4], run: usize, half: usize) -> __m512i {
    let high = beside(each(blocks, |block| sixteenth(&block.qh, half)));
    plus(four_bits(each(blocks, |block| &block.qs), run, half), high, run, 16)
}

/// In a half of 128 weights: `ql` has quarters 0 and 1 in its low nibbles, 2 and 3 in its high ones; `qh` has the four of them
/// in two bits each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn q6(blocks: [&BlockQ6_K; 4], run: usize, half: usize) -> __m512i {
    let (part, quarter) = (run / 4, run % 4);
    let low = beside(each(blocks, |block| sixteenth(&block.ql, part * 4 + quarter % 2 * 2 + half)));
    let high = beside(each(blocks, |block| sixteenth(&block.qh, part * 2 + half)));
    let low = _mm512_and_si512(down(low, quarter / 2 * 4), _mm512_set1_epi8(15));
    let high = _mm512_slli_epi16::<4>(_mm512_and_si512(down(high, quarter * 2), _mm512_set1_epi8(3)));
    _mm512_or_si512(low, high)
}

/// Sixteen bytes of every row as four vectors of words.
#[inline]
#[target_feature(enable = "avx512f")]
fn word_by_word(rows: [&[u8; 16]; LANES]) -> [__m512i; 4] {
    let mut quads = [_mm512_setzero_si512(); 4];
    for (i, quads) in quads.iter_mut().enumerate() {
        *quads = beside([rows[i], rows[4 + i], rows[8 + i], rows[12 + i]]);
    }
    turned(quads)
}

/// Byte `i` of every word, times `d`.
#[inline]
#[target_feature(enable = "avx512f")]
fn scaled(words: __m512i, i: usize, d: __m512) -> __m512 {
    let byte = _mm512_and_si512(_mm512_srlv_epi32(words, _mm512_set1_epi32(8 * i as i32)), _mm512_set1_epi32(255));
    _mm512_mul_ps(d, _mm512_cvtepi32_ps(byte))
}

/// The other sign.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn negated(d: __m512) -> __m512 {
    _mm512_xor_ps(d, _mm512_set1_ps(-0.0))
}

/// In a byte the scale of a group, low, and its minimum.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn q2_scales(blocks: [&BlockQ2_K; LANES], scales: &mut [Floats], mins: &mut [Floats]) {
    let (d, dmin) = (halves(each(blocks, |block| block.d)), negated(halves(each(blocks, |block| block.dmin))));
    for (i, words) in word_by_word(each(blocks, |block| &block.scales)).into_iter().enumerate() {
        let [scale, min] = nibbles(words);
        for byte in 0..4 {
            store_floats(scaled(scale, byte, d), &mut scales[4 * i + byte]);
            store_floats(scaled(min, byte, dmin), &mut mins[4 * i + byte]);
        }
    }
}

/// `d (s - 32)`: of s, four bits are nibbles of eight bytes, and two are in four bytes more.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
fn q3_scales(blocks: [&BlockQ3_K; LANES], scales: &mut [Floats], _: &mut [Floats]) {
    let word = |i: usize| each(blocks, |block| u32::from_le_bytes(block.scales.as_chunks().0[i]));
    let (d, high) = (halves(each(blocks, |block| block.d)), words(word(2)));
    let (first, second) = (nibbles(words(word(0))), nibbles(words(word(1))));
    let offset = _mm512_mul_ps(d, _mm512_set1_ps(-32.0));
    for (i, low) in [first[0], second[0], first[1], second[1]].into_iter().enumerate() {
        let high = _mm512_and_si512(_mm512_srlv_epi32(high, _mm512_set1_epi32(2 * i as i32)), _mm512_set1_epi8(3));
        let s = _mm512_or_si512(low, _mm512_slli_epi32::<4>(high));
        for byte in 0..4 {
            // Exact: d has 11 bits and s six.
            store_floats(_mm512_add_ps(scaled(s, byte, d), offset), &mut scales[4 * i + byte]);
        }
    }
}

/// A block begins with d, that of the minima, and three words. The first four scales are the low six bits of the bytes of the
/// first word, the first four minima those of the second; the others have four bits in the third and two above the first ones.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn six_bit_scales<B: Pod>(blocks: [&B; LANES], scales: &mut [Floats], mins: &mut [Floats]) {
    let [ds, first, second, third] = word_by_word(each(blocks, |block| sixteenth(bytemuck::bytes_of(block), 0)));
    let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(ds));
    let dmin = negated(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(ds))));
    let (six, two) = (_mm512_set1_epi8(63), _mm512_set1_epi8(0x30));
    let [scales_low, mins_low] = [_mm512_and_si512(first, six), _mm512_and_si512(second, six)];
    let [scales_four, mins_four] = nibbles(third);
    let scales_two = _mm512_and_si512(_mm512_srli_epi32::<2>(first), two);
    let mins_two = _mm512_and_si512(_mm512_srli_epi32::<2>(second), two);
    let [scales_high, mins_high] = [_mm512_or_si512(scales_four, scales_two), _mm512_or_si512(mins_four, mins_two)];
    let words = [[scales_low, mins_low], [scales_high, mins_high]];
    for (i, [scale, min]) in words.into_iter().enumerate() {
        for byte in 0..4 {
            store_floats(scaled(scale, byte, d), &mut scales[4 * i + byte]);
            store_floats(scaled(min, byte, dmin), &mut mins[4 * i + byte]);
        }
    }
}

/// A signed byte for each group.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw")]
fn q6_scales(blocks: [&BlockQ6_K; LANES], scales: &mut [Floats], _: &mut [Floats]) {
    let d = halves(each(blocks, |block| block.d));
    let bytes = word_by_word(each(blocks, |block| bytemuck::cast_ref::<[i8; 16], [u8; 16]>(&block.scales)));
    for (i, words) in bytes.into_iter().enumerate() {
        for byte in 0..4 {
            let top = _mm512_sllv_epi32(words, _mm512_set1_epi32(24 - 8 * byte as i32));
            let s = _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(top));
            store_floats(_mm512_mul_ps(d, s), &mut scales[4 * i + byte]);
        }
    }
}

//! Unpacking with AVX-512, sixteen rows at once, for the formats where it pays.
//!
//! Vectors go through functions and loops, not through closures or `map`: the compiler left calls of some of those that took
//! vectors, in memory. So do the fields of blocks, by [`each`]: a closure here is compiled for AVX-512, `array::map` is not, and
//! so the one cannot become part of the other; MXFP4 took a third longer.

pub(in crate::cpu::gemm) mod grid;
mod k;
mod thirty_two;

use std::arch::x86_64::*;
use std::marker::PhantomData;

use argon_gguf::Format;
use argon_gguf::quant::blocks::F16;

use super::{Ahead, Coded, Panel, Stretch, clear_from};
use crate::cpu::isa::{Avx512, Floats, LANES, store};

/// A block of `N` weights of which 16 neighbours become 16 bytes by a few operations on vectors.
pub(in crate::cpu::gemm) trait Columns<const N: usize>: Coded<N> {
    /// Runs of 32 columns whose scales are read together, at most [`SCALES`].
    const SCALED: usize;

    /// The codes of columns `32 run..32 run + 32` of four rows' blocks, in order: the first 16 of each row, then the others.
    fn four(avx512: Avx512, blocks: [&Self; 4], run: usize) -> [__m512i; 2];

    /// The scales of the groups of sixteen rows from a block on, as many as there is room for in `scales`, and their minima
    /// where there are any.
    fn scales(avx512: Avx512, rows: &Rows<Self>, block: usize, scales: &mut [Floats], mins: &mut [Floats]);
}

/// Most runs whose scales are read together.
pub(in crate::cpu::gemm) const SCALES: usize = 8;

/// `$then` with the block type of a format that is [`Columns`], else `$none`.
macro_rules! with_columns {
    ($format:expr, $B:ident => $then:expr, $none:expr) => {
        with_columns!(@ $format, $B => $then, $none; Q8_0 BlockQ8_0, Q4_0 BlockQ4_0, Q4_1 BlockQ4_1, Q5_0 BlockQ5_0,
            Q5_1 BlockQ5_1, Q2_K BlockQ2_K, Q3_K BlockQ3_K, Q4_K BlockQ4_K, Q5_K BlockQ5_K, Q6_K BlockQ6_K,
            IQ4_NL BlockIQ4_NL, IQ4_XS BlockIQ4_XS, MXFP4 BlockMXFP4)
    };
    (@ $format:expr, $B:ident => $then:expr, $none:expr; $($variant:ident $block:ident),*) => {
        match $format {
            $(argon_gguf::Format::$variant => { type $B = argon_gguf::quant::blocks::$block; $then })*
            _ => $none,
        }
    };
}
pub(in crate::cpu::gemm) use with_columns;

/// Whether [`unpack`] takes a format.
pub(in crate::cpu::gemm) fn takes(format: Format) -> bool {
    with_columns!(format, _B => true, false)
}

/// Unpacks a stretch of a format that is [taken](takes).
pub(super) fn unpack(avx512: Avx512, weights: &Stretch, ahead: &mut Ahead, panel: &mut Panel) {
    let format = weights.format;
    // SAFETY: the capability.
    with_columns!(format, B => unsafe { all::<B, _>(avx512, weights, ahead, panel) }, unreachable!("{format} is not taken"));
    clear_from(weights.lanes, panel);
}

/// All runs of a panel.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,gfni")]
fn all<B: Columns<N>, const N: usize>(avx512: Avx512, weights: &Stretch, ahead: &mut Ahead, panel: &mut Panel) {
    let rows = Rows::<B>::new(weights);
    let (codes, _) = panel.codes.as_chunks_mut::<8>();
    let groups = 32 / B::GROUP;
    for (run, codes) in codes.iter_mut().enumerate() {
        ahead.step(1);
        if run.is_multiple_of(B::SCALED) {
            let scaled = run * groups..panel.scales.len().min((run + B::SCALED) * groups);
            let mins = if B::MIN { &mut panel.mins[scaled.clone()] } else { &mut [] };
            B::scales(avx512, &rows, run * 32 / N, &mut panel.scales[scaled], mins);
        }
        let [first, last] = rows.codes::<N>(avx512, run);
        for (codes, quads) in codes.as_chunks_mut::<4>().0.iter_mut().zip([first, last]) {
            for (codes, column) in codes.iter_mut().zip(turned(quads)) {
                store(column, codes);
            }
        }
    }
}

/// What `read` gives of every block.
#[inline(always)]
fn each<'a, B, T: Copy, const N: usize>(blocks: [&'a B; N], read: impl Fn(&'a B) -> T) -> [T; N] {
    let mut all = [read(blocks[0]); N];
    for (all, block) in all.iter_mut().zip(blocks) {
        *all = read(block);
    }
    all
}

/// Vector i has four quads of rows i, 4 + i, 8 + i and 12 + i; vector c of the result, quad c of all rows.
#[inline]
#[target_feature(enable = "avx512f")]
fn turned([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab_low, cd_low),
        _mm512_unpackhi_epi64(ab_low, cd_low),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// 16 bytes of four rows.
#[inline]
#[target_feature(enable = "avx512f")]
fn beside(rows: [&[u8; 16]; 4]) -> __m512i {
    // SAFETY: 16 bytes each.
    let [a, b, c, d] = unsafe { rows.map(|row| _mm_loadu_si128(row.as_ptr().cast())) };
    let v = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(v, c), d)
}

/// The low nibble of each byte, or the high one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn nibbles(bytes: __m512i) -> [__m512i; 2] {
    let nibble = _mm512_set1_epi8(15);
    [_mm512_and_si512(bytes, nibble), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), nibble)]
}

/// A vector of floats.
#[inline]
#[target_feature(enable = "avx512f")]
fn store_floats(value: __m512, to: &mut Floats) {
    // SAFETY: the aligned array is one vector long.
    unsafe { _mm512_store_ps(to.0.as_mut_ptr(), value) }
}

/// A vector of floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::cpu::gemm) fn load_floats(from: &Floats) -> __m512 {
    // SAFETY: the aligned array is one vector long.
    unsafe { _mm512_load_ps(from.0.as_ptr()) }
}

/// A vector of words.
#[inline]
#[target_feature(enable = "avx512f")]
fn words(from: [u32; LANES]) -> __m512i {
    // SAFETY: as long as a vector.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

/// A half of each row, in f32.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves(from: [F16; LANES]) -> __m512 {
    // SAFETY: as long as half a vector.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from.as_ptr().cast()) })
}

/// Some blocks of sixteen rows, as many in each.
pub(in crate::cpu::gemm) struct Rows<'a, B> {
    first: [*const B; LANES],
    pub blocks: usize,
    life: PhantomData<&'a B>,
}

impl<'a, B: bytemuck::Pod> Rows<'a, B> {
    /// The blocks of a stretch; rows that are missing repeat the last.
    pub fn new(weights: &Stretch<'a>) -> Self {
        const { assert!(align_of::<B>() == 1) }
        let Stretch { format, bytes, stride, lanes, cols } = weights;
        assert!(size_of::<B>() == format.block_bytes() && *lanes > 0);
        let (start, end) = (cols.start / format.block_len(), cols.end / format.block_len());
        assert!((lanes - 1) * stride + end * size_of::<B>() <= bytes.len() && start <= end);
        let first = bytes[start * size_of::<B>()..].as_ptr();
        // SAFETY: row `lanes - 1` begins inside the bytes, which was checked.
        let first = std::array::from_fn(|row| unsafe { first.add(row.min(lanes - 1) * stride).cast::<B>() });
        Self { first, blocks: end - start, life: PhantomData }
    }

    /// Block `b` of a row, or another one if it has none.
    #[inline(always)]
    pub fn block<'b>(&'b self, row: usize, b: usize, other: &'b B) -> &'b B {
        // SAFETY: inside the bytes that `new` checked.
        if b < self.blocks { unsafe { &*self.first[row].add(b) } } else { other }
    }

    /// The codes of a run of 32 columns: the first 16, then the others. Vector i has rows i, 4 + i, 8 + i and 12 + i.
    #[inline(always)]
    pub fn codes<const N: usize>(&self, avx512: Avx512, run: usize) -> [[__m512i; 4]; 2]
    where
        B: Columns<N>,
    {
        let blocks = self.at(run / (N / 32));
        let four = |i| B::four(avx512, [blocks[i], blocks[4 + i], blocks[8 + i], blocks[12 + i]], run % (N / 32));
        let [a, b, c, d] = [four(0), four(1), four(2), four(3)];
        [[a[0], b[0], c[0], d[0]], [a[1], b[1], c[1], d[1]]]
    }

    /// Block `b` of every row.
    #[inline(always)]
    fn at(&self, b: usize) -> [&'a B; LANES] {
        assert!(b < self.blocks, "block {b} of {}", self.blocks);
        // SAFETY: inside the bytes that `new` checked.
        std::array::from_fn(|row| unsafe { &*self.first[row].add(b) })
    }
}

/// A table in whole cache lines: no look-up reads two.
#[repr(C, align(64))]
struct Lines<const N: usize>([[u8; 64]; N]);

impl<const N: usize> Lines<N> {
    const fn new<const LEN: usize>(table: &[u8; LEN]) -> Self {
        assert!(LEN == 64 * N);
        let mut lines = [[0; 64]; N];
        let mut i = 0;
        while i < LEN {
            lines[i / 64][i % 64] = table[i];
            i += 1;
        }
        Self(lines)
    }

    /// Line `i`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn line(&self, i: usize) -> __m512i {
        bytes(&self.0[i])
    }
}

/// A vector of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
fn bytes(from: &[u8; 64]) -> __m512i {
    // SAFETY: as long as a vector.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

//! Products whose lanes are blocks of one weight row, not weight rows.
//!
//! A format with grids keeps an index for each octet of weights. Looked up for all octets of a row at once, element j of
//! every octet is a vector of its own: no weight has to change its place. So a lane has 32 columns of the weight row, and
//! sixteen lanes 512:
//!
//! ```text
//! for each tile of the block's rows                                 few enough that totals and a chunk stay in the L1 cache
//!     for each chunk of 512 columns
//!         for each pair of weight rows                              unpacked in registers, and kept for further tiles
//!             for each row of activations
//!                 total[row, weight row] += products of the chunk, lane by lane
//!     out[row, weight row] = sum of the lanes
//! ```
//!
//! It is the same sum as in [`super::integer`], in another order.

use std::arch::x86_64::*;

use argon_gguf::Format;
use argon_gguf::quant::blocks::*;
use bytemuck::Pod;

use super::ahead::Ahead;
use super::quantise::Quantised;
use super::tune;
use super::unpack::avx512::{Rows, load_floats as load};
use super::unpack::{Order, Stretch, grown};
use crate::cpu::isa::{Avx512, Floats, LANES};

/// 512 columns of a weight row, in sixteen lanes.
#[derive(Clone, Copy)]
pub(super) struct Unpacked {
    /// Quads of codes: half of them for each group of 16 columns.
    pub codes: [__m512i; 8],
    /// Scales of a lane's groups of 16, times [`Grid::FACTOR`].
    pub scales: [__m512; 2],
}

/// A block of 256 weights that are looked up.
pub(super) trait Grid: Pod {
    /// Scales of 32 weights: 1 or 2.
    const GROUPS: usize;
    /// What the scales are to be multiplied by.
    const FACTOR: f32;

    /// Two neighbouring blocks of a weight row.
    fn unpack(avx512: Avx512, a: &Self, b: &Self) -> Unpacked;
}

/// The order of columns in which a format's codes come; `None` for a format that is not computed so.
pub(super) fn order(format: Format) -> Option<Order> {
    match format {
        Format::IQ2_XXS | Format::IQ2_XS | Format::IQ2_S => Some(Order::Pairs),
        Format::IQ3_XXS | Format::IQ3_S => Some(Order::Fours),
        _ => None,
    }
}

/// Rows of activations and their sums with sixteen weight rows.
pub(super) struct Block<'a> {
    pub x: &'a Quantised,
    pub rows: &'a [usize],
    pub sums: &'a mut [Floats],
}

/// Most rows of a tile: their totals with sixteen weight rows (1 KB a row) and a chunk of their activations (704 bytes) stay in
/// the L1 cache. With 40 rows an expert, 8 to 24 are within 2 %, 64 take 18 % longer.
const MOST: usize = 24;

/// What one thread works with.
#[derive(Default)]
pub(super) struct Memory {
    /// `[pair of weight rows][row][weight row]`, each with its lanes
    totals: Vec<Floats>,
    /// `[chunk][pair of weight rows]`
    pairs: Vec<[Unpacked; 2]>,
}

/// Adds the products of a block of rows with all columns of a panel. `V` is the number of words in a block of activations.
pub(super) fn multiply<const PLANES: usize, const V: usize>(
    avx512: Avx512,
    weights: &Stretch,
    ahead: &mut Ahead,
    memory: &mut Memory,
    block: Block,
) {
    assert!(block.rows.len() == block.sums.len());
    macro_rules! panel {
        ($block:ident) => {
            if block.rows.len() <= MOST {
                panel::<$block, PLANES, V, false>(avx512, weights, ahead, memory, block)
            } else {
                panel::<$block, PLANES, V, true>(avx512, weights, ahead, memory, block)
            }
        };
    }
    // SAFETY: `avx512` proves the features.
    unsafe {
        match weights.format {
            Format::IQ2_XXS => panel!(BlockIQ2_XXS),
            Format::IQ2_XS => panel!(BlockIQ2_XS),
            Format::IQ2_S => panel!(BlockIQ2_S),
            Format::IQ3_XXS => panel!(BlockIQ3_XXS),
            Format::IQ3_S => panel!(BlockIQ3_S),
            format => unreachable!("{format} has no order"),
        }
    }
}

/// `KEEP` where there are several tiles: weights that are also stored do not stay in the registers, which costs a tenth of the
/// time where rows are few.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,gfni")]
fn panel<B: Grid, const PLANES: usize, const V: usize, const KEEP: bool>(
    avx512: Avx512,
    weights: &Stretch,
    ahead: &mut Ahead,
    memory: &mut Memory,
    block: Block,
) {
    let (weights, none) = (Rows::<B>::new(weights), B::zeroed());
    let chunks = weights.blocks.div_ceil(2);
    let (x, x_chunks) = block.x.across::<V>();
    let Memory { totals, pairs } = memory;
    pairs.clear();
    for (i, tile) in tune::tiles(block.rows.len(), MOST).enumerate() {
        let (rows, sums) = (&block.rows[tile.clone()], &mut block.sums[tile.clone()]);
        let height = rows.len();
        let totals = grown(totals, LANES * height);
        for chunk in 0..chunks {
            let added = if chunk == 0 { 0 } else { u16::MAX };
            for (n, totals) in totals.chunks_exact_mut(2 * height).enumerate() {
                let (totals, _) = totals.as_chunks_mut::<2>();
                if !KEEP || i == 0 {
                    ahead.step(2);
                    let (row, b) = (2 * n, 2 * chunk);
                    let pair = [
                        B::unpack(avx512, weights.block(row, b, &none), weights.block(row, b + 1, &none)),
                        B::unpack(avx512, weights.block(row + 1, b, &none), weights.block(row + 1, b + 1, &none)),
                    ];
                    if KEEP {
                        pairs.push(pair);
                    }
                    for (&row, totals) in rows.iter().zip(totals) {
                        add::<B, PLANES, V>(&pair, &x[row * x_chunks + chunk], totals, added);
                    }
                } else {
                    let pair = pairs[chunk * (LANES / 2) + n];
                    for (&row, totals) in rows.iter().zip(totals) {
                        add::<B, PLANES, V>(&pair, &x[row * x_chunks + chunk], totals, added);
                    }
                }
            }
        }
        for (row, sum) in sums.iter_mut().enumerate() {
            let lanes = std::array::from_fn(|n| load(&totals[(n / 2 * height + row) * 2 + n % 2]));
            let total = _mm512_mul_ps(sums_of_lanes(lanes), _mm512_set1_ps(B::FACTOR));
            // SAFETY: the aligned array is one vector long.
            unsafe { _mm512_store_ps(sum.0.as_mut_ptr(), _mm512_add_ps(load(sum), total)) };
        }
    }
}

/// Adds the products of a chunk of activations with two weight rows to their totals, or to 0 where `added` has no bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn add<B: Grid, const PLANES: usize, const V: usize>(
    pair: &[Unpacked; 2],
    x: &[Floats; V],
    totals: &mut [Floats; 2],
    added: __mmask16,
) {
    let word = |i: usize| _mm512_castps_si512(load(&x[i]));
    let mut sums = [[_mm512_setzero_si512(); 2]; 2];
    for (g, sums) in sums.iter_mut().enumerate() {
        let (mut low, mut high) = ([word(8 * PLANES + g); 2], [_mm512_setzero_si512(); 2]);
        for q in 4 * g..4 * g + 4 {
            for n in 0..2 {
                if PLANES == 2 {
                    high[n] = _mm512_dpbusd_epi32(high[n], pair[n].codes[q], word(q));
                }
                low[n] = _mm512_dpbusd_epi32(low[n], pair[n].codes[q], word((PLANES - 1) * 8 + q));
            }
        }
        for n in 0..2 {
            sums[n] = if PLANES == 2 { _mm512_add_epi32(_mm512_slli_epi32::<8>(high[n]), low[n]) } else { low[n] };
        }
    }
    for n in 0..2 {
        let [first, second] = pair[n].scales;
        let scaled = if B::GROUPS == 1 {
            _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(sums[0][n], sums[1][n])), first)
        } else {
            let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[0][n]), first);
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[1][n]), second, scaled)
        };
        // SAFETY: the aligned arrays are one vector long.
        unsafe {
            let before = _mm512_maskz_load_ps(added, totals[n].0.as_ptr());
            let total = _mm512_fmadd_ps(scaled, load(&x[8 * PLANES + 2]), before);
            _mm512_store_ps(totals[n].0.as_mut_ptr(), total);
        }
    }
}

/// Lane n of the result is the sum of the lanes of vector n.
#[inline]
#[target_feature(enable = "avx512f")]
fn sums_of_lanes(v: [__m512; LANES]) -> __m512 {
    let mut two = [_mm512_setzero_ps(); 8];
    for (i, two) in two.iter_mut().enumerate() {
        let (a, b) = (v[2 * i], v[2 * i + 1]);
        *two = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    }
    let mut four = [_mm512_setzero_ps(); 4];
    for (i, four) in four.iter_mut().enumerate() {
        let (a, b) = (_mm512_castps_pd(two[2 * i]), _mm512_castps_pd(two[2 * i + 1]));
        let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
        *four = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    }
    // Lanes of 128 bits have four vectors each; they are summed two by two.
    let halves = |a, b| _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
    halves(halves(four[0], four[1]), halves(four[2], four[3]))
}

#[cfg(test)]
mod tests {
    use argon_gguf::decode_row;
    use argon_gguf::quant::blocks::F16;

    use super::*;

    /// The codes of two blocks, less 64, times their scales are the weights that the definition decodes, in every column.
    #[test]
    fn two_blocks_are_the_decoded_weights() {
        let Some(avx512) = crate::cpu::isa::Isa::detect().avx512() else { return };
        fn check<B: Grid>(avx512: Avx512, format: Format) {
            let mut state = 1u64;
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 40) as u8
            };
            for _ in 0..50 {
                let mut bytes: Vec<u8> = (0..2 * size_of::<B>()).map(|_| next()).collect();
                for (block, d) in bytes.chunks_exact_mut(size_of::<B>()).zip([0.5, -3.25]) {
                    block[..2].copy_from_slice(&F16::from_f32(d).0);
                }
                let mut want = vec![0.0; 512];
                decode_row(format, &bytes, &mut want);
                let blocks: &[B] = bytemuck::cast_slice(&bytes);
                let Unpacked { codes, scales } = B::unpack(avx512, &blocks[0], &blocks[1]);
                // SAFETY: vectors are arrays of numbers.
                let codes = unsafe { std::mem::transmute::<[__m512i; 8], [[u8; 64]; 8]>(codes) };
                // SAFETY: as above.
                let scales = unsafe { std::mem::transmute::<[__m512; 2], [[f32; LANES]; 2]>(scales) };
                for (k, want) in want.iter().enumerate() {
                    let (lane, half, column) = (k / 32, k / 16 % 2, k % 16);
                    let order = order(format).expect("an order");
                    let i = (0..16).find(|&i| order.column(i) == column).expect("every column");
                    let code = f32::from(codes[4 * half + i / 4][4 * lane + i % 4]) - 64.0;
                    let got = code * scales[if B::GROUPS == 1 { 0 } else { half }][lane] * B::FACTOR;
                    assert_eq!(got, *want, "{format} column {k}");
                }
            }
        }
        check::<BlockIQ2_XXS>(avx512, Format::IQ2_XXS);
        check::<BlockIQ2_XS>(avx512, Format::IQ2_XS);
        check::<BlockIQ2_S>(avx512, Format::IQ2_S);
        check::<BlockIQ3_XXS>(avx512, Format::IQ3_XXS);
        check::<BlockIQ3_S>(avx512, Format::IQ3_S);
    }
}

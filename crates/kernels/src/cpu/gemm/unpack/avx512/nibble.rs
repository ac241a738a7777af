//! Formats with two weights in a byte.

use std::arch::x86_64::*;

use argon_gguf::quant::blocks::*;

use super::super::iq::UNEVEN;
use super::{Ahead, Panel, Rows, Stretch, Supply, bytes};
use crate::cpu::isa::{Avx512, Codes, Floats, store};

/// What vpermb takes as a table of 16 entries, whatever is in the upper bits of an index.
const fn four_times(table: &[u8; 16]) -> [u8; 64] {
    let mut all = [0; 64];
    let mut i = 0;
    while i < 64 {
        all[i] = table[i % 16];
        i += 1;
    }
    all
}

static UNEVEN_TABLE: [u8; 64] = four_times(&UNEVEN);

/// IQ4_NL, a block of 32 columns at a time.
pub(super) struct Iq4Nl<'a, 'b, 'c> {
    rows: Rows<'a, BlockIQ4_NL>,
    ahead: &'c mut Ahead<'b>,
    /// The scales of four blocks.
    scales: [__m256i; 4],
}

impl<'a, 'b, 'c> Iq4Nl<'a, 'b, 'c> {
    pub fn new(_: Avx512, weights: &Stretch<'a>, ahead: &'c mut Ahead<'b>) -> Self {
        Self { rows: Rows::new(weights), ahead, scales: bytemuck::Zeroable::zeroed() }
    }

    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn read_scales(&mut self, b: usize) {
        self.scales = scales_of_four(&self.rows, b);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn unpack(&self, b: usize, scales: &mut Floats, codes: &mut [Codes; 8]) {
        let table = bytes(&UNEVEN_TABLE);
        // SAFETY: the aligned array is one vector long.
        unsafe { _mm512_store_ps(scales.0.as_mut_ptr(), _mm512_cvtph_ps(self.scales[b % 4])) };
        let blocks = self.rows.at(b);
        let mut quads = [_mm512_setzero_si512(); 4];
        for (i, quads) in quads.iter_mut().enumerate() {
            // SAFETY: 16 bytes each.
            unsafe {
                let v = _mm512_castsi128_si512(_mm_loadu_si128(blocks[i].qs.as_ptr().cast()));
                let v = _mm512_inserti32x4::<1>(v, _mm_loadu_si128(blocks[4 + i].qs.as_ptr().cast()));
                let v = _mm512_inserti32x4::<2>(v, _mm_loadu_si128(blocks[8 + i].qs.as_ptr().cast()));
                *quads = _mm512_inserti32x4::<3>(v, _mm_loadu_si128(blocks[12 + i].qs.as_ptr().cast()));
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

impl Supply for Iq4Nl<'_, '_, '_> {
    #[inline(always)]
    fn block(&mut self, b: usize, panel: &mut Panel) {
        self.ahead.step(1);
        let (codes, _) = panel.codes.as_chunks_mut();
        // SAFETY: `new` took the capability.
        unsafe {
            if b.is_multiple_of(4) {
                self.read_scales(b);
            }
            self.unpack(b, &mut panel.scales[b], &mut codes[b]);
        }
    }
}

/// The halves in front of blocks `b..b + 4` of each row, 18 bytes apart; zeros for blocks that are not there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn scales_of_four(rows: &Rows<BlockIQ4_NL>, b: usize) -> [__m256i; 4] {
    let bytes = 18 * (rows.blocks - b);
    let there = if bytes < 64 { (1 << bytes) - 1 } else { u64::MAX };
    // For every eight bytes of the result.
    let places = _mm512_set1_epi64(i64::from_le_bytes([0, 1, 18, 19, 36, 37, 54, 55]));
    let mut eights = [_mm512_setzero_si512(); 2];
    for (row, block) in rows.at(b).into_iter().enumerate() {
        // SAFETY: the mask covers blocks of the row alone.
        let block = unsafe { _mm512_maskz_loadu_epi8(there, std::ptr::from_ref(block).cast()) };
        let eight = &mut eights[row / 8];
        *eight = _mm512_mask_permutexvar_epi8(*eight, 0xff << (8 * (row % 8)), places, block);
    }
    let mut halves = [_mm256_setzero_si256(); 4];
    for (i, halves) in halves.iter_mut().enumerate() {
        let first = _mm512_set_epi64(
            0,
            0,
            0,
            0,
            0x003c_0038_0034_0030,
            0x002c_0028_0024_0020,
            0x001c_0018_0014_0010,
            0x000c_0008_0004_0000,
        );
        let index = _mm512_add_epi16(first, _mm512_set1_epi16(i as i16));
        *halves = _mm512_castsi512_si256(_mm512_permutex2var_epi16(eights[0], index, eights[1]));
    }
    halves
}

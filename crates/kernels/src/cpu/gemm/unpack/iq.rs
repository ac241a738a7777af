//! Formats whose weights are entries of a codebook. Signed magnitudes stand around a zero in the middle.

use argon_gguf::quant::blocks::*;
use argon_gguf::quant::tables::*;

use super::{Coded, half, nibbles};

/// The zero of signed magnitudes up to 62.
const MIDDLE: u8 = 64;

/// A byte of ones for each bit of a byte.
static MASKS: [u64; 256] = {
    let mut masks = [0; 256];
    let mut i = 0;
    while i < 8 * masks.len() {
        masks[i / 8] |= if (i / 8) >> (i % 8) & 1 == 1 { 0xff << (8 * (i % 8)) } else { 0 };
        i += 1;
    }
    masks
};

/// Eight magnitudes with signs: bit `j` of `signs` makes weight `j` negative. No byte carries into the next: `64 +- magnitude`
/// is in 2..=126.
#[inline(always)]
fn signed(magnitudes: u64, signs: u8, codes: &mut [u8; 8]) {
    let zeros = u64::from_le_bytes([MIDDLE; 8]);
    *codes = (zeros + magnitudes - 2 * (magnitudes & MASKS[usize::from(signs)])).to_le_bytes();
}

/// Two groups of four magnitudes as one of eight.
#[inline(always)]
fn eight(first: u32, second: u32) -> u64 {
    u64::from(second) << 32 | u64::from(first)
}

/// Nibble `i` of a byte string, the low one of each byte first.
#[inline(always)]
fn half_byte(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (i % 2 * 4) & 15
}

impl BlockWord for BlockIQ2_XXS {
    #[inline(always)]
    fn word(&self, run: usize) -> u32 {
        let q = &self.qs[run * 8 + 4..];
        u32::from_le_bytes([q[0], q[1], q[2], q[3]])
    }
}

impl BlockWord for BlockIQ3_XXS {
    #[inline(always)]
    fn word(&self, run: usize) -> u32 {
        u32::from_le_bytes(self.scales_and_signs.as_chunks().0[run])
    }
}

/// A word for each run of 32 weights: four 7-bit sign masks and a 4-bit scale.
trait BlockWord {
    fn word(&self, run: usize) -> u32;

    /// Signs of the eight weights `i` of a run.
    #[inline(always)]
    fn signs(&self, run: usize, i: usize) -> u8 {
        EVEN_SIGNS[(self.word(run) >> (7 * i) & 127) as usize]
    }

    /// Scale of a run.
    #[inline(always)]
    fn run_scale(&self, run: usize) -> f32 {
        0.5 + (self.word(run) >> 28) as f32
    }
}

impl Coded<256> for BlockIQ2_XXS {
    const ZERO: u8 = MIDDLE;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (i, codes) in codes.as_chunks_mut().0.iter_mut().enumerate() {
            let index = self.qs[i / 4 * 8 + i % 4];
            signed(IQ2XXS_GRID[usize::from(index)], self.signs(i / 4, i % 4), codes);
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * self.run_scale(group) * 0.25
    }
}

impl Coded<256> for BlockIQ2_XS {
    const ZERO: u8 = MIDDLE;
    const GROUP: usize = 16;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (q, codes) in self.qs.iter().zip(codes.as_chunks_mut().0) {
            let q = usize::from(q.get());
            signed(IQ2XS_GRID[q & 511], EVEN_SIGNS[q >> 9], codes);
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * (0.5 + f32::from(half_byte(&self.scales, group))) * 0.25
    }
}

impl Coded<256> for BlockIQ2_S {
    const ZERO: u8 = MIDDLE;
    const GROUP: usize = 16;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (i, codes) in codes.as_chunks_mut().0.iter_mut().enumerate() {
            let high = usize::from(self.qh[i / 4] >> (i % 4 * 2) & 3);
            signed(IQ2S_GRID[high << 8 | usize::from(self.qs[i])], self.signs[i], codes);
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * (0.5 + f32::from(half_byte(&self.scales, group))) * 0.25
    }
}

impl Coded<256> for BlockIQ3_XXS {
    const ZERO: u8 = MIDDLE;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (i, codes) in codes.as_chunks_mut().0.iter_mut().enumerate() {
            let [a, b] = [0, 1].map(|j| IQ3XXS_GRID[usize::from(self.qs[2 * i + j])]);
            signed(eight(a, b), self.signs(i / 4, i % 4), codes);
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * self.run_scale(group) * 0.5
    }
}

impl Coded<256> for BlockIQ3_S {
    const ZERO: u8 = MIDDLE;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (i, codes) in codes.as_chunks_mut().0.iter_mut().enumerate() {
            let [a, b] = [2 * i, 2 * i + 1].map(|i| {
                let ninth = usize::from(self.qh[i / 8] >> (i % 8) & 1);
                IQ3S_GRID[ninth << 8 | usize::from(self.qs[i])]
            });
            signed(eight(a, b), self.signs[i], codes);
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * f32::from(1 + 2 * half_byte(&self.scales, group))
    }
}

/// Eight values of {-1, 0, 1} moved by an eighth, up or down, in eighths.
#[inline(always)]
fn shifted(entry: u64, down: bool, codes: &mut [u8; 8]) {
    let zero = if down { EIGHTHS - 1 } else { EIGHTHS + 1 };
    *codes = entry.to_le_bytes().map(|unit| zero.wrapping_add(unit.wrapping_mul(8)));
}

/// The zero of values from -9/8 to 9/8.
const EIGHTHS: u8 = 9;

impl Coded<256> for BlockIQ1_S {
    const ZERO: u8 = EIGHTHS;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (i, codes) in codes.as_chunks_mut().0.iter_mut().enumerate() {
            let qh = usize::from(self.qh[i / 4].get());
            let index = (qh >> (i % 4 * 3) & 7) << 8 | usize::from(self.qs[i]);
            shifted(IQ1S_GRID[index], qh & 0x8000 != 0, codes);
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * f32::from(2 * (self.qh[group].get() >> 12 & 7) + 1) * 0.125
    }
}

impl Coded<256> for BlockIQ1_M {
    const ZERO: u8 = EIGHTHS;
    const GROUP: usize = 16;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (i, codes) in codes.as_chunks_mut().0.iter_mut().enumerate() {
            let high = usize::from(self.qh[i / 2] >> (i % 2 * 4));
            shifted(IQ1S_GRID[(high & 7) << 8 | usize::from(self.qs[i])], high & 8 != 0, codes);
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        // The scale of the scales is the top nibbles of the four words, the first one lowest.
        let bits = self.scales.iter().rev().fold(0, |bits, word| bits << 4 | word.get() >> 12);
        let scale = self.scales[group / 4].get() >> (group % 4 * 3) & 7;
        half(F16(bits.to_le_bytes())) * f32::from(2 * scale + 1) * 0.125
    }
}

/// The uneven values, moved so that none is negative.
pub(super) static UNEVEN: [u8; 16] = {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = IQ4_NL_VALUES[i] as u8 ^ 0x80;
        i += 1;
    }
    codes
};

impl Coded<32> for BlockIQ4_NL {
    const ZERO: u8 = 128;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 32]) {
        nibbles(&self.qs, codes);
        for code in codes {
            *code = UNEVEN[usize::from(*code)];
        }
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<256> for BlockIQ4_XS {
    const ZERO: u8 = 128;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (codes, qs) in codes.as_chunks_mut::<32>().0.iter_mut().zip(self.qs.as_chunks::<16>().0) {
            nibbles(qs, codes);
        }
        for code in codes {
            *code = UNEVEN[usize::from(*code)];
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        let high = (self.scales_h.get() >> (group * 2) & 3) as u8;
        half(self.d) * (f32::from(high << 4 | half_byte(&self.scales_l, group)) - 32.0)
    }
}

//! One and two bits, ternary digits, and 4-bit floats.

use argon_gguf::quant::blocks::*;
use argon_gguf::quant::tables::FP4_VALUES;

use super::{Coded, half, nibbles};

impl Coded<128> for BlockQ1_0 {
    const ZERO: u8 = 1;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 128]) {
        for (j, code) in codes.iter_mut().enumerate() {
            *code = (self.qs[j / 8] >> (j % 8) & 1) * 2;
        }
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<64> for BlockQ2_0 {
    const ZERO: u8 = 1;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 64]) {
        for (j, code) in codes.iter_mut().enumerate() {
            *code = self.qs[j / 4] >> (j % 4 * 2) & 3;
        }
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<256> for BlockTQ2_0 {
    const ZERO: u8 = 1;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (code, q) in codes.iter_mut().zip(&self.qs[run / 4 * 32..]) {
                *code = q >> (run % 4 * 2) & 3;
            }
        }
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<256> for BlockTQ1_0 {
    const ZERO: u8 = 1;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        let (first, rest) = codes.split_at_mut(160);
        let (second, third) = rest.split_at_mut(80);
        digits(&self.qs[..32], first);
        digits(&self.qs[32..], second);
        digits(&self.qh, third);
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }
}

/// Digit `n` of every byte, then digit `n + 1`. A byte is a fraction of 256 in base 3: multiplied by 3^n (modulo 256) and
/// by 3, its next digit stands above the point.
#[inline(always)]
fn digits(bytes: &[u8], codes: &mut [u8]) {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    for (run, power) in codes.chunks_exact_mut(bytes.len()).zip(POWERS) {
        for (code, byte) in run.iter_mut().zip(bytes) {
            let tripled = u16::from(byte.wrapping_mul(power)) * 3;
            *code = (tripled >> 8) as u8;
        }
    }
}

/// The largest 4-bit float, doubled: what makes all of them positive.
const LARGEST: u8 = 12;

/// The 4-bit floats, doubled, moved so that none is negative.
pub(super) static FP4: [u8; 16] = {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = (FP4_VALUES[i] + LARGEST as i8) as u8;
        i += 1;
    }
    codes
};

impl Coded<32> for BlockMXFP4 {
    const ZERO: u8 = LARGEST;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 32]) {
        nibbles(&self.qs, codes);
        for code in codes {
            *code = FP4[usize::from(*code)];
        }
    }

    /// 2^(e - 128), as the values are doubled.
    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        match self.e {
            0 | 1 => f32::from_bits(0x0020_0000 << self.e),
            e => f32::from_bits(u32::from(e - 1) << 23),
        }
    }
}

impl Coded<64> for BlockNVFP4 {
    const ZERO: u8 = LARGEST;
    const GROUP: usize = 16;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 64]) {
        for (codes, qs) in codes.as_chunks_mut::<16>().0.iter_mut().zip(self.qs.as_chunks::<8>().0) {
            nibbles(qs, codes);
        }
        for code in codes {
            *code = FP4[usize::from(*code)];
        }
    }

    /// Half of an unsigned E4M3 float (bias 7, top bit ignored), as the values are doubled; 0 where E4M3 has its NaN.
    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        let bits = self.d[group];
        let (exponent, mantissa) = (u32::from(bits >> 3 & 15), f32::from(bits & 7));
        match (bits, exponent) {
            (0x7f, _) => 0.0,
            (_, 0) => mantissa / 1024.0,
            _ => (1.0 + mantissa / 8.0) * f32::from_bits((exponent + 127 - 8) << 23),
        }
    }
}

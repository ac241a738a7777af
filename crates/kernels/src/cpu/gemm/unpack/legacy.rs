//! One scale, perhaps a minimum, in 32 weights.

use argon_gguf::quant::blocks::*;

use super::{Coded, half, nibbles};

impl Coded<32> for BlockQ8_0 {
    const ZERO: u8 = 128;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 32]) {
        for (code, q) in codes.iter_mut().zip(self.qs) {
            *code = q as u8 ^ 0x80;
        }
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<32> for BlockQ4_0 {
    const ZERO: u8 = 8;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 32]) {
        nibbles(&self.qs, codes);
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<32> for BlockQ4_1 {
    const ZERO: u8 = 0;
    const GROUP: usize = 32;
    const MIN: bool = true;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 32]) {
        nibbles(&self.qs, codes);
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }

    #[inline(always)]
    fn min(&self, _: usize) -> f32 {
        half(self.m)
    }
}

impl Coded<32> for BlockQ5_0 {
    const ZERO: u8 = 16;
    const GROUP: usize = 32;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 32]) {
        five_bits(&self.qs, self.qh, codes);
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }
}

impl Coded<32> for BlockQ5_1 {
    const ZERO: u8 = 0;
    const GROUP: usize = 32;
    const MIN: bool = true;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 32]) {
        five_bits(&self.qs, self.qh, codes);
    }

    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        half(self.d)
    }

    #[inline(always)]
    fn min(&self, _: usize) -> f32 {
        half(self.m)
    }
}

/// Nibbles with bit `j` of `qh` on top of nibble `j`.
#[inline(always)]
fn five_bits(qs: &[u8; 16], qh: [u8; 4], codes: &mut [u8; 32]) {
    nibbles(qs, codes);
    for (j, code) in codes.iter_mut().enumerate() {
        *code |= (qh[j / 8] >> (j % 8) & 1) << 4;
    }
}

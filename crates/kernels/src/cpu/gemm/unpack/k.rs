//! Super-blocks of 256 weights whose groups have small integer scales. Loops have constant bounds and work on copies of
//! arrays of that length: such loops become vector code, those over slices did not.

#![allow(clippy::needless_range_loop)]

use argon_gguf::quant::blocks::*;

use super::{Coded, half};

impl Coded<256> for BlockQ2_K {
    const ZERO: u8 = 0;
    const GROUP: usize = 16;
    const MIN: bool = true;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        two_bits(&self.qs, codes);
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * f32::from(self.scales[group] & 15)
    }

    #[inline(always)]
    fn min(&self, group: usize) -> f32 {
        -(half(self.dmin) * f32::from(self.scales[group] >> 4))
    }
}

impl Coded<256> for BlockQ3_K {
    const ZERO: u8 = 4;
    const GROUP: usize = 16;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        two_bits(&self.qs, codes);
        for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (mut out, high) = (*codes, self.hmask);
            for i in 0..32 {
                out[i] |= (high[i] >> run & 1) << 2;
            }
            *codes = out;
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        let low = self.scales[group % 8] >> (group / 8 * 4) & 15;
        let high = self.scales[8 + group % 4] >> (group / 4 * 2) & 3;
        half(self.d) * (f32::from(high << 4 | low) - 32.0)
    }
}

/// A byte holds four weights that lie 32 apart, within each half of 128.
#[inline(always)]
fn two_bits(qs: &[u8; 64], codes: &mut [u8; 256]) {
    for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (mut out, qs) = (*codes, qs.as_chunks::<32>().0[run / 4]);
        for i in 0..32 {
            out[i] = qs[i] >> (run % 4 * 2) & 3;
        }
        *codes = out;
    }
}

impl Coded<256> for BlockQ4_K {
    const ZERO: u8 = 0;
    const GROUP: usize = 32;
    const MIN: bool = true;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        four_bits(&self.qs, codes);
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * f32::from(scale_and_min(&self.scales, group).0)
    }

    #[inline(always)]
    fn min(&self, group: usize) -> f32 {
        -(half(self.dmin) * f32::from(scale_and_min(&self.scales, group).1))
    }
}

impl Coded<256> for BlockQ5_K {
    const ZERO: u8 = 0;
    const GROUP: usize = 32;
    const MIN: bool = true;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        four_bits(&self.qs, codes);
        for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (mut out, high) = (*codes, self.qh);
            for i in 0..32 {
                out[i] |= (high[i] >> run & 1) << 4;
            }
            *codes = out;
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * f32::from(scale_and_min(&self.scales, group).0)
    }

    #[inline(always)]
    fn min(&self, group: usize) -> f32 {
        -(half(self.dmin) * f32::from(scale_and_min(&self.scales, group).1))
    }
}

/// A byte holds two weights that lie 32 apart.
#[inline(always)]
fn four_bits(qs: &[u8; 128], codes: &mut [u8; 256]) {
    for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (mut out, qs) = (*codes, qs.as_chunks::<32>().0[run / 2]);
        for i in 0..32 {
            out[i] = qs[i] >> (run % 2 * 4) & 15;
        }
        *codes = out;
    }
}

/// The 6-bit scale and minimum of a group. The first four have theirs in the low six bits of a byte each; the others have
/// four bits in the last four bytes and two bits above the first ones.
#[inline(always)]
fn scale_and_min(packed: &[u8; 12], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        (packed[group - 4] >> 6 << 4 | low & 15, packed[group] >> 6 << 4 | low >> 4)
    }
}

impl Coded<256> for BlockQ6_K {
    const ZERO: u8 = 32;
    const GROUP: usize = 16;

    #[inline(always)]
    fn codes(&self, codes: &mut [u8; 256]) {
        for (run, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            // In a half of 128 weights: `ql` has quarters 0 and 1 in its low nibbles, 2 and 3 in its high ones; `qh` has the
            // four of them in two bits each.
            let (half, quarter) = (run / 4, run % 4);
            let low = self.ql.as_chunks::<32>().0[half * 2 + quarter % 2];
            let (mut out, high) = (*codes, self.qh.as_chunks::<32>().0[half]);
            for i in 0..32 {
                out[i] = (high[i] >> (quarter * 2) & 3) << 4 | low[i] >> (quarter / 2 * 4) & 15;
            }
            *codes = out;
        }
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        half(self.d) * f32::from(self.scales[group])
    }
}

//! Super-blocks of 256 weights whose groups have small integer scales.

use super::Block;
use crate::quant::blocks::*;

impl Block<256> for BlockQ2_K {
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (group, (out, scale)) in out.as_chunks_mut::<16>().0.iter_mut().zip(self.scales).enumerate() {
            let scaled = d * f32::from(scale & 15);
            let min = dmin * f32::from(scale >> 4);
            for (value, q) in out.iter_mut().zip(two_bits(&self.qs, group)) {
                *value = scaled * f32::from(q) - min;
            }
        }
    }
}

impl Block<256> for BlockQ3_K {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (group, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let scaled = d * (f32::from(self.scale(group)) - 32.0);
            let high = &self.hmask[group % 2 * 16..][..16];
            for ((value, q), high) in out.iter_mut().zip(two_bits(&self.qs, group)).zip(high) {
                let third = high >> (group / 2) & 1;
                *value = scaled * (f32::from(third << 2 | q) - 4.0);
            }
        }
    }
}

impl BlockQ3_K {
    /// The 6-bit scale of a group, still offset by 32.
    fn scale(&self, group: usize) -> u8 {
        let low = self.scales[group % 8] >> (group / 8 * 4) & 15;
        let high = self.scales[8 + group % 4] >> (group / 4 * 2) & 3;
        high << 4 | low
    }
}

/// The two bits of each weight in a group of 16: a byte holds four weights that lie 32 apart.
fn two_bits(qs: &[u8; 64], group: usize) -> impl Iterator<Item = u8> + '_ {
    let (half, shift) = (group / 8, group % 8 / 2 * 2);
    qs[half * 32 + group % 2 * 16..][..16].iter().map(move |q| q >> shift & 3)
}

impl Block<256> for BlockQ4_K {
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_and_min(&self.scales, group);
            let (scaled, min) = (d * f32::from(scale), dmin * f32::from(min));
            for (value, q) in out.iter_mut().zip(four_bits(&self.qs, group)) {
                *value = scaled * f32::from(q) - min;
            }
        }
    }
}

impl Block<256> for BlockQ5_K {
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, min) = scale_and_min(&self.scales, group);
            let (scaled, min) = (d * f32::from(scale), dmin * f32::from(min));
            for ((value, q), high) in out.iter_mut().zip(four_bits(&self.qs, group)).zip(self.qh) {
                *value = scaled * f32::from((high >> group & 1) << 4 | q) - min;
            }
        }
    }
}

/// The nibble of each weight in a group of 32: a byte holds two weights that lie 32 apart.
fn four_bits(qs: &[u8; 128], group: usize) -> impl Iterator<Item = u8> + '_ {
    let shift = group % 2 * 4;
    qs[group / 2 * 32..][..32].iter().map(move |q| q >> shift & 15)
}

/// The 6-bit scale and minimum of a group of 32. The first four groups have theirs in the low six bits of a byte each;
/// the others have four bits in the last four bytes and the two bits that are left over above the first ones.
fn scale_and_min(packed: &[u8; 12], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        (packed[group - 4] >> 6 << 4 | low & 15, packed[group] >> 6 << 4 | low >> 4)
    }
}

impl Block<256> for BlockQ6_K {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (group, (out, scale)) in out.as_chunks_mut::<16>().0.iter_mut().zip(self.scales).enumerate() {
            // Within a half of 128 weights, in quarters of 32: `ql` has the quarters 0 and 1 in its low nibbles and
            // 2 and 3 in its high ones; `qh` has the four of them in two bits each.
            let (half, quarter, odd) = (group / 8, group % 8 / 2, group % 2 * 16);
            let low = &self.ql[half * 64 + quarter % 2 * 32 + odd..][..16];
            let high = &self.qh[half * 32 + odd..][..16];
            let scaled = d * f32::from(scale);
            for ((value, low), high) in out.iter_mut().zip(low).zip(high) {
                let q = (high >> (quarter * 2) & 3) << 4 | low >> (quarter / 2 * 4) & 15;
                *value = scaled * (f32::from(q) - 32.0);
            }
        }
    }
}

//! Formats whose weights are entries of a codebook, with signs and small scales beside them.

use super::{Block, nibbles};
use crate::quant::blocks::*;
use crate::quant::tables::*;

impl Block<32> for BlockIQ4_NL {
    fn decode(&self, out: &mut [f32; 32]) {
        uneven(self.d.to_f32(), &self.qs, out);
    }
}

impl Block<256> for BlockIQ4_XS {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        let runs = out.as_chunks_mut::<32>().0.iter_mut().zip(self.qs.as_chunks::<16>().0);
        for (run, (out, qs)) in runs.enumerate() {
            let low = self.scales_l[run / 2] >> (run % 2 * 4) & 15;
            let high = (self.scales_h.get() >> (run * 2) & 3) as u8;
            uneven(d * (f32::from(high << 4 | low) - 32.0), qs, out);
        }
    }
}

/// 32 weights whose nibbles are indices into the 16 uneven values.
fn uneven(scale: f32, qs: &[u8; 16], out: &mut [f32; 32]) {
    for (value, q) in out.iter_mut().zip(nibbles(qs)) {
        *value = scale * f32::from(IQ4_NL_VALUES[usize::from(q)]);
    }
}

impl Block<256> for BlockIQ2_XXS {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (out, qs) in out.as_chunks_mut::<32>().0.iter_mut().zip(self.qs.as_chunks::<8>().0) {
            let &[a, b, c, e, rest @ ..] = qs;
            let signs_and_scale = u32::from_le_bytes(rest);
            let scaled = quarter_scale(d, (signs_and_scale >> 28) as u8);
            for (l, (out, index)) in out.as_chunks_mut::<8>().0.iter_mut().zip([a, b, c, e]).enumerate() {
                let magnitudes = IQ2XXS_GRID[usize::from(index)].to_le_bytes();
                signed(scaled, &magnitudes, even_signs(signs_and_scale, l), out);
            }
        }
    }
}

impl Block<256> for BlockIQ2_XS {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (group, (out, q)) in out.as_chunks_mut::<8>().0.iter_mut().zip(self.qs).enumerate() {
            let scaled = quarter_scale(d, half_byte(&self.scales, group / 2));
            let magnitudes = IQ2XS_GRID[usize::from(q.get() & 511)].to_le_bytes();
            signed(scaled, &magnitudes, EVEN_SIGNS[usize::from(q.get() >> 9)], out);
        }
    }
}

impl Block<256> for BlockIQ2_S {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (group, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scaled = quarter_scale(d, half_byte(&self.scales, group / 2));
            let high = self.qh[group / 4] >> (group % 4 * 2) & 3;
            let index = usize::from(high) << 8 | usize::from(self.qs[group]);
            signed(scaled, &IQ2S_GRID[index].to_le_bytes(), self.signs[group], out);
        }
    }
}

impl Block<256> for BlockIQ3_XXS {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (group, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let word = self.scales_and_signs.as_chunks::<4>().0[group / 4];
            let signs_and_scale = u32::from_le_bytes(word);
            let scaled = d * (0.5 + (signs_and_scale >> 28) as f32) * 0.5;
            let pair = [0, 1].map(|i| IQ3XXS_GRID[usize::from(self.qs[group * 2 + i])]);
            signed(scaled, &eight(pair), even_signs(signs_and_scale, group % 4), out);
        }
    }
}

impl Block<256> for BlockIQ3_S {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (group, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scaled = d * f32::from(1 + 2 * half_byte(&self.scales, group / 4));
            let pair = [group * 2, group * 2 + 1].map(|i| {
                let ninth = self.qh[i / 8] >> (i % 8) & 1;
                IQ3S_GRID[usize::from(ninth) << 8 | usize::from(self.qs[i])]
            });
            signed(scaled, &eight(pair), self.signs[group], out);
        }
    }
}

impl Block<256> for BlockIQ1_S {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (group, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let qh = self.qh[group / 4].get();
            let scaled = d * f32::from(2 * (qh >> 12 & 7) + 1);
            let index = usize::from(qh >> (group % 4 * 3) & 7) << 8 | usize::from(self.qs[group]);
            shifted(scaled, IQ1S_GRID[index], qh & 0x8000 != 0, out);
        }
    }
}

impl Block<256> for BlockIQ1_M {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.super_scale().to_f32();
        for (group, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scale = self.scales[group / 8].get() >> (group / 2 % 4 * 3) & 7;
            let scaled = d * f32::from(2 * scale + 1);
            let high = self.qh[group / 2] >> (group % 2 * 4);
            let index = usize::from(high & 7) << 8 | usize::from(self.qs[group]);
            shifted(scaled, IQ1S_GRID[index], high & 8 != 0, out);
        }
    }
}

impl BlockIQ1_M {
    /// The scale of the scales: the top nibbles of the four words, the first one lowest.
    fn super_scale(&self) -> F16 {
        let bits = self.scales.iter().rev().fold(0, |bits, word| bits << 4 | word.get() >> 12);
        F16(bits.to_le_bytes())
    }
}

/// Nibble `i` of a byte string, the low one of each byte first.
fn half_byte(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (i % 2 * 4) & 15
}

/// The scale of a 2-bit group: an eighth to 31 eighths of `d`.
fn quarter_scale(d: f32, scale: u8) -> f32 {
    d * (0.5 + f32::from(scale)) * 0.25
}

/// Sign mask `l` of the four that share a word, 7 bits each.
fn even_signs(word: u32, l: usize) -> u8 {
    EVEN_SIGNS[(word >> (7 * l) & 127) as usize]
}

/// Two groups of four magnitudes as one of eight.
fn eight(pair: [u32; 2]) -> [u8; 8] {
    (u64::from(pair[1]) << 32 | u64::from(pair[0])).to_le_bytes()
}

/// Eight magnitudes with signs: bit `j` of `signs` makes weight `j` negative.
fn signed(scale: f32, magnitudes: &[u8; 8], signs: u8, out: &mut [f32; 8]) {
    for (j, (value, &magnitude)) in out.iter_mut().zip(magnitudes).enumerate() {
        let sign = if signs >> j & 1 == 1 { -1.0 } else { 1.0 };
        *value = scale * f32::from(magnitude) * sign;
    }
}

/// Eight values of {-1, 0, 1}, all moved by an eighth, up or down.
fn shifted(scale: f32, entry: u64, down: bool, out: &mut [f32; 8]) {
    let shift = if down { -0.125 } else { 0.125 };
    for (value, unit) in out.iter_mut().zip(entry.to_le_bytes()) {
        *value = scale * (f32::from(unit as i8) + shift);
    }
}

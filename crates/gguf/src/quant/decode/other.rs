//! One and two bits, ternary digits, and 4-bit floats.

use super::{Block, nibbles};
use crate::quant::blocks::*;
use crate::quant::tables::FP4_VALUES;

impl Block<128> for BlockQ1_0 {
    fn decode(&self, out: &mut [f32; 128]) {
        let d = self.d.to_f32();
        for (j, value) in out.iter_mut().enumerate() {
            *value = if self.qs[j / 8] >> (j % 8) & 1 == 1 { d } else { -d };
        }
    }
}

impl Block<64> for BlockQ2_0 {
    fn decode(&self, out: &mut [f32; 64]) {
        let d = self.d.to_f32();
        for (j, value) in out.iter_mut().enumerate() {
            *value = (f32::from(self.qs[j / 4] >> (j % 4 * 2) & 3) - 1.0) * d;
        }
    }
}

impl Block<256> for BlockTQ2_0 {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (j, value) in out.iter_mut().enumerate() {
            let (half, digit, byte) = (j / 128, j % 128 / 32, j % 32);
            *value = (f32::from(self.qs[half * 32 + byte] >> (digit * 2) & 3) - 1.0) * d;
        }
    }
}

impl Block<256> for BlockTQ1_0 {
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        let (first, rest) = out.split_at_mut(160);
        let (second, third) = rest.split_at_mut(80);
        ternary(d, &self.qs[..32], first);
        ternary(d, &self.qs[32..], second);
        ternary(d, &self.qh, third);
    }
}

/// Digit `n` of every byte, then digit `n + 1` of every byte, and so on. A byte is a fraction of 256 in base 3:
/// multiplied by 3^n (modulo 256) and by 3, its next digit stands above the point.
fn ternary(d: f32, bytes: &[u8], out: &mut [f32]) {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    for (run, power) in out.chunks_exact_mut(bytes.len()).zip(POWERS) {
        for (value, byte) in run.iter_mut().zip(bytes) {
            let digit = (u16::from(byte.wrapping_mul(power)) * 3) >> 8;
            *value = (f32::from(digit) - 1.0) * d;
        }
    }
}

impl Block<32> for BlockMXFP4 {
    fn decode(&self, out: &mut [f32; 32]) {
        let d = half_power(self.e);
        for (value, q) in out.iter_mut().zip(nibbles(&self.qs)) {
            *value = f32::from(FP4_VALUES[usize::from(q)]) * d;
        }
    }
}

/// 2^(e - 128): the scale for values that are stored doubled. There is no NaN: 255 is 2^127.
fn half_power(e: u8) -> f32 {
    match e {
        0 | 1 => f32::from_bits(0x0020_0000 << e),
        _ => f32::from_bits(u32::from(e - 1) << 23),
    }
}

impl Block<64> for BlockNVFP4 {
    fn decode(&self, out: &mut [f32; 64]) {
        let groups = out.as_chunks_mut::<16>().0.iter_mut().zip(self.qs.as_chunks::<8>().0);
        for ((out, qs), scale) in groups.zip(self.d) {
            let d = half_e4m3(scale);
            for (j, value) in out.iter_mut().enumerate() {
                let q = qs[j % 8] >> (j / 8 * 4) & 15;
                *value = f32::from(FP4_VALUES[usize::from(q)]) * d;
            }
        }
    }
}

/// Half of an unsigned 8-bit float (four exponent bits, bias 7, three mantissa bits; the top bit is ignored): the
/// scale for values that are stored doubled. 0x7F, where E4M3 has its NaN, is 0.
fn half_e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(bits >> 3 & 15), f32::from(bits & 7));
    match (bits, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa / 1024.0,
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((exponent + 127 - 8) << 23),
    }
}

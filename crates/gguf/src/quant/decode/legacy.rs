//! One scale (and perhaps a minimum) in 32 weights.

use super::{Block, nibbles};
use crate::quant::blocks::*;

impl Block<32> for BlockQ8_0 {
    fn decode(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        for (value, q) in out.iter_mut().zip(self.qs) {
            *value = f32::from(q) * d;
        }
    }
}

impl Block<32> for BlockQ4_0 {
    fn decode(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        for (value, q) in out.iter_mut().zip(nibbles(&self.qs)) {
            *value = (f32::from(q) - 8.0) * d;
        }
    }
}

impl Block<32> for BlockQ4_1 {
    fn decode(&self, out: &mut [f32; 32]) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        for (value, q) in out.iter_mut().zip(nibbles(&self.qs)) {
            *value = f32::from(q) * d + m;
        }
    }
}

impl Block<32> for BlockQ5_0 {
    fn decode(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        for (value, q) in out.iter_mut().zip(five_bits(&self.qs, self.qh)) {
            *value = (f32::from(q) - 16.0) * d;
        }
    }
}

impl Block<32> for BlockQ5_1 {
    fn decode(&self, out: &mut [f32; 32]) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        for (value, q) in out.iter_mut().zip(five_bits(&self.qs, self.qh)) {
            *value = f32::from(q) * d + m;
        }
    }
}

/// The nibbles of `qs` with bit `j` of `qh` on top of nibble `j`.
fn five_bits(qs: &[u8; 16], qh: [u8; 4]) -> [u8; 32] {
    let high = u32::from_le_bytes(qh);
    let mut q = nibbles(qs);
    for (j, q) in q.iter_mut().enumerate() {
        *q |= ((high >> j & 1) as u8) << 4;
    }
    q
}

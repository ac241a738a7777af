//! Random weights: any bytes are a valid block, but the scales in them must be numbers of a sane size.

use argon_gguf::quant::scales::{Scales, centring, equal_minima, scales};
use argon_gguf::{Format, encode_row};
use half::f16;

/// A small, fast generator (SplitMix64); the same numbers everywhere.
pub struct Rng(u64);

impl Rng {
    /// A generator of its own sequence.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An integer below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// A uniform number in 0..1.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A standard normal number.
    pub fn normal(&mut self) -> f32 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f32::consts::TAU * v).cos()
    }
}

/// `len` random weights, one or more whole rows; their scales vary from block to block, half are negative, some zero. As in a model,
/// their mean is near 0: minima are the mean code of their weights, give or take some. Otherwise every output would be the same sum
/// of the input many times over, and small where that is, however large the terms and their roundings.
pub fn random(format: Format, len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; format.row_bytes(len).expect("whole blocks")];
    if format.block_len() == 1 {
        let values: Vec<f32> = (0..len).map(|_| rng.normal() * 0.05).collect();
        encode_row(format, &values, &mut bytes).expect("plain floats have an encoder");
        return bytes;
    }
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.bits().to_le_bytes()[..chunk.len()]);
    }
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        let size = 0.001 + 0.01 * rng.uniform();
        let scale = [size, -size, size, -size, size, -size, 0.0][rng.below(7)];
        let minimum = centring(format) * scale * (0.8 + 0.4 * rng.uniform());
        set_scales(format, block, [scale, minimum].map(f16::from_f32), 110 + rng.below(10) as u8);
        equal_minima(format, block);
        vary_minima(format, block, rng);
    }
    bytes
}

/// Gives every block of `bytes` scales so large that most formats' weights exceed the range of f16, some of them negative. Plain
/// numbers stay.
pub fn enlarge(format: Format, bytes: &mut [u8], rng: &mut Rng) {
    if format.block_len() == 1 {
        return;
    }
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        let scales = [0, 1].map(|_| f16::from_f32([20_000.0, -20_000.0][rng.below(2)]));
        set_scales(format, block, scales, 150);
    }
}

/// Replaces what a block has of a scale, a second scale and an exponent.
fn set_scales(format: Format, block: &mut [u8], both: [f16; 2], exponent: u8) {
    match scales(format) {
        Scales::Halves(offsets) => {
            for (&at, scale) in offsets.iter().zip(both) {
                block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
            }
        }
        Scales::HalfInNibbles(at) => {
            for word in 0..4 {
                let nibble = (both[0].to_bits() >> (4 * word)) as u8 & 15;
                let byte = &mut block[at + 2 * word + 1];
                *byte = *byte & 15 | nibble << 4;
            }
        }
        Scales::Exponent(at) => block[at] = exponent,
        Scales::AlwaysFinite | Scales::None => {}
    }
}

/// Changes the lowest bits of the integers that scale a block's minima, so that none can be taken for another unseen.
fn vary_minima(format: Format, block: &mut [u8], rng: &mut Rng) {
    let mut flip = |bytes: &mut [u8], shift: usize, bits: usize| {
        bytes.iter_mut().for_each(|byte| *byte ^= (rng.below(bits + 1) << shift) as u8);
    };
    match format {
        Format::Q2_K => flip(&mut block[..16], 4, 1),
        Format::Q4_K | Format::Q5_K => {
            flip(&mut block[8..12], 0, 3);
            flip(&mut block[12..16], 4, 3);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon_gguf::decode_row;

    #[test]
    fn the_mean_is_near_zero_in_every_format() {
        const COUNT: usize = 1 << 18;
        for &format in Format::ALL.iter().filter(|format| format.is_weight()) {
            let mut weights = vec![0.0; COUNT];
            decode_row(format, &random(format, COUNT, &mut Rng::new(7)), &mut weights);
            let mean = weights.iter().map(|&w| f64::from(w)).sum::<f64>() / COUNT as f64;
            let square = weights.iter().map(|&w| f64::from(w).powi(2)).sum::<f64>() / COUNT as f64;
            assert!(
                mean.abs() < 0.05 * square.sqrt(),
                "{format}: mean {mean}, root of the mean square {}",
                square.sqrt()
            );
        }
    }
}

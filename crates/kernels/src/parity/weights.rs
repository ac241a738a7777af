//! Random weights: any bytes are a valid block, but the scales in them must be numbers of a sane size.

use argon_gguf::{Format, encode_row};

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

/// `len` random weights, one or more whole rows; their scales vary from block to block, some are negative or zero.
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
        set_scales(format, block, rng);
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
        match format {
            Format::MXFP4 => block[0] = 150,
            _ => replace_scales(format, block, || half::f16::from_f32([20_000.0, -20_000.0][rng.below(2)])),
        }
    }
}

/// Replaces the half-precision scales of a block, and MXFP4's exponent.
fn set_scales(format: Format, block: &mut [u8], rng: &mut Rng) {
    match format {
        Format::MXFP4 => block[0] = 110 + rng.below(10) as u8,
        _ => replace_scales(format, block, || {
            let size = 0.001 + 0.01 * rng.uniform();
            half::f16::from_f32([size, -size, size, 0.0, size, size, size, size][rng.below(8)])
        }),
    }
}

fn replace_scales(format: Format, block: &mut [u8], mut scale: impl FnMut() -> half::f16) {
    match format {
        Format::NVFP4 => {}
        // The scale lies in the top nibbles of the last four words.
        Format::IQ1_M => {
            let bits = scale().to_bits();
            for i in 0..4 {
                let byte = &mut block[49 + 2 * i];
                *byte = *byte & 15 | ((bits >> (4 * i)) as u8 & 15) << 4;
            }
        }
        _ => {
            for &at in scale_offsets(format) {
                block[at..at + 2].copy_from_slice(&scale().to_le_bytes());
            }
        }
    }
}

/// Where the half-precision numbers of a block are.
fn scale_offsets(format: Format) -> &'static [usize] {
    match format {
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q6_K => &[208],
        Format::TQ1_0 => &[52],
        Format::TQ2_0 => &[64],
        _ => &[0],
    }
}

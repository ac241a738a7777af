//! Random weights, made where they are written: random bits are weights in every format, once their scales are chosen.

use std::io::{self, Write};

use argon_gguf::quant::blocks::F16;
use argon_gguf::quant::scales::{Scales, centring, equal_minima, scales};
use argon_gguf::{Format, decode_row, encode_row};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Bytes made at a time, about.
const PIECE: usize = 1 << 18;

/// Scales that blocks choose from, of both signs, so that the mean of the weights is zero whatever the mean of a block.
const CHOICES: usize = 64;

/// Whether weights in this format can be made. NVFP4 is not: llama.cpp wants further tensors beside it.
pub fn can_make(format: Format) -> bool {
    format.is_weight() && format != Format::NVFP4
}

/// The numbers of one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Weights of mean 0 and this standard deviation, in any format.
    Weights {
        /// Standard deviation.
        std: f32,
    },
    /// Uniform between two bounds, f32.
    Uniform {
        /// The lower bound.
        low: f32,
        /// The upper bound.
        high: f32,
    },
    /// `-e^u`, u uniform between the logarithms of two bounds, f32: rates of decay.
    Decay {
        /// The slowest.
        low: f32,
        /// The fastest.
        high: f32,
    },
}

/// The random numbers of the tensor called `name` in a file of this seed: the same whatever else the file holds.
pub fn rng(seed: u64, name: &str) -> Pcg64Mcg {
    // FNV-1a.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    Pcg64Mcg::seed_from_u64(seed ^ hash)
}

/// Writes `count` numbers, one or more whole rows.
///
/// # Errors
/// Of `out`.
pub fn write(values: Values, format: Format, count: usize, rng: &mut Pcg64Mcg, out: &mut dyn Write) -> io::Result<()> {
    match values {
        Values::Weights { std } if format.block_len() > 1 => {
            let blocks = Blocks::new(format, std, rng);
            pieces(count / format.block_len() * format.block_bytes(), format.block_bytes(), out, |piece| {
                blocks.fill(rng, piece);
                Ok(())
            })
        }
        // A uniform number within sqrt(3) of 0 has the standard deviation 1.
        Values::Weights { std } => numbers(format, count, out, || std * 3f32.sqrt() * (2.0 * uniform(rng) - 1.0)),
        Values::Uniform { low, high } => numbers(format, count, out, || low + (high - low) * uniform(rng)),
        Values::Decay { low, high } => numbers(format, count, out, || -low * (high / low).powf(uniform(rng))),
    }
}

/// Uniform in 0..1.
fn uniform(rng: &mut Pcg64Mcg) -> f32 {
    (rng.next_u32() >> 8) as f32 / (1 << 24) as f32
}

/// Writes plain floats.
fn numbers(format: Format, count: usize, out: &mut dyn Write, mut next: impl FnMut() -> f32) -> io::Result<()> {
    let mut values = Vec::new();
    pieces(count * format.block_bytes(), format.block_bytes(), out, |piece| {
        values.clear();
        values.extend((0..piece.len() / format.block_bytes()).map(|_| next()));
        encode_row(format, &values, piece).map_err(io::Error::other)
    })
}

/// Has `fill` make `bytes` bytes in pieces of whole blocks, and writes them.
fn pieces(
    mut bytes: usize,
    block: usize,
    out: &mut dyn Write,
    mut fill: impl FnMut(&mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE / block * block];
    while bytes > 0 {
        let piece = &mut piece[..bytes.min(PIECE / block * block)];
        fill(piece)?;
        out.write_all(piece)?;
        bytes -= piece.len();
    }
    Ok(())
}

/// A maker of blocks of one format and standard deviation.
struct Blocks {
    format: Format,
    /// Half-precision scales to choose from, each with what the block subtracts in the formats that subtract something.
    scales: [[F16; 2]; CHOICES],
    /// The exponent for [`Scales::Exponent`].
    exponent: u8,
}

impl Blocks {
    fn new(format: Format, std: f32, rng: &mut Pcg64Mcg) -> Self {
        let unit = Self::of_unit(format).measure(rng);
        let scale = |i: usize| {
            let size = std / unit * (0.6 + 0.8 * (i as f32 + 0.5) / CHOICES as f32);
            let scale = F16::from_f32(if i.is_multiple_of(2) { size } else { -size }).to_f32();
            [scale, centring(format) * scale].map(F16::from_f32)
        };
        let exponent = (127.0 + (std / unit).log2().round()).clamp(0.0, 252.0) as u8;
        Self { format, scales: std::array::from_fn(scale), exponent }
    }

    /// Blocks of scale 1.
    fn of_unit(format: Format) -> Self {
        Self { format, scales: [[F16::from_f32(1.0), F16::from_f32(centring(format))]; CHOICES], exponent: 127 }
    }

    /// The standard deviation of some blocks.
    fn measure(&self, rng: &mut Pcg64Mcg) -> f32 {
        const SAMPLE: usize = 256;
        let mut bytes = vec![0; SAMPLE * self.format.block_bytes()];
        self.fill(rng, &mut bytes);
        let mut weights = vec![0.0; SAMPLE * self.format.block_len()];
        decode_row(self.format, &bytes, &mut weights);
        let squares: f64 = weights.iter().map(|weight| f64::from(*weight).powi(2)).sum();
        (squares / weights.len() as f64).sqrt() as f32
    }

    /// Makes whole blocks.
    fn fill(&self, rng: &mut Pcg64Mcg, bytes: &mut [u8]) {
        rng.fill_bytes(bytes);
        let blocks = bytes.chunks_exact_mut(self.format.block_bytes());
        match scales(self.format) {
            Scales::Halves(offsets) => {
                for block in blocks {
                    let scales = self.scales[usize::from(block[offsets[0]]) % CHOICES];
                    for (at, scale) in offsets.iter().zip(scales) {
                        block[*at..at + 2].copy_from_slice(&scale.0);
                    }
                    equal_minima(self.format, block);
                }
            }
            Scales::HalfInNibbles(at) => {
                for block in blocks {
                    let [low, high] = self.scales[usize::from(block[at]) % CHOICES][0].0;
                    for (word, nibble) in [low & 15, low >> 4, high & 15, high >> 4].into_iter().enumerate() {
                        let byte = &mut block[at + 2 * word + 1];
                        *byte = *byte & 15 | nibble << 4;
                    }
                }
            }
            Scales::Exponent(at) => blocks.for_each(|block| block[at] = self.exponent),
            Scales::AlwaysFinite | Scales::None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon_gguf::scales_are_finite;

    fn made(values: Values, format: Format, count: usize, seed: u64) -> Vec<f32> {
        let mut bytes = Vec::new();
        write(values, format, count, &mut rng(seed, "t"), &mut bytes).unwrap();
        assert!(scales_are_finite(format, &bytes), "{format}");
        let mut weights = vec![0.0; count];
        decode_row(format, &bytes, &mut weights);
        weights
    }

    fn moments(weights: &[f32]) -> (f64, f64) {
        let n = weights.len() as f64;
        let mean = weights.iter().map(|&w| f64::from(w)).sum::<f64>() / n;
        (mean, (weights.iter().map(|&w| (f64::from(w) - mean).powi(2)).sum::<f64>() / n).sqrt())
    }

    #[test]
    fn every_format_has_the_mean_and_deviation_asked_for() {
        const COUNT: usize = 1 << 18;
        for &format in Format::ALL.iter().filter(|format| can_make(**format)) {
            for std in [0.02, 1.0] {
                let (mean, found) = moments(&made(Values::Weights { std }, format, COUNT, 1));
                // Scales spread by 0.6 to 1.4, which adds 3 % to the deviation; an exponent is the nearest power of 2.
                let spread = if format == Format::MXFP4 { 0.5 } else { 0.1 };
                assert!((found / f64::from(std)).ln().abs() < spread, "{format}: deviation {found}, not {std}");
                assert!(mean.abs() < 0.05 * found, "{format}: mean {mean} with deviation {found}");
            }
        }
    }

    #[test]
    fn ranges_hold() {
        let uniform = made(Values::Uniform { low: 0.9, high: 1.1 }, Format::F32, 5000, 2);
        assert!(uniform.iter().all(|value| (0.9..=1.1).contains(value)));
        assert!((moments(&uniform).0 - 1.0).abs() < 0.01);
        let decay = made(Values::Decay { low: 0.01, high: 8.0 }, Format::F32, 5000, 2);
        assert!(decay.iter().all(|value| (-8.001..=-0.0099).contains(value)));
    }

    #[test]
    fn a_tensor_depends_on_seed_and_name_alone() {
        let bytes = |seed, name| {
            let mut bytes = Vec::new();
            write(Values::Weights { std: 1.0 }, Format::Q8_0, 320, &mut rng(seed, name), &mut bytes).unwrap();
            bytes
        };
        assert_eq!(bytes(1, "a"), bytes(1, "a"));
        assert_ne!(bytes(1, "a"), bytes(2, "a"));
        assert_ne!(bytes(1, "a"), bytes(1, "b"));
    }

    #[test]
    fn rows_longer_than_a_piece_are_whole() {
        let count = 3 * PIECE;
        assert_eq!(made(Values::Weights { std: 1.0 }, Format::IQ4_NL, count, 3).len(), count);
        assert_eq!(made(Values::Weights { std: 1.0 }, Format::F16, count, 3).len(), count);
    }
}

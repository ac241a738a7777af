//! Where the blocks of each format keep their scales, and whether those are numbers.
//!
//! A scale multiplies a whole block, so one that is not finite makes every weight of the block not finite, and through
//! them all that a model computes. The small integers beside it cannot: in the formats that have them, every bit pattern
//! is a number.

use super::Format;
use super::blocks::*;
use std::mem::offset_of;

/// Where a block keeps its scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// Half-precision numbers that begin at these bytes.
    Halves(&'static [usize]),
    /// Half-precision, a nibble in the top of each of four words: the first byte of them. [`Format::IQ1_M`] alone.
    HalfInNibbles(usize),
    /// A power of two, whose exponent is this byte. [`Format::MXFP4`] alone.
    Exponent(usize),
    /// Only integers, or floats without infinities and NaN.
    AlwaysFinite,
    /// There are no blocks: each weight is a float by itself.
    None,
}

/// Where the blocks of `format` keep their scales.
pub const fn scales(format: Format) -> Scales {
    macro_rules! at {
        ($block:ident: $($field:ident),*) => {
            Scales::Halves(&[$(offset_of!($block, $field)),*])
        };
    }
    match format {
        Format::F32 | Format::F16 | Format::BF16 | Format::F64 => Scales::None,
        Format::Q4_0 => at!(BlockQ4_0: d),
        Format::Q4_1 => at!(BlockQ4_1: d, m),
        Format::Q5_0 => at!(BlockQ5_0: d),
        Format::Q5_1 => at!(BlockQ5_1: d, m),
        Format::Q8_0 => at!(BlockQ8_0: d),
        Format::Q2_K => at!(BlockQ2_K: d, dmin),
        Format::Q3_K => at!(BlockQ3_K: d),
        Format::Q4_K => at!(BlockQ4_K: d, dmin),
        Format::Q5_K => at!(BlockQ5_K: d, dmin),
        Format::Q6_K => at!(BlockQ6_K: d),
        Format::IQ2_XXS => at!(BlockIQ2_XXS: d),
        Format::IQ2_XS => at!(BlockIQ2_XS: d),
        Format::IQ2_S => at!(BlockIQ2_S: d),
        Format::IQ3_XXS => at!(BlockIQ3_XXS: d),
        Format::IQ3_S => at!(BlockIQ3_S: d),
        Format::IQ1_S => at!(BlockIQ1_S: d),
        Format::IQ1_M => Scales::HalfInNibbles(offset_of!(BlockIQ1_M, scales)),
        Format::IQ4_NL => at!(BlockIQ4_NL: d),
        Format::IQ4_XS => at!(BlockIQ4_XS: d),
        Format::TQ1_0 => at!(BlockTQ1_0: d),
        Format::TQ2_0 => at!(BlockTQ2_0: d),
        Format::Q1_0 => at!(BlockQ1_0: d),
        Format::Q2_0 => at!(BlockQ2_0: d),
        Format::MXFP4 => Scales::Exponent(offset_of!(BlockMXFP4, e)),
        Format::NVFP4 => Scales::AlwaysFinite,
        Format::I8 | Format::I16 | Format::I32 | Format::I64 => Scales::AlwaysFinite,
    }
}

/// What a block's second scale must be in units of its first for weights of mean 0, all codes being as likely: the mean code where
/// the product of minimum and second scale is subtracted, minus it where the second scale is added. 0 in formats without one.
pub const fn centring(format: Format) -> f32 {
    match format {
        Format::Q4_1 => -7.5,
        Format::Q5_1 => -15.5,
        Format::Q2_K => 1.5,
        Format::Q4_K => 7.5,
        Format::Q5_K => 15.5,
        _ => 0.0,
    }
}

/// Makes the small integers that scale a block's minima those that scale its weights, in the formats that have both: with
/// [`centring`] the minima are then the mean codes.
pub fn equal_minima(format: Format, block: &mut [u8]) {
    let twice = |byte: &mut u8| *byte = *byte & 15 | *byte << 4;
    match format {
        Format::Q2_K => block[..16].iter_mut().for_each(twice),
        Format::Q4_K | Format::Q5_K => {
            block.copy_within(4..8, 8);
            block[12..16].iter_mut().for_each(twice);
        }
        _ => {}
    }
}

/// The largest exponent of [`Format::MXFP4`] with which all its values, up to 6, are finite.
const LARGEST_EXPONENT: u8 = 252;

/// Whether all scales in `bytes`, one or more whole rows, are finite, or, where weights are floats by themselves, all of
/// these. With finite scales all weights are finite.
///
/// # Panics
/// If `bytes` is not a whole number of blocks.
pub fn scales_are_finite(format: Format, bytes: &[u8]) -> bool {
    let size = format.block_bytes();
    assert!(bytes.len().is_multiple_of(size), "{} bytes are no blocks of {format}", bytes.len());
    match scales(format) {
        Scales::AlwaysFinite => true,
        Scales::Exponent(at) => all(bytes.chunks_exact(size), |block| block[at] <= LARGEST_EXPONENT),
        Scales::Halves(offsets) => {
            offsets.iter().all(|&at| all(bytes.chunks_exact(size), |block| half_is_finite(block[at + 1])))
        }
        Scales::HalfInNibbles(at) => {
            // The exponent: three bits of the last word's nibble and two of the one before.
            let exponent = |block: &[u8]| block[at + 7] & 0x70 == 0x70 && block[at + 5] & 0xc0 == 0xc0;
            all(bytes.chunks_exact(size), |block| !exponent(block))
        }
        Scales::None => match format {
            Format::F16 => all(bytes.chunks_exact(2), |half| half_is_finite(half[1])),
            Format::BF16 => all(bytes.as_chunks().0, |&b| u16::from_le_bytes(b) & 0x7f80 != 0x7f80),
            Format::F64 => all(bytes.as_chunks().0, |&b| f64::from_le_bytes(b).is_finite()),
            _ => all(bytes.as_chunks().0, |&b| f32::from_le_bytes(b).is_finite()),
        },
    }
}

/// Whether a half with this second byte, which holds the exponent, is finite.
fn half_is_finite(byte: u8) -> bool {
    byte & 0x7c != 0x7c
}

/// Like [`Iterator::all`], but without stopping early: what is looked for is rare, and a loop without an exit is faster.
fn all<T>(items: impl IntoIterator<Item = T>, test: impl Fn(T) -> bool) -> bool {
    items.into_iter().fold(true, |all, item| all & test(item))
}

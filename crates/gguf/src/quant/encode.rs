//! Encoders for tests and tools: plain rounding to the nearest, no search for better scales.
//!
//! Where gguf-py has an encoder, this one gives the same bytes.

use super::Format;
use super::blocks::*;
use super::tables::IQ4_NL_VALUES;
use crate::Error;
use bytemuck::Pod;

/// Encodes `values`, one or more whole rows, into `out`.
///
/// Values that are not finite give some block, without a promise which.
///
/// # Errors
/// [`Error::NoEncoder`] for a format that has none here. There are encoders for the plain floats, `Q8_0`, `Q4_0`, `Q4_1`,
/// `Q5_0`, `Q5_1` and `IQ4_NL`.
///
/// # Panics
/// If `out` is not `format.row_bytes(values.len())` long.
pub fn encode_row(format: Format, values: &[f32], out: &mut [u8]) -> Result<(), Error> {
    assert_eq!(format.row_bytes(values.len()), Some(out.len()), "bytes of {} weights in {format}", values.len());
    match format {
        Format::F32 => numbers(values, out, f32::to_le_bytes),
        Format::F16 => numbers(values, out, |value| F16::from_f32(value).0),
        Format::BF16 => numbers(values, out, |value| half::bf16::from_f32(value).to_le_bytes()),
        Format::Q8_0 => blocks(values, out, q8_0),
        Format::Q4_0 => blocks(values, out, q4_0),
        Format::Q4_1 => blocks(values, out, q4_1),
        Format::Q5_0 => blocks(values, out, q5_0),
        Format::Q5_1 => blocks(values, out, q5_1),
        Format::IQ4_NL => blocks(values, out, iq4_nl),
        _ => return Err(Error::NoEncoder { format }),
    }
    Ok(())
}

fn numbers<const BYTES: usize>(values: &[f32], out: &mut [u8], encode: impl Fn(f32) -> [u8; BYTES]) {
    for (bytes, value) in out.as_chunks_mut().0.iter_mut().zip(values) {
        *bytes = encode(*value);
    }
}

fn blocks<B: Pod>(values: &[f32], out: &mut [u8], encode: impl Fn(&[f32; 32]) -> B) {
    for (block, values) in bytemuck::cast_slice_mut::<u8, B>(out).iter_mut().zip(values.as_chunks().0) {
        *block = encode(values);
    }
}

fn q8_0(x: &[f32; 32]) -> BlockQ8_0 {
    let d = extreme(x).abs() / 127.0;
    let inverse = inverse(d);
    BlockQ8_0 { d: F16::from_f32(d), qs: x.map(|x| (x * inverse).round() as i8) }
}

fn q4_0(x: &[f32; 32]) -> BlockQ4_0 {
    let d = extreme(x) / -8.0;
    let inverse = inverse(d);
    let q = x.map(|x| ((x * inverse + 8.5) as u8).min(15));
    BlockQ4_0 { d: F16::from_f32(d), qs: nibbles(&q) }
}

fn q4_1(x: &[f32; 32]) -> BlockQ4_1 {
    let (min, max) = range(x);
    let d = (max - min) / 15.0;
    let inverse = inverse(d);
    let q = x.map(|x| (((x - min) * inverse + 0.5) as u8).min(15));
    BlockQ4_1 { d: F16::from_f32(d), m: F16::from_f32(min), qs: nibbles(&q) }
}

fn q5_0(x: &[f32; 32]) -> BlockQ5_0 {
    let d = extreme(x) / -16.0;
    let inverse = inverse(d);
    let q = x.map(|x| ((x * inverse + 16.5) as u8).min(31));
    BlockQ5_0 { d: F16::from_f32(d), qh: fifth_bits(&q), qs: nibbles(&q) }
}

fn q5_1(x: &[f32; 32]) -> BlockQ5_1 {
    let (min, max) = range(x);
    let d = (max - min) / 31.0;
    let inverse = inverse(d);
    let q = x.map(|x| (((x - min) * inverse + 0.5) as u8).min(31));
    BlockQ5_1 { d: F16::from_f32(d), m: F16::from_f32(min), qh: fifth_bits(&q), qs: nibbles(&q) }
}

fn iq4_nl(x: &[f32; 32]) -> BlockIQ4_NL {
    let d = extreme(x) / f32::from(IQ4_NL_VALUES[0]);
    let inverse = inverse(d);
    let distance = |index: u8, x: f32| (f32::from(IQ4_NL_VALUES[usize::from(index)]) - x).abs();
    let nearest = |x: f32| (0..16).min_by(|a, b| distance(*a, x).total_cmp(&distance(*b, x))).unwrap_or(0);
    let q = x.map(|x| nearest(x * inverse));
    BlockIQ4_NL { d: F16::from_f32(d), qs: nibbles(&q) }
}

/// The value furthest from zero, the first of equals.
fn extreme(x: &[f32; 32]) -> f32 {
    x.iter().fold(0.0, |extreme: f32, &x| if x.abs() > extreme.abs() { x } else { extreme })
}

fn range(x: &[f32; 32]) -> (f32, f32) {
    (x.iter().copied().fold(f32::INFINITY, f32::min), x.iter().copied().fold(f32::NEG_INFINITY, f32::max))
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// Low four bits: the first 16 weights in the low nibbles, the others in the high ones.
fn nibbles(q: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| q[j] & 15 | q[j + 16] << 4)
}

fn fifth_bits(q: &[u8; 32]) -> [u8; 4] {
    q.iter().enumerate().fold(0u32, |bits, (j, q)| bits | u32::from(q >> 4 & 1) << j).to_le_bytes()
}

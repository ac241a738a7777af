//! What the bytes of each format mean: the scalar decoders, which are the definition.
//!
//! They perform ggml's operations in ggml's order, so the results are the same bits. Every bit pattern of a block
//! decodes to something; none panics. Other implementations (SIMD, GPU) are tested against these.

mod iq;
mod k;
mod legacy;
mod other;

use super::Format;
use super::blocks::*;
use bytemuck::Pod;

/// A block of `N` weights.
pub trait Block<const N: usize>: Pod {
    /// Writes the weights in order.
    fn decode(&self, out: &mut [f32; N]);
}

/// Decodes `out.len()` weights of one or more whole rows from `bytes`.
///
/// The formats that are no weights are converted to the nearest `f32`.
///
/// # Panics
/// If `bytes` is not `format.row_bytes(out.len())` long. (A [`TensorInfo`](crate::TensorInfo) has been checked.)
pub fn decode_row(format: Format, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(format.row_bytes(out.len()), Some(bytes.len()), "bytes of {} weights in {format}", out.len());
    match format {
        Format::F32 => numbers(bytes, out, f32::from_le_bytes),
        Format::F16 => numbers(bytes, out, |b| F16(b).to_f32()),
        Format::BF16 => numbers(bytes, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
        Format::Q8_0 => blocks::<BlockQ8_0, _>(bytes, out),
        Format::Q4_0 => blocks::<BlockQ4_0, _>(bytes, out),
        Format::Q4_1 => blocks::<BlockQ4_1, _>(bytes, out),
        Format::Q5_0 => blocks::<BlockQ5_0, _>(bytes, out),
        Format::Q5_1 => blocks::<BlockQ5_1, _>(bytes, out),
        Format::Q2_K => blocks::<BlockQ2_K, _>(bytes, out),
        Format::Q3_K => blocks::<BlockQ3_K, _>(bytes, out),
        Format::Q4_K => blocks::<BlockQ4_K, _>(bytes, out),
        Format::Q5_K => blocks::<BlockQ5_K, _>(bytes, out),
        Format::Q6_K => blocks::<BlockQ6_K, _>(bytes, out),
        Format::IQ1_S => blocks::<BlockIQ1_S, _>(bytes, out),
        Format::IQ1_M => blocks::<BlockIQ1_M, _>(bytes, out),
        Format::IQ2_XXS => blocks::<BlockIQ2_XXS, _>(bytes, out),
        Format::IQ2_XS => blocks::<BlockIQ2_XS, _>(bytes, out),
        Format::IQ2_S => blocks::<BlockIQ2_S, _>(bytes, out),
        Format::IQ3_XXS => blocks::<BlockIQ3_XXS, _>(bytes, out),
        Format::IQ3_S => blocks::<BlockIQ3_S, _>(bytes, out),
        Format::IQ4_NL => blocks::<BlockIQ4_NL, _>(bytes, out),
        Format::IQ4_XS => blocks::<BlockIQ4_XS, _>(bytes, out),
        Format::TQ1_0 => blocks::<BlockTQ1_0, _>(bytes, out),
        Format::TQ2_0 => blocks::<BlockTQ2_0, _>(bytes, out),
        Format::Q1_0 => blocks::<BlockQ1_0, _>(bytes, out),
        Format::Q2_0 => blocks::<BlockQ2_0, _>(bytes, out),
        Format::MXFP4 => blocks::<BlockMXFP4, _>(bytes, out),
        Format::NVFP4 => blocks::<BlockNVFP4, _>(bytes, out),
        Format::I8 => numbers(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
        Format::I16 => numbers(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
        Format::I32 => numbers(bytes, out, |b| i32::from_le_bytes(b) as f32),
        Format::I64 => numbers(bytes, out, |b| i64::from_le_bytes(b) as f32),
        Format::F64 => numbers(bytes, out, |b| f64::from_le_bytes(b) as f32),
    }
}

fn numbers<const BYTES: usize>(bytes: &[u8], out: &mut [f32], decode: impl Fn([u8; BYTES]) -> f32) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *value = decode(*bytes);
    }
}

fn blocks<B: Block<N>, const N: usize>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytemuck::cast_slice::<u8, B>(bytes).iter().zip(out.as_chunks_mut().0) {
        block.decode(out);
    }
}

/// The 32 nibbles of 16 bytes: all the low ones, then all the high ones.
fn nibbles(bytes: &[u8; 16]) -> [u8; 32] {
    std::array::from_fn(|j| if j < 16 { bytes[j] & 15 } else { bytes[j - 16] >> 4 })
}

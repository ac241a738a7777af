//! The instruction set that every processor has: arrays, which the compiler turns into whatever vectors there are.

use half::f16;

use super::{Codes, Floats, LANES, Simd};

/// No instruction beyond the target's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) struct Portable;

/// Exponent and fraction in their places of an f32 name the number times 2^-112, subnormal or not.
#[inline(always)]
fn widen(half: f16) -> f32 {
    let bits = u32::from(half.to_bits());
    let small = f32::from_bits((bits & 0x7FFF) << 13);
    let scaled = (small * f32::from_bits((127 + 112) << 23)).to_bits();
    let infinite = if bits & 0x7C00 == 0x7C00 { 0xFF << 23 } else { 0 };
    f32::from_bits(scaled | infinite | (bits & 0x8000) << 16)
}

/// Whether multiplying and adding at once is an instruction of the target, and not a slow call.
const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

impl Simd for Portable {
    type F32 = [f32; LANES];
    type I32 = [i32; LANES];
    type Bytes = [u8; 4 * LANES];

    const WIDE_SIGNED: bool = false;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        [value; LANES]
    }

    #[inline(always)]
    fn load(self, from: &Floats) -> Self::F32 {
        from.0
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut Floats) {
        to.0 = value;
    }

    #[inline(always)]
    fn widen(self, from: &[f16; LANES]) -> Self::F32 {
        std::array::from_fn(|i| widen(from[i]))
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        std::array::from_fn(|i| if FUSED { a[i].mul_add(b[i], c[i]) } else { a[i] * b[i] + c[i] })
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I32 {
        [value; LANES]
    }

    #[inline(always)]
    fn to_f32(self, value: Self::I32) -> Self::F32 {
        std::array::from_fn(|i| value[i] as f32)
    }

    #[inline(always)]
    fn join(self, high: Self::I32, low: Self::I32) -> Self::I32 {
        std::array::from_fn(|i| (high[i] << 8).wrapping_add(low[i]))
    }

    #[inline(always)]
    fn codes(self, from: &Codes) -> Self::Bytes {
        from.0
    }

    #[inline(always)]
    fn wide_codes(self, from: &Codes) -> Self::Bytes {
        from.0
    }

    #[inline(always)]
    fn dot(self, sum: Self::I32, codes: Self::Bytes, x: i32) -> Self::I32 {
        let x = x.to_le_bytes().map(|x| i32::from(x as i8));
        std::array::from_fn(|i| {
            let product = |j: usize| i32::from(codes[4 * i + j]) * x[j];
            sum[i] + (product(0) + product(1)) + (product(2) + product(3))
        })
    }

    #[inline(always)]
    fn wide_dot(self, sum: Self::I32, codes: Self::Bytes, x: i32) -> Self::I32 {
        self.dot(sum, codes, x)
    }
}

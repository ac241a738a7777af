//! The instruction set that every processor has: arrays, which the compiler turns into whatever vectors there are.

use super::{LANES, Simd};

/// No instruction beyond the target's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) struct Portable;

/// Whether multiplying and adding at once is an instruction of the target, and not a slow call.
const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

impl Simd for Portable {
    type F32 = [f32; LANES];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        [value; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F32 {
        *from
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut [f32; LANES]) {
        *to = value;
    }

    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        std::array::from_fn(|i| if FUSED { a[i].mul_add(b[i], c[i]) } else { a[i] * b[i] + c[i] })
    }
}

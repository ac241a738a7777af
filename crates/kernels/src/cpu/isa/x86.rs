//! AVX2 with FMA, and AVX-512 with the extensions that Ice Lake and Zen 4 brought.

use std::arch::x86_64::*;

use super::{Kernel, LANES, Simd};

/// The processor has AVX2 and FMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) struct Avx2(());

impl Avx2 {
    /// The capability, where the processor has it.
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma")]
        fn compiled<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` is made by `detect` alone, which found these features.
        unsafe { compiled(self, kernel) }
    }
}

impl Simd for Avx2 {
    type F32 = [__m256; 2];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        // SAFETY: `self` proves AVX2.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F32 {
        // SAFETY: `self` proves AVX2; both halves are inside the array.
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut [f32; LANES]) {
        // SAFETY: as in `load`.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), value[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), value[1]);
        }
    }

    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        // SAFETY: `self` proves FMA.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }
}

/// The processor has AVX-512 F, BW, DQ, VL, VBMI and VNNI, and GFNI; and what [`Avx2`] proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) struct Avx512(());

impl Avx512 {
    /// The capability, where the processor has it.
    pub(super) fn detect() -> Option<Self> {
        (Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("gfni"))
        .then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,gfni")]
        fn compiled<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` is made by `detect` alone, which found these features.
        unsafe { compiled(self, kernel) }
    }
}

impl Simd for Avx512 {
    type F32 = __m512;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F32 {
        // SAFETY: `self` proves AVX-512 F; the array is one vector long.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut [f32; LANES]) {
        // SAFETY: as in `load`.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
}

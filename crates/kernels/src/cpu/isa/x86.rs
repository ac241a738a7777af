//! AVX2 with FMA, and AVX-512 with the extensions that Ice Lake and Zen 4 brought.

use std::arch::x86_64::*;

use half::f16;

use super::{Codes, Floats, Kernel, LANES, Simd};

/// [`super::prefetch`].
#[inline(always)]
pub(super) fn prefetch(line: &[u8]) {
    // SAFETY: a hint that reads nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) }
}

/// Orders streamed stores before later ones.
pub(super) fn fence() {
    // SAFETY: SSE is part of the architecture.
    unsafe { _mm_sfence() }
}

/// The processor has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) struct Avx2(());

impl Avx2 {
    /// The capability, where the processor has it.
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c"))
            .then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` is made by `detect` alone, which found these features.
        unsafe { compiled(self, kernel) }
    }
}

impl Simd for Avx2 {
    type F32 = [__m256; 2];
    type I32 = [__m256i; 2];
    type Bytes = [__m256i; 2];

    /// The product of unsigned and signed bytes saturates in pairs, so wide codes are taken with their signs.
    const WIDE_SIGNED: bool = true;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        // SAFETY: `self` proves AVX.
        unsafe { [_mm256_set1_ps(value); 2] }
    }

    #[inline(always)]
    fn load(self, from: &Floats) -> Self::F32 {
        // SAFETY: `self` proves AVX; both halves are inside the aligned array.
        unsafe { [_mm256_load_ps(from.0.as_ptr()), _mm256_load_ps(from.0.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut Floats) {
        // SAFETY: as in `load`.
        unsafe {
            _mm256_store_ps(to.0.as_mut_ptr(), value[0]);
            _mm256_store_ps(to.0.as_mut_ptr().add(8), value[1]);
        }
    }

    #[inline(always)]
    fn widen(self, from: &[f16; LANES]) -> Self::F32 {
        let from = from.as_ptr().cast::<__m128i>();
        // SAFETY: `self` proves F16C; both halves are inside the array.
        unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from.add(1)))] }
    }

    #[inline(always)]
    fn stream(self, value: Self::F32, to: &mut Floats) {
        // SAFETY: as in `load`; `Isa::fence` follows.
        unsafe {
            _mm256_stream_ps(to.0.as_mut_ptr(), value[0]);
            _mm256_stream_ps(to.0.as_mut_ptr().add(8), value[1]);
        }
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        // SAFETY: `self` proves AVX.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        // SAFETY: `self` proves FMA.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I32 {
        // SAFETY: `self` proves AVX.
        unsafe { [_mm256_set1_epi32(value); 2] }
    }

    #[inline(always)]
    fn to_f32(self, value: Self::I32) -> Self::F32 {
        // SAFETY: `self` proves AVX.
        unsafe { value.map(|v| _mm256_cvtepi32_ps(v)) }
    }

    #[inline(always)]
    fn join(self, high: Self::I32, low: Self::I32) -> Self::I32 {
        // SAFETY: `self` proves AVX2.
        unsafe { [0, 1].map(|i| _mm256_add_epi32(_mm256_slli_epi32::<8>(high[i]), low[i])) }
    }

    #[inline(always)]
    fn codes(self, from: &Codes) -> Self::Bytes {
        let halves = from.0.as_ptr().cast::<__m256i>();
        // SAFETY: `self` proves AVX; both halves are inside the aligned array.
        unsafe { [_mm256_load_si256(halves), _mm256_load_si256(halves.add(1))] }
    }

    #[inline(always)]
    fn wide_codes(self, from: &Codes) -> Self::Bytes {
        // SAFETY: `self` proves AVX2.
        unsafe { self.codes(from).map(|v| _mm256_xor_si256(v, _mm256_set1_epi8(-128))) }
    }

    #[inline(always)]
    fn dot(self, sum: Self::I32, codes: Self::Bytes, x: i32) -> Self::I32 {
        // SAFETY: `self` proves AVX2. A pair is at most 2 * 127 * 127, which 16 bits hold.
        unsafe {
            let (x, ones) = (_mm256_set1_epi32(x), _mm256_set1_epi16(1));
            let quads = |codes| _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), ones);
            [_mm256_add_epi32(sum[0], quads(codes[0])), _mm256_add_epi32(sum[1], quads(codes[1]))]
        }
    }

    #[inline(always)]
    fn wide_dot(self, sum: Self::I32, codes: Self::Bytes, x: i32) -> Self::I32 {
        // SAFETY: `self` proves AVX2. The signs move from the codes to x, which is not -128; a pair is at most
        // 2 * 128 * 127, which 16 bits hold.
        unsafe {
            let (x, ones) = (_mm256_set1_epi32(x), _mm256_set1_epi16(1));
            let quads = |codes| {
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
                _mm256_madd_epi16(pairs, ones)
            };
            [_mm256_add_epi32(sum[0], quads(codes[0])), _mm256_add_epi32(sum[1], quads(codes[1]))]
        }
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

    /// Runs a kernel that is compiled for this instruction set alone.
    pub(in crate::cpu) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,gfni")]
        fn compiled<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` is made by `detect` alone, which found these features.
        unsafe { compiled(self, kernel) }
    }
}

impl Simd for Avx512 {
    type F32 = __m512;
    type I32 = __m512i;
    type Bytes = __m512i;

    const WIDE_SIGNED: bool = false;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn load(self, from: &Floats) -> Self::F32 {
        // SAFETY: `self` proves AVX-512 F; the aligned array is one vector long.
        unsafe { _mm512_load_ps(from.0.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut Floats) {
        // SAFETY: as in `load`.
        unsafe { _mm512_store_ps(to.0.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn widen(self, from: &[f16; LANES]) -> Self::F32 {
        // SAFETY: `self` proves AVX-512 F; the array is one vector of halves long.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn stream(self, value: Self::F32, to: &mut Floats) {
        // SAFETY: as in `load`; `Isa::fence` follows.
        unsafe { _mm512_stream_ps(to.0.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I32 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    fn to_f32(self, value: Self::I32) -> Self::F32 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_cvtepi32_ps(value) }
    }

    #[inline(always)]
    fn join(self, high: Self::I32, low: Self::I32) -> Self::I32 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_add_epi32(_mm512_slli_epi32::<8>(high), low) }
    }

    #[inline(always)]
    fn codes(self, from: &Codes) -> Self::Bytes {
        // SAFETY: `self` proves AVX-512 F; the aligned array is one vector long.
        unsafe { _mm512_load_si512(from.0.as_ptr().cast()) }
    }

    #[inline(always)]
    fn wide_codes(self, from: &Codes) -> Self::Bytes {
        self.codes(from)
    }

    #[inline(always)]
    fn dot(self, sum: Self::I32, codes: Self::Bytes, x: i32) -> Self::I32 {
        // SAFETY: `self` proves VNNI, whose sums are 32 bits wide throughout.
        unsafe { dot(sum, codes, x) }
    }

    #[inline(always)]
    fn wide_dot(self, sum: Self::I32, codes: Self::Bytes, x: i32) -> Self::I32 {
        self.dot(sum, codes, x)
    }

    #[inline(always)]
    fn interleave<const N: usize>(self, rows: &[[u8; N]; LANES], to: &mut [Codes]) {
        // SAFETY: `self` proves the features.
        unsafe { interleave(rows, to) }
    }
}

/// [`Simd::interleave`]: the transpose of a matrix of quads.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn interleave<const N: usize>(rows: &[[u8; N]; LANES], to: &mut [Codes]) {
    for (i, to) in to.chunks_mut(LANES).enumerate() {
        let mut quads = [_mm512_setzero_si512(); LANES];
        for (quads, row) in quads.iter_mut().zip(rows) {
            *quads = load_part(&row[4 * LANES * i..]);
        }
        for (to, column) in to.iter_mut().zip(transpose(quads)) {
            store(column, to);
        }
    }
}

/// Stores a vector of codes.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::cpu) fn store(codes: __m512i, to: &mut Codes) {
    // SAFETY: the aligned array is one vector long.
    unsafe { _mm512_store_si512(to.0.as_mut_ptr().cast(), codes) }
}

/// Up to 64 bytes from the start of a slice, the rest zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::cpu) fn load_part(bytes: &[u8]) -> __m512i {
    let mask = if bytes.len() < 64 { (1 << bytes.len()) - 1 } else { u64::MAX };
    // SAFETY: the mask covers bytes of the slice alone.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

/// Transposes a 16 x 16 matrix of 32-bit numbers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::cpu) fn transpose(rows: [__m512i; 16]) -> [__m512i; 16] {
    // 4 x 4 within lanes of 128 bits: quads[4 q + c] has column 4 l + c of rows 4 q .. 4 q + 4 in lane l.
    let mut quads = rows;
    for q in 0..4 {
        let (a, b, c, d) = (rows[4 * q], rows[4 * q + 1], rows[4 * q + 2], rows[4 * q + 3]);
        let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        quads[4 * q] = _mm512_unpacklo_epi64(ab_low, cd_low);
        quads[4 * q + 1] = _mm512_unpackhi_epi64(ab_low, cd_low);
        quads[4 * q + 2] = _mm512_unpacklo_epi64(ab_high, cd_high);
        quads[4 * q + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
    }
    // Then 4 x 4 of the lanes.
    let mut columns = quads;
    for c in 0..4 {
        let (a, b, e, d) = (quads[c], quads[4 + c], quads[8 + c], quads[12 + c]);
        let (ab_even, ab_odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (ed_even, ed_odd) = (_mm512_shuffle_i32x4::<0x88>(e, d), _mm512_shuffle_i32x4::<0xdd>(e, d));
        columns[c] = _mm512_shuffle_i32x4::<0x88>(ab_even, ed_even);
        columns[8 + c] = _mm512_shuffle_i32x4::<0xdd>(ab_even, ed_even);
        columns[4 + c] = _mm512_shuffle_i32x4::<0x88>(ab_odd, ed_odd);
        columns[12 + c] = _mm512_shuffle_i32x4::<0xdd>(ab_odd, ed_odd);
    }
    columns
}

#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot(sum: __m512i, codes: __m512i, x: i32) -> __m512i {
    let mut sum = _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(x));
    // SAFETY: no instruction.
    unsafe { std::arch::asm!("/* {0} */", inout(zmm_reg) sum, options(nomem, nostack, preserves_flags)) };
    sum
}

//! Which vector instructions the processor has, as values that exist only where it has them.
//!
//! A kernel is written once against [`Simd`], sixteen lanes wide, and implements [`Kernel`]; [`Isa::run`] compiles it for
//! each instruction set and runs the copy that suits. Code that needs an instruction beyond the trait takes the capability
//! itself (`Avx512`) as an argument, which is the proof that the instruction is there.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use bytemuck::{Pod, Zeroable};
use half::f16;

pub(super) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512, store};

/// Lanes of a vector of 32-bit numbers, on every instruction set.
pub(super) const LANES: usize = 16;

/// Asks for the line of the first byte, into the L2 cache; later code reads it from there.
#[inline(always)]
pub(super) fn prefetch(line: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    x86::prefetch(line);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Asks for all lines of some floats, as [`prefetch`] does.
#[inline(always)]
pub(super) fn prefetch_floats(floats: &[f32]) {
    bytemuck::cast_slice::<f32, u8>(floats).chunks(size_of::<Floats>()).for_each(prefetch);
}

/// Sixteen floats, aligned to a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Floats(pub [f32; LANES]);

/// Four bytes for each of sixteen lanes, aligned to a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Codes(pub [u8; 4 * LANES]);

impl Default for Codes {
    fn default() -> Self {
        Self([0; 4 * LANES])
    }
}

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Isa {
    /// All that this processor has, the best one last.
    pub fn available() -> Vec<Isa> {
        let sets = [
            Some(Set::Portable(Portable)),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(Set::Avx2),
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(Set::Avx512),
        ];
        sets.into_iter().flatten().map(Isa).collect()
    }

    /// The best one that this processor has.
    pub fn detect() -> Isa {
        Isa::available().pop().unwrap_or(Isa(Set::Portable(Portable)))
    }

    /// The name that reports print.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "avx512",
        }
    }

    /// Orders what [`Simd::stream`] wrote before whatever other threads are told next.
    pub(super) fn fence(self) {
        #[cfg(target_arch = "x86_64")]
        x86::fence();
    }

    /// AVX-512, if this is it.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn avx512(self) -> Option<Avx512> {
        match self.0 {
            Set::Avx512(avx512) => Some(avx512),
            _ => None,
        }
    }

    /// Rows of [`LANES`] sums that fit the vector registers beside the operands.
    pub(super) fn tile_rows(self) -> usize {
        match self.0 {
            // 32 registers of 4 lanes on aarch64, 16 elsewhere.
            Set::Portable(_) if cfg!(target_arch = "aarch64") => 6,
            Set::Portable(_) => 3,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => 6,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => 8,
        }
    }

    /// Runs the copy of a kernel that is compiled for this instruction set.
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Set::Portable(simd) => kernel.run(simd),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(simd) => simd.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(simd) => simd.run(kernel),
        }
    }
}

/// A computation that is compiled once for each instruction set.
pub(super) trait Kernel {
    /// What it returns.
    type Output;

    /// The computation. It and whatever it calls must be `#[inline(always)]`: only what is inlined is compiled for the
    /// instruction set.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Sixteen lanes of 32-bit numbers and what the products need of them. Every method is lane by lane.
pub(super) trait Simd: Copy {
    /// Sixteen floats.
    type F32: Copy;
    /// Sixteen integers.
    type I32: Copy;
    /// Four codes for each lane, in the form that [`Simd::dot`] takes.
    type Bytes: Copy;

    /// Whether [`Simd::wide_codes`] takes 128 off the codes.
    const WIDE_SIGNED: bool;

    /// The same value in all lanes.
    fn splat(self, value: f32) -> Self::F32;
    /// Lanes from memory.
    fn load(self, from: &Floats) -> Self::F32;
    /// Lanes to memory.
    fn store(self, value: Self::F32, to: &mut Floats);
    /// Half-precision numbers from memory, exactly.
    fn widen(self, from: &[f16; LANES]) -> Self::F32;
    /// Lanes to memory that is not read again soon, past the caches where the processor can.
    fn stream(self, value: Self::F32, to: &mut Floats) {
        self.store(value, to);
    }
    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once where the processor can.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;

    /// The same value in all lanes.
    fn splat_i32(self, value: i32) -> Self::I32;
    /// The nearest floats.
    fn to_f32(self, value: Self::I32) -> Self::F32;
    /// `256 high + low`.
    fn join(self, high: Self::I32, low: Self::I32) -> Self::I32;

    /// Codes up to 127 from memory.
    fn codes(self, from: &Codes) -> Self::Bytes;
    /// Codes up to 255 from memory, less 128 if [`Simd::WIDE_SIGNED`].
    fn wide_codes(self, from: &Codes) -> Self::Bytes;
    /// `sum + the products of a lane's four codes with the four bytes of x`, which are signed and not -128. Exact.
    fn dot(self, sum: Self::I32, codes: Self::Bytes, x: i32) -> Self::I32;
    /// As [`Simd::dot`], for codes from [`Simd::wide_codes`].
    fn wide_dot(self, sum: Self::I32, codes: Self::Bytes, x: i32) -> Self::I32;

    /// Turns sixteen rows of codes into columns of four: `to[c]` holds bytes `4c..4c+4` of each row.
    /// `to` is at most a quarter as long as a row.
    fn interleave<const N: usize>(self, rows: &[[u8; N]; LANES], to: &mut [Codes]) {
        for (c, to) in to.iter_mut().enumerate() {
            for (row, to) in rows.iter().zip(to.0.as_chunks_mut::<4>().0) {
                to.copy_from_slice(&row[4 * c..4 * c + 4]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Widen<'a>(&'a [f16; LANES], &'a mut Floats);

    impl Kernel for Widen<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            simd.store(simd.widen(self.0), self.1);
        }
    }

    #[test]
    fn every_half_widens_exactly() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for isa in Isa::available() {
            for halves in halves.as_chunks().0 {
                let mut wide = Floats::default();
                isa.run(Widen(halves, &mut wide));
                for (half, wide) in halves.iter().zip(wide.0) {
                    let want = half.to_f32_const();
                    let same = wide.to_bits() == want.to_bits() || wide.is_nan() && want.is_nan();
                    assert!(same, "{}: {half:?} became {wide}", isa.name());
                }
            }
        }
    }
}

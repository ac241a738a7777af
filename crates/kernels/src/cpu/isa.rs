//! Which vector instructions the processor has, as values that exist only where it has them.
//!
//! A kernel is written once against [`Simd`], sixteen lanes wide, and implements [`Kernel`]; [`Isa::run`] compiles it for
//! each instruction set and runs the copy that suits. Code that needs an instruction beyond the trait takes the capability
//! itself (`Avx512`) as an argument, which is the proof that the instruction is there.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(super) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

/// Lanes of a vector of 32-bit numbers, on every instruction set.
pub(super) const LANES: usize = 16;

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

    /// The same value in all lanes.
    fn splat(self, value: f32) -> Self::F32;
    /// Lanes from memory.
    fn load(self, from: &[f32; LANES]) -> Self::F32;
    /// Lanes to memory.
    fn store(self, value: Self::F32, to: &mut [f32; LANES]);
    /// `a * b + c`, rounded once where the processor can.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
}

//! What the processor can do at most, measured through the vectors that the kernels use: the ceilings of a roofline.
//!
//! Each number is the best of several tries, all threads at once: a ceiling is what nothing exceeds, not what is usual.

use std::hint::black_box;
use std::time::Instant;

use super::CpuDevice;
use super::isa::{Codes, Floats, Kernel, LANES, Simd};
use crate::device::DeviceError;

/// Ceilings of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Bytes a second that all threads together read from memory.
    pub read: f64,
    /// f32 operations a second: a multiply-add is two.
    pub f32: f64,
    /// 8-bit integer operations a second: a multiply-add is two.
    pub int8: f64,
}

/// Tries of which the best counts.
const TRIES: usize = 15;

/// Bytes that are read: more than caches hold.
const READ_BYTES: usize = 512 << 20;

/// Sums that do not wait for each other: enough to hide a multiply-add's latency, few enough for sixteen registers of eight
/// lanes.
const SUMS: usize = 6;

/// Steps of a try, some milliseconds.
const STEPS: usize = 1 << 21;

impl CpuDevice {
    /// Measures the ceilings with all of this device's threads. Takes some tenths of a second, and 512 MB meanwhile.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn peaks(&self) -> Result<Peaks, DeviceError> {
        let _lock = self.exclusive();
        let words = READ_BYTES / size_of::<Floats>();
        let mut values = Vec::new();
        values.try_reserve_exact(words).map_err(|_| self.out_of_memory(READ_BYTES))?;
        values.resize(words, Floats([1.0; LANES]));
        let (isa, threads) = (self.isa, self.team.threads());
        let part = words.div_ceil(threads);
        let read = self.best(|thread| isa.run(Read(values.chunks(part).nth(thread).unwrap_or_default())));
        let f32 = self.best(|_| isa.run(MulAdd));
        let int8 = self.best(|_| isa.run(Dot));
        let operations = (threads * STEPS * SUMS * LANES) as f64;
        Ok(Peaks { read: READ_BYTES as f64 / read, f32: 2.0 * operations / f32, int8: 8.0 * operations / int8 })
    }

    /// The least seconds that `work` takes when every thread does its part.
    fn best(&self, work: impl Fn(usize) -> Floats + Sync) -> f64 {
        let once = |_| {
            let start = Instant::now();
            self.team.run_on_all(&|thread| {
                black_box(work(thread));
            });
            start.elapsed().as_secs_f64()
        };
        (0..TRIES).map(once).fold(f64::INFINITY, f64::min)
    }
}

/// Reads every vector once.
struct Read<'a>(&'a [Floats]);

impl Kernel for Read<'_> {
    type Output = Floats;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Floats {
        let (mut sums, one) = ([simd.splat(0.0); SUMS], simd.splat(1.0));
        for values in self.0.as_chunks::<SUMS>().0 {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = simd.mul_add(simd.load(value), one, *sum);
            }
        }
        total(simd, sums)
    }
}

/// Multiply-adds in registers.
struct MulAdd;

impl Kernel for MulAdd {
    type Output = Floats;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Floats {
        let [a, b] = black_box([Floats([0.999; LANES]), Floats([0.001; LANES])]).map(|value| simd.load(&value));
        let mut sums = [simd.splat(1.0); SUMS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = simd.mul_add(*sum, a, b);
            }
        }
        total(simd, sums)
    }
}

/// Byte products in registers.
struct Dot;

impl Kernel for Dot {
    type Output = Floats;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Floats {
        let codes = simd.codes(&black_box(Codes([3; 4 * LANES])));
        let mut x = black_box(0x0102_03FF);
        let mut sums = [simd.splat_i32(0); SUMS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = simd.dot(*sum, codes, x);
            }
            x ^= 0x0101_0101; // or the loop is one product
        }
        total(simd, sums.map(|sum| simd.to_f32(sum)))
    }
}

/// The sum of all sums, so that none is left out.
#[inline(always)]
fn total<S: Simd>(simd: S, sums: [S::F32; SUMS]) -> Floats {
    let (mut total, one) = (simd.splat(0.0), simd.splat(1.0));
    for sum in sums {
        total = simd.mul_add(sum, one, total);
    }
    let mut out = Floats::default();
    simd.store(total, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;

    /// What is timed is computed: every vector is read, every product counted.
    #[test]
    fn the_work_is_done() {
        for isa in Isa::available() {
            let values = vec![Floats([1.0; LANES]); 60];
            assert_eq!(isa.run(Read(&values)).0, [60.0; LANES], "{}", isa.name());
            let sums = isa.run(MulAdd).0;
            assert!(sums.iter().all(|sum| (sum / SUMS as f32 - 1.0).abs() < 1e-3), "{sums:?}");
            // Of a lane: 3 * (1 + 2 + 3 - 1) in every other step, 3 * (0 + 3 + 2 - 2) in those between.
            let expected = (SUMS * STEPS / 2 * (15 + 9)) as f32;
            assert_eq!(isa.run(Dot).0, [expected; LANES], "{}", isa.name());
        }
    }
}

//! Activations as integers.
//!
//! Every 32 neighbouring activations share a scale: `x = scale * q`, q an integer rounded to nearest. With one plane q has
//! 8 bits (-127..=127), with two it has 16 (`q = 256 high + low`, each part a signed byte that is not -128), so that the
//! same byte products serve both precisions.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::unpack::{Coding, Order};
use crate::cpu::CpuDevice;
use crate::cpu::isa::{Floats, Kernel, LANES, Simd};
use crate::cpu::view::View;

/// Activations that share a scale.
pub(super) const BLOCK: usize = 32;

/// Rows that a thread quantises at a time.
const ROWS: usize = 4;

/// A block of 32 activations with `PLANES` planes, in 32-bit words.
pub(super) struct Words<const PLANES: usize>;

impl<const PLANES: usize> Words<PLANES> {
    /// Four bytes each: the planes one after the other, the high one first.
    pub const QUADS: usize = BLOCK / 4;
    /// What the zero of the weights' codes adds to a sum, negated, for each half of the block (for the whole in the first
    /// word if the weights share a scale in groups of 32). With minima, the sum of q in f32 instead.
    pub const CORRECTION: usize = PLANES * Self::QUADS;
    /// The scale in f32.
    pub const SCALE: usize = Self::CORRECTION + 2;
    /// All of them.
    pub const LEN: usize = Self::SCALE + 1;
}

/// Memory of activations that are no longer needed, for the next ones: new memory is zeroed by one thread while the others
/// wait. The largest are kept for as long as the device lives.
#[derive(Default)]
pub(in crate::cpu) struct Spare(Mutex<Vec<Vec<i32>>>);

impl Spare {
    fn memory(&self) -> MutexGuard<'_, Vec<Vec<i32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At least `len` words that hold whatever they held.
    fn take(&self, len: usize) -> Vec<i32> {
        let kept = {
            let mut memory = self.memory();
            memory.iter().position(|words| words.len() >= len).map(|i| memory.swap_remove(i))
        };
        kept.unwrap_or_else(|| vec![0; len])
    }

    /// Keeps the larger ones of what is there and these.
    fn give(&self, words: Vec<i32>) {
        let mut memory = self.memory();
        memory.push(words);
        if memory.len() > KEPT {
            memory.sort_unstable_by_key(|words| std::cmp::Reverse(words.len()));
            memory.truncate(KEPT);
        }
    }
}

/// As many as one product needs at once: a gate's activations and those of an up matrix in another format.
const KEPT: usize = 2;

/// Rows of quantised activations.
pub(super) struct Quantised {
    spare: Arc<Spare>,
    /// `[row][block][word]`, or `[row][chunk of sixteen blocks][word][block]`
    words: Vec<i32>,
    /// The first word, in a cache line's first place.
    first: usize,
    /// Words of a row.
    stride: usize,
    #[cfg(target_arch = "x86_64")]
    rows: usize,
}

impl Drop for Quantised {
    fn drop(&mut self) {
        self.spare.give(mem::take(&mut self.words));
    }
}

impl Quantised {
    /// Quantises the rows of `x` for weights of one coding; only rows for which `used` holds.
    pub fn new<const PLANES: usize, const W: usize>(
        device: &CpuDevice,
        x: View<f32>,
        coding: Coding,
        used: impl Fn(usize) -> bool + Sync,
    ) -> Self {
        let blocks = x.cols() / BLOCK;
        let stride =
            if coding.across.is_some() { blocks.next_multiple_of(LANES) } else { blocks } * Words::<PLANES>::LEN;
        let spare = device.spare.clone();
        let mut words = spare.take(x.rows() * stride + LANES);
        let first = words.as_ptr().align_offset(align_of::<Floats>());
        if stride > 0 {
            let rows = &mut words[first..][..x.rows() * stride];
            device.team.for_each_chunk(rows, ROWS * stride, |chunk, words| {
                for (i, words) in words.chunks_exact_mut(stride).enumerate().filter(|(i, _)| used(ROWS * chunk + i)) {
                    device.isa.run(Row::<PLANES, W> { x: x.row(ROWS * chunk + i), coding, words });
                }
            });
        }
        Self {
            spare,
            words,
            first,
            stride,
            #[cfg(target_arch = "x86_64")]
            rows: x.rows(),
        }
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.stride * size_of::<i32>()
    }

    /// Blocks of `W` words of a row.
    pub fn row<const W: usize>(&self, row: usize) -> &[[i32; W]] {
        self.words[self.first + row * self.stride..][..self.stride].as_chunks().0
    }

    /// All rows, as chunks of sixteen blocks of `V` words in sixteen lanes, and the chunks of a row.
    #[cfg(target_arch = "x86_64")]
    pub fn across<const V: usize>(&self) -> (&[[Floats; V]], usize) {
        let words = &self.words[self.first..][..self.rows * self.stride];
        (bytemuck::cast_slice::<i32, Floats>(words).as_chunks().0, self.stride / (V * LANES))
    }
}

/// Quantises one row.
struct Row<'a, const PLANES: usize, const W: usize> {
    x: &'a [f32],
    coding: Coding,
    words: &'a mut [i32],
}

impl<const PLANES: usize, const W: usize> Kernel for Row<'_, PLANES, W> {
    type Output = ();

    // Loops over arrays of constant length, and no closures, so that all of it becomes vector code.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { x, coding, words: all } = self;
        let zero = if coding.zero == 128 && S::WIDE_SIGNED { 0 } else { i32::from(coding.zero) };
        let (blocks, _) = x.as_chunks::<BLOCK>();
        if coding.across.is_some() {
            // The last chunk's lanes without a block.
            all[blocks.len() / LANES * LANES * W..].fill(0);
        }
        let mut lane = [0; W];
        for (b, x) in blocks.iter().enumerate() {
            let words = if coding.across.is_some() { &mut lane } else { &mut all.as_chunks_mut::<W>().0[b] };
            let (mut q, scale) = quantise(x, if PLANES == 1 { 127.0 } else { 127.0 * 257.0 });
            if PLANES == 2 {
                let mut high = [0; BLOCK];
                for i in 0..BLOCK {
                    high[i] = (q[i] + 128) >> 8;
                    // A low part of -128 becomes -127: one unit in 65,000.
                    q[i] = (q[i] - 256 * high[i]).max(-127);
                }
                store(&high, coding.order, words);
                store(&q, coding.order, &mut words[BLOCK / 4..]);
                for i in 0..BLOCK {
                    q[i] += 256 * high[i];
                }
            } else {
                store(&q, coding.order, words);
            }
            let mut halves = [0; 2];
            for i in 0..BLOCK / 2 {
                halves[0] += q[i];
                halves[1] += q[i + BLOCK / 2];
            }
            let sums = if coding.group == 16 { halves } else { [halves[0] + halves[1], 0] };
            for (word, sum) in words[Words::<PLANES>::CORRECTION..].iter_mut().zip(sums) {
                *word = if coding.min { (sum as f32).to_bits() as i32 } else { -zero * sum };
            }
            words[Words::<PLANES>::SCALE] = scale.to_bits() as i32;
            if coding.across.is_some() {
                let chunk = &mut all.as_chunks_mut::<LANES>().0[b / LANES * W..][..W];
                for (vector, word) in chunk.iter_mut().zip(lane) {
                    vector[b % LANES] = word;
                }
            }
        }
    }
}

/// Integers that fit a byte, four to a word, those of a quad together.
#[inline(always)]
fn store(q: &[i32; BLOCK], order: Order, words: &mut [i32]) {
    let mut bytes = [0; BLOCK];
    for i in 0..BLOCK {
        bytes[i] = q[i] as u8;
    }
    let (words, _) = words.as_chunks_mut::<{ BLOCK / 4 }>();
    match order {
        Order::Plain => words[0] = bytemuck::cast(bytes),
        Order::Pairs => words[0] = transposed(bytes, [0, 2, 1, 3]),
        Order::Fours => words[0] = transposed(bytes, [0, 1, 2, 3]),
    }
}

/// Word w of four has byte w of those four words, in that order.
#[inline(always)]
fn transposed(bytes: [u8; BLOCK], order: [usize; 4]) -> [i32; BLOCK / 4] {
    let plain: [u32; BLOCK / 4] = bytemuck::cast(bytes);
    let mut words = [0; BLOCK / 4];
    for (i, word) in words.iter_mut().enumerate() {
        let (first, shift) = (i / 4 * 4, 8 * (i % 4));
        let [a, b, c, d] = order.map(|word| plain[first + word] >> shift & 0xff);
        *word = (a | b << 8 | c << 16 | d << 24) as i32;
    }
    words
}

/// The integers nearest to `x / scale` with the scale that makes the largest of them `largest`.
///
/// A block below 2^-100 is zero. One with a number that is not finite has a scale that is NaN, and so has every product.
#[inline(always)]
fn quantise(x: &[f32; BLOCK], largest: f32) -> ([i32; BLOCK], f32) {
    // The bits of positive floats are in the order of the floats, and those of infinity and NaN are above all others.
    let mut top = 0;
    for x in x {
        top = top.max(x.to_bits() & 0x7fff_ffff);
    }
    let top = f32::from_bits(top);
    let mut q = [0; BLOCK];
    if !top.is_finite() {
        return (q, f32::NAN);
    }
    let inverse = if top < 2f32.powi(-100) { 0.0 } else { largest / top };
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    for i in 0..BLOCK {
        q[i] = (x[i] * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
    }
    (q, top / largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_exact_and_the_others_are_nearest() {
        let x: [f32; BLOCK] = std::array::from_fn(|i| (i as f32 - 20.0) * 1e6);
        let (q, scale) = quantise(&x, 127.0);
        assert_eq!((q[0], q[20], q[31]), (-127, 0, 70)); // 11 / 20 * 127 = 69.85
        assert!(x.iter().zip(q).all(|(x, q)| (x - q as f32 * scale).abs() <= 0.5001 * scale));
    }

    #[test]
    fn numbers_at_the_edges() {
        assert_eq!(quantise(&[0.0; BLOCK], 127.0), ([0; BLOCK], 0.0));
        assert_eq!(quantise(&[1e-38; BLOCK], 127.0).0, [0; BLOCK]);
        assert_eq!(quantise(&[f32::MAX; BLOCK], 127.0).0, [127; BLOCK]);
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut block = [1.0; BLOCK];
            block[7] = x;
            assert!(quantise(&block, 127.0).1.is_nan());
        }
    }
}

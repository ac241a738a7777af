//! Unpacking with AVX-512, for the formats where it pays: sixteen rows at once, from bytes to a panel in registers.

pub(in crate::cpu::gemm) mod grid;
mod nibble;

use std::arch::x86_64::*;
use std::marker::PhantomData;

use argon_gguf::Format;
use argon_gguf::quant::blocks::{BlockIQ4_NL, BlockIQ4_XS, BlockMXFP4};
use nibble::Runs;

use super::{Ahead, Panel, Stretch, clear_from};
use crate::cpu::isa::{Avx512, LANES};

/// Whether [`unpack`] takes a format.
pub(super) fn takes(format: Format) -> bool {
    matches!(format, Format::IQ4_NL | Format::IQ4_XS | Format::MXFP4)
}

/// Unpacks a stretch of a format that is [taken](takes).
pub(super) fn unpack(avx512: Avx512, weights: &Stretch, ahead: &mut Ahead, panel: &mut Panel) {
    match weights.format {
        Format::IQ4_NL => all(Runs::<BlockIQ4_NL>::new(avx512, weights, ahead), panel),
        Format::IQ4_XS => all(Runs::<BlockIQ4_XS>::new(avx512, weights, ahead), panel),
        Format::MXFP4 => all(Runs::<BlockMXFP4>::new(avx512, weights, ahead), panel),
        format => unreachable!("{format} is not taken"),
    }
    clear_from(weights.lanes, panel);
}

/// Where the codes of a panel come from.
trait Supply {
    /// Puts block `b` of 32 columns into the panel. Blocks are asked for in order.
    fn block(&mut self, b: usize, panel: &mut Panel);
}

/// All blocks of a panel.
fn all(mut supply: impl Supply, panel: &mut Panel) {
    for b in 0..panel.codes.len() / 8 {
        supply.block(b, panel);
    }
}

/// Some blocks of sixteen rows, as many in each.
pub(in crate::cpu::gemm) struct Rows<'a, B> {
    first: [*const B; LANES],
    pub blocks: usize,
    life: PhantomData<&'a B>,
}

impl<'a, B: bytemuck::Pod> Rows<'a, B> {
    /// The blocks of a stretch; rows that are missing repeat the last.
    pub fn new(weights: &Stretch<'a>) -> Self {
        const { assert!(align_of::<B>() == 1) }
        let Stretch { format, bytes, stride, lanes, cols } = weights;
        assert!(size_of::<B>() == format.block_bytes() && *lanes > 0);
        let (start, end) = (cols.start / format.block_len(), cols.end / format.block_len());
        assert!((lanes - 1) * stride + end * size_of::<B>() <= bytes.len() && start <= end);
        let first = bytes[start * size_of::<B>()..].as_ptr();
        // SAFETY: row `lanes - 1` begins inside the bytes, which was checked.
        let first = std::array::from_fn(|row| unsafe { first.add(row.min(lanes - 1) * stride).cast::<B>() });
        Self { first, blocks: end - start, life: PhantomData }
    }

    /// Block `b` of a row, or another one if it has none.
    #[inline(always)]
    pub fn block<'b>(&'b self, row: usize, b: usize, other: &'b B) -> &'b B {
        // SAFETY: inside the bytes that `new` checked.
        if b < self.blocks { unsafe { &*self.first[row].add(b) } } else { other }
    }

    /// Block `b` of every row.
    #[inline(always)]
    fn at(&self, b: usize) -> [&'a B; LANES] {
        assert!(b < self.blocks, "block {b} of {}", self.blocks);
        // SAFETY: inside the bytes that `new` checked.
        std::array::from_fn(|row| unsafe { &*self.first[row].add(b) })
    }
}

/// A table in whole cache lines: no look-up reads two.
#[repr(C, align(64))]
struct Lines<const N: usize>([[u8; 64]; N]);

impl<const N: usize> Lines<N> {
    const fn new<const LEN: usize>(table: &[u8; LEN]) -> Self {
        assert!(LEN == 64 * N);
        let mut lines = [[0; 64]; N];
        let mut i = 0;
        while i < LEN {
            lines[i / 64][i % 64] = table[i];
            i += 1;
        }
        Self(lines)
    }

    /// Line `i`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn line(&self, i: usize) -> __m512i {
        bytes(&self.0[i])
    }
}

/// A vector of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
fn bytes(from: &[u8; 64]) -> __m512i {
    // SAFETY: as long as a vector.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

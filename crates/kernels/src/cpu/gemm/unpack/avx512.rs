//! Unpacking with AVX-512, for the formats where it pays: sixteen rows at once, from bytes to a panel in registers.

mod grid;
mod nibble;

use std::arch::x86_64::*;
use std::marker::PhantomData;

use argon_gguf::Format;

use super::super::integer::{Multiply, NARROW, Supply, Tile};
use super::{Ahead, Panel, Stretch, clear_from};
use crate::cpu::isa::{Avx512, LANES};

/// Whether [`unpack`] takes a format.
pub(super) fn takes(format: Format) -> bool {
    matches!(format, Format::IQ2_XS | Format::IQ4_NL)
}

/// Unpacks a stretch of a format that is [taken](takes).
pub(super) fn unpack(avx512: Avx512, weights: &Stretch, ahead: &mut Ahead, panel: &mut Panel) {
    match weights.format {
        Format::IQ2_XS => all(grid::Iq2Xs::new(avx512, weights, ahead), panel),
        Format::IQ4_NL => all(nibble::Iq4Nl::new(avx512, weights, ahead), panel),
        format => unreachable!("{format} is not taken"),
    }
    clear_from(weights.lanes, panel);
}

/// All blocks of a panel.
fn all(mut supply: impl Supply, panel: &mut Panel) {
    for b in 0..panel.codes.len() / 8 {
        supply.block(b, panel);
    }
}

/// Whether [`multiply`] takes a format: IQ2_XS at ten rows gains a fifteenth, IQ4_NL gains nothing.
pub(super) fn multiplies(format: Format) -> bool {
    matches!(format, Format::IQ2_XS)
}

/// Unpacks a stretch of sixteen rows in a format for which [`multiplies`] holds, and multiplies a tile with it meanwhile.
pub(super) fn multiply<const PLANES: usize, const W: usize>(
    avx512: Avx512,
    weights: &Stretch,
    ahead: &mut Ahead,
    tile: Tile,
    panel: &mut Panel,
) {
    assert!(multiplies(weights.format) && weights.lanes == LANES);
    let supply = grid::Iq2Xs::new(avx512, weights, ahead);
    avx512.run(Multiply::<PLANES, W, 2, NARROW, _> { tile, panel, supply });
}

/// Some blocks of sixteen rows, as many in each.
struct Rows<'a, B> {
    first: [*const B; LANES],
    blocks: usize,
    life: PhantomData<&'a B>,
}

impl<'a, B: bytemuck::Pod> Rows<'a, B> {
    /// The blocks of a stretch; rows that are missing repeat the last.
    fn new(weights: &Stretch<'a>) -> Self {
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

    /// Block `b` of every row.
    #[inline(always)]
    fn at(&self, b: usize) -> [&'a B; LANES] {
        assert!(b < self.blocks, "block {b} of {}", self.blocks);
        // SAFETY: inside the bytes that `new` checked.
        std::array::from_fn(|row| unsafe { &*self.first[row].add(b) })
    }
}

/// A vector of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f")]
fn bytes(from: &[u8; 64]) -> __m512i {
    // SAFETY: as long as a vector.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

/// Sixteen halves as floats.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves(from: &[[u8; 2]; LANES]) -> __m512 {
    // SAFETY: as long as a vector.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
}

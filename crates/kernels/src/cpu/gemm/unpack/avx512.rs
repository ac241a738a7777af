//! Unpacking with AVX-512, for the formats where it pays: sixteen rows at once, from bytes to a panel in registers.

mod grid;
mod nibble;

use std::arch::x86_64::*;
use std::marker::PhantomData;

use argon_gguf::Format;
use argon_gguf::quant::blocks::*;

use super::{Ahead, Panel, Stretch, clear_from};
use crate::cpu::isa::{Avx512, LANES};

/// Whether [`unpack`] takes a format.
pub(super) fn takes(format: Format) -> bool {
    matches!(format, Format::IQ2_XS | Format::IQ4_NL)
}

/// Unpacks a stretch of a format that is [taken](takes).
pub(super) fn unpack(_: Avx512, weights: &Stretch, ahead: &mut Ahead, panel: &mut Panel) {
    // SAFETY: the capability proves the features.
    unsafe {
        match weights.format {
            Format::IQ2_XS => grid::iq2_xs(&Rows::<BlockIQ2_XS>::new::<256>(weights), ahead, panel),
            Format::IQ4_NL => nibble::iq4_nl(&Rows::<BlockIQ4_NL>::new::<32>(weights), ahead, panel),
            format => unreachable!("{format} is not taken"),
        }
    }
    clear_from(weights.rows.len(), panel);
}

/// Some blocks of sixteen rows, as many in each.
struct Rows<'a, B> {
    first: [*const B; LANES],
    blocks: usize,
    life: PhantomData<&'a B>,
}

impl<'a, B: bytemuck::Pod> Rows<'a, B> {
    /// The blocks of `N` columns of which `cols` consists; rows that are missing repeat the first.
    fn new<const N: usize>(Stretch { rows, cols, .. }: &Stretch<'a>) -> Self {
        let blocks = |row: &&'a [u8]| &bytemuck::cast_slice::<u8, B>(row)[cols.start / N..cols.end / N];
        let first = std::array::from_fn(|i| blocks(rows.get(i).unwrap_or(&rows[0])).as_ptr());
        Self { first, blocks: cols.len() / N, life: PhantomData }
    }

    /// Block `b` of every row.
    #[inline(always)]
    fn at(&self, b: usize) -> [&'a B; LANES] {
        assert!(b < self.blocks, "block {b} of {}", self.blocks);
        // SAFETY: inside the slices that `new` found.
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

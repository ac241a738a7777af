//! Products in f32: decoded weights times the activations as they are.

use argon_gguf::decode_row;

use super::ahead::Ahead;
use super::tune;
use super::unpack::Stretch;
use crate::cpu::isa::{Floats, Isa, Kernel, LANES, Simd};
use crate::cpu::view::View;

/// Columns decoded at a time: a multiple of every format's block.
const CHUNK: usize = 256;

/// Products summed in one go before their sum joins the total. The rounding of one long sum grows with the square root of
/// its length: on 2560 columns, runs of this length make it a fifth, and cost one addition in as many.
const RUN: usize = 32;

/// Decodes a stretch of weight rows, side by side: `panel` becomes `[columns][lane]`. Lanes without a row are zero.
pub(super) fn unpack(isa: Isa, weights: &Stretch, ahead: &mut Ahead, panel: &mut [Floats]) {
    let format = weights.format;
    let bytes = |cols: usize| cols / format.block_len() * format.block_bytes();
    let mut decoded = [[0.0f32; CHUNK]; LANES];
    for (i, panel) in panel.chunks_mut(CHUNK).enumerate() {
        ahead.step(CHUNK / 32);
        let first = i * CHUNK;
        for (row, decoded) in weights.rows().zip(&mut decoded) {
            decode_row(format, &row[bytes(first)..bytes(first + panel.len())], &mut decoded[..panel.len()]);
        }
        isa.run(SideBySide { rows: &decoded, panel });
    }
}

/// Turns rows of floats into columns.
struct SideBySide<'a> {
    rows: &'a [[f32; CHUNK]; LANES],
    panel: &'a mut [Floats],
}

impl Kernel for SideBySide<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let rows: &[[u8; 4 * CHUNK]; LANES] = bytemuck::cast_ref(self.rows);
        simd.interleave(rows, bytemuck::cast_slice_mut(self.panel));
    }
}

/// Adds to `sums` the products of the input rows `rows` with a panel that begins in column `first`.
pub(super) fn multiply(isa: Isa, x: View<f32>, rows: &[usize], first: usize, panel: &[Floats], sums: &mut [Floats]) {
    isa.run(Multiply { x, rows, first, panel, sums });
}

struct Multiply<'a> {
    x: View<'a, f32>,
    rows: &'a [usize],
    first: usize,
    panel: &'a [Floats],
    sums: &'a mut [Floats],
}

impl Kernel for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        tune::for_height!(self.rows, R => self.tile::<S, R>(simd));
    }
}

impl Multiply<'_> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(self, simd: S) {
        let Self { x, rows, first, panel, sums } = self;
        let x: [&[f32]; R] = std::array::from_fn(|r| &x.row(rows[r])[first..][..panel.len()]);
        let mut totals: [S::F32; R] = std::array::from_fn(|r| simd.load(&sums[r]));
        let one = simd.splat(1.0);
        for (i, panel) in panel.chunks(RUN).enumerate() {
            let x: [&[f32]; R] = std::array::from_fn(|r| &x[r][i * RUN..][..panel.len()]);
            let mut run = [simd.splat(0.0); R];
            for (k, w) in panel.iter().enumerate() {
                let w = simd.load(w);
                for r in 0..R {
                    run[r] = simd.mul_add(simd.splat(x[r][k]), w, run[r]);
                }
            }
            for r in 0..R {
                totals[r] = simd.mul_add(one, run[r], totals[r]);
            }
        }
        for (sum, total) in sums.iter_mut().zip(totals) {
            simd.store(total, sum);
        }
    }
}

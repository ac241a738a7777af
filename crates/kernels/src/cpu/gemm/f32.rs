//! Products in f32: decoded weights times the activations as they are.

use argon_gguf::decode_row;

use super::{Lanes, Scheme, tune};
use crate::cpu::isa::{Isa, Kernel, LANES, Simd};
use crate::cpu::memory::View;
use crate::tensor::Weight;

/// Columns decoded at a time: a multiple of every format's block, and few enough that sixteen rows stay in the L1 cache.
const DECODE: usize = 256;

/// Operands in f32.
pub(super) struct F32<'a> {
    /// `[M, 1, K]`.
    pub x: View<'a, f32>,
}

/// Tiles of input rows, one after the other, each `[k][row]`.
#[derive(Default)]
pub(super) struct Rows {
    values: Vec<f32>,
    /// Height and first value of each tile.
    tiles: Vec<(usize, usize)>,
}

/// Sixteen weight rows, `[k][LANES]`.
#[derive(Default)]
pub(super) struct Panel {
    values: Vec<Lanes>,
    /// Rows being decoded, `[row][DECODE]`.
    decoded: Vec<f32>,
}

impl Scheme for F32<'_> {
    type Rows = Rows;
    type Panel = Panel;

    fn pack(&self, _: Isa, rows: &[usize], heights: &[usize], packed: &mut Rows) {
        let k = self.x.cols();
        packed.values.resize(rows.len() * k, 0.0);
        packed.tiles.clear();
        let (mut rows, mut values) = (rows, packed.values.as_mut_slice());
        let mut first = 0;
        for &height in heights {
            let (tile_rows, rest) = rows.split_at(height);
            let (tile, rest_values) = values.split_at_mut(height * k);
            (rows, values) = (rest, rest_values);
            for (i, &row) in tile_rows.iter().enumerate() {
                for (to, &from) in tile.iter_mut().skip(i).step_by(height).zip(self.x.row(row)) {
                    *to = from;
                }
            }
            packed.tiles.push((height, first));
            first += height * k;
        }
    }

    fn unpack(&self, _: Isa, part: &Weight, rows: &[&[u8]], panel: &mut Panel) {
        let Panel { values, decoded } = panel;
        values.resize(part.cols, [0.0; LANES]);
        decoded.clear();
        decoded.resize(LANES * DECODE, 0.0);
        let chunk_bytes = DECODE / part.format.block_len() * part.format.block_bytes();
        for (chunk, values) in values.chunks_mut(DECODE).enumerate() {
            for (row, decoded) in rows.iter().zip(decoded.chunks_exact_mut(DECODE)) {
                let bytes = &row[chunk * chunk_bytes..row.len().min((chunk + 1) * chunk_bytes)];
                decode_row(part.format, bytes, &mut decoded[..values.len()]);
            }
            for (k, lanes) in values.iter_mut().enumerate() {
                *lanes = std::array::from_fn(|lane| decoded[lane * DECODE + k]);
            }
        }
    }

    fn multiply(&self, isa: Isa, packed: &Rows, tile: usize, panel: &Panel, out: &mut [Lanes]) {
        let (height, first) = packed.tiles[tile];
        let x = &packed.values[first..first + height * self.x.cols()];
        isa.run(Multiply { x, w: &panel.values, out });
    }
}

/// `out[r] = sum over k of x[k][r] * w[k]`.
struct Multiply<'a> {
    x: &'a [f32],
    w: &'a [Lanes],
    out: &'a mut [Lanes],
}

impl Kernel for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        tune::for_height!(self.out.len(), R => self.tile::<S, R>(simd));
    }
}

impl Multiply<'_> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(self, simd: S) {
        let mut sums = [simd.splat(0.0); R];
        for (x, w) in self.x.as_chunks::<R>().0.iter().zip(self.w) {
            let w = simd.load(w);
            for (sum, &x) in sums.iter_mut().zip(x) {
                *sum = simd.mul_add(simd.splat(x), w, *sum);
            }
        }
        for (out, sum) in self.out.iter_mut().zip(sums) {
            simd.store(sum, out);
        }
    }
}

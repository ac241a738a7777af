//! Products in f32 with few weight rows: gates, and what each residual stream takes back.
//!
//! Lanes are columns and not weight rows, of which a panel would be almost empty. Input rows come from memory, once.

use argon_gguf::decode_row;

use super::unpack::grown;
use crate::cpu::CpuDevice;
use crate::cpu::copy::rows_per_task;
use crate::cpu::isa::{Floats, Kernel, LANES, Simd};
use crate::cpu::math::total;
use crate::cpu::view::{View, ViewMut, WeightRows};
use crate::device::DeviceError;
use crate::op::{Epilogue, Gemm, Precision, RowMap};

/// Most weight rows: as many sums as keep a processor busy, and one read of a vector of inputs serves all of them.
const MOST: usize = 4;

/// Whether a product is one of these.
pub(super) fn takes(o: &Gemm) -> bool {
    let plain = o.bias.is_none() && matches!((&o.rows, &o.epilogue), (RowMap::Identity, Epilogue::Store));
    plain && o.precision == Precision::F32 && (1..=MOST).contains(&o.w.rows)
}

/// Runs a product that [`takes`] said yes to.
pub(super) fn gemm(device: &CpuDevice, o: &Gemm) -> Result<(), DeviceError> {
    let (x, bytes) = (View::<f32>::of(device, &o.x)?, WeightRows::of(device, &o.w)?);
    let vectors = o.w.cols.div_ceil(LANES);
    let mut weights = vec![Floats::default(); o.w.rows * vectors];
    for (row, weights) in weights.chunks_exact_mut(vectors.max(1)).enumerate() {
        let floats: &mut [f32] = bytemuck::cast_slice_mut(weights);
        decode_row(o.w.format, bytes.row(0, row), &mut floats[..o.w.cols]);
    }
    let out = ViewMut::<f32>::of(device, &o.out)?;
    out.tiles([rows_per_task(o.w.cols), 1, o.w.rows]).for_each(&device.team, |mut tile| {
        let mut memory = Vec::new();
        for (i, row) in tile.rows.clone().enumerate() {
            let (x, out) = (vectors_of(x.row(row), &mut memory), tile.view.at_mut(i, 0));
            match o.w.rows {
                1 => device.isa.run(Row::<1> { x, weights: &weights, out }),
                2 => device.isa.run(Row::<2> { x, weights: &weights, out }),
                3 => device.isa.run(Row::<3> { x, weights: &weights, out }),
                _ => device.isa.run(Row::<MOST> { x, weights: &weights, out }),
            }
        }
    });
    Ok(())
}

/// A row as whole vectors: where it is, or a copy if it does not begin or end between two.
fn vectors_of<'a>(row: &'a [f32], memory: &'a mut Vec<Floats>) -> &'a [Floats] {
    bytemuck::try_cast_slice(row).unwrap_or_else(|_| {
        let vectors = grown(memory, row.len().div_ceil(LANES));
        bytemuck::cast_slice_mut(vectors)[..row.len()].copy_from_slice(row);
        vectors
    })
}

/// The products of one input row.
struct Row<'a, const N: usize> {
    x: &'a [Floats],
    /// N rows as long as `x`.
    weights: &'a [Floats],
    out: &'a mut [f32],
}

impl<const N: usize> Kernel for Row<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { x, weights, out } = self;
        let weights: [&[Floats]; N] = std::array::from_fn(|n| &weights[n * x.len()..][..x.len()]);
        let mut sums = [simd.splat(0.0); N];
        for (v, x) in x.iter().enumerate() {
            let x = simd.load(x);
            for n in 0..N {
                sums[n] = simd.mul_add(x, simd.load(&weights[n][v]), sums[n]);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            let mut lanes = Floats::default();
            simd.store(sum, &mut lanes);
            *out = total(lanes.0);
        }
    }
}

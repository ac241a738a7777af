//! Products of small f32 matrices that are in the cache: what attention, the indexer and the delta rule are made of.

use super::isa::{Isa, Kernel, LANES, Simd};

/// `c[i, j] = keep[i] * c[i, j] + sum over k of a[i, k] * b[k, j]`, each sum in the order of k and rounded as the instruction
/// set's `mul_add` rounds, whatever the shape: an element's bits do not depend on its neighbours.
pub(super) struct MatMul<'a> {
    /// Rows i, columns j, terms k of each sum. Columns are whole vectors.
    pub shape: [usize; 3],
    /// Elements, and their strides: `a[i, k]` is at `i * strides[0] + k * strides[1]`.
    pub a: (&'a [f32], [usize; 2]),
    /// Elements, and from a row (a term) to the next.
    pub b: (&'a [f32], usize),
    /// Elements, and from a row to the next.
    pub c: (&'a mut [f32], usize),
    /// A factor for each row of what is in `c`; where absent, `c` is overwritten.
    pub keep: Option<&'a [f32]>,
}

impl MatMul<'_> {
    /// Computes it with the vectors of `isa`.
    ///
    /// # Panics
    /// If a slice is too short for the shape, or the columns are no whole vectors.
    pub(super) fn run(self, isa: Isa) {
        let [m, n, k] = self.shape;
        assert!(n.is_multiple_of(LANES), "{n} columns");
        if m == 0 || n == 0 {
            return;
        }
        if k > 0 {
            let [row, term] = self.a.1;
            assert!((m - 1) * row + (k - 1) * term < self.a.0.len() && (k - 1) * self.b.1 + n <= self.b.0.len());
        }
        assert!((m - 1) * self.c.1 + n <= self.c.0.len() && self.keep.is_none_or(|keep| m <= keep.len()));
        isa.run(Checked { tile: isa.tile_rows(), product: self });
    }
}

/// A product whose slices are long enough.
struct Checked<'a> {
    /// Rows of sums that fit the registers, one vector wide.
    tile: usize,
    product: MatMul<'a>,
}

impl Kernel for Checked<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        match self.tile {
            8.. => self.rows::<S, 8, 2>(simd),
            6.. => self.rows::<S, 6, 1>(simd),
            _ => self.rows::<S, 3, 1>(simd),
        }
    }
}

impl Checked<'_> {
    /// In tiles of R rows and V vectors; what is left, in tiles of one row and of one vector.
    #[inline(always)]
    fn rows<S: Simd, const R: usize, const V: usize>(&mut self, simd: S) {
        let [m, n, _] = self.product.shape;
        let (m_tiled, n_tiled) = (m / R * R, n / (V * LANES) * (V * LANES));
        for j in (0..n_tiled).step_by(V * LANES) {
            for i in (0..m_tiled).step_by(R) {
                self.sums::<S, R, V>(simd, i, j);
            }
            for i in m_tiled..m {
                self.sums::<S, 1, V>(simd, i, j);
            }
        }
        for j in (n_tiled..n).step_by(LANES) {
            for i in (0..m_tiled).step_by(R) {
                self.sums::<S, R, 1>(simd, i, j);
            }
            for i in m_tiled..m {
                self.sums::<S, 1, 1>(simd, i, j);
            }
        }
    }

    /// The tile at row i, column j.
    #[inline(always)]
    fn sums<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, i: usize, j: usize) {
        let MatMul { shape: [.., terms], a: (a, a_strides), b: (b, b_stride), c: (c, c_stride), keep } =
            &mut self.product;
        let lanes = |slice: &[f32], at: usize| {
            // SAFETY: whole vectors inside rows that `MatMul::run` found inside their slices.
            simd.load(unsafe { &*slice.as_ptr().add(at).cast::<[f32; LANES]>() })
        };
        let mut sums = [[simd.splat(0.0); V]; R];
        if let Some(keep) = keep {
            for (r, sums) in sums.iter_mut().enumerate() {
                let factor = simd.splat(keep[i + r]);
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.mul_add(factor, lanes(c, (i + r) * *c_stride + j + v * LANES), *sum);
                }
            }
        }
        for k in 0..*terms {
            let b: [S::F32; V] = std::array::from_fn(|v| lanes(b, k * *b_stride + j + v * LANES));
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: row and term are below those of the shape, which `MatMul::run` found inside the slice.
                let factor = simd.splat(unsafe { *a.get_unchecked((i + r) * a_strides[0] + k * a_strides[1]) });
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = simd.mul_add(factor, b, *sum);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                let at = (i + r) * *c_stride + j + v * LANES;
                // SAFETY: as for loads.
                simd.store(sum, unsafe { &mut *c.as_mut_ptr().add(at).cast::<[f32; LANES]>() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers: exact in every order and with every rounding.
    fn numbers(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7 + seed) % 11) as f32 - 5.0).collect()
    }

    #[test]
    fn shapes_strides_and_factors() {
        for isa in Isa::available() {
            for m in [0, 1, 2, 3, 5, 6, 7, 8, 9, 17] {
                for n in [0, 16, 32, 48, 80] {
                    for k in [0, 1, 5] {
                        for transposed in [false, true] {
                            for kept in [false, true] {
                                check(isa, [m, n, k], transposed, kept);
                            }
                        }
                    }
                }
            }
        }
    }

    fn check(isa: Isa, [m, n, k]: [usize; 3], transposed: bool, kept: bool) {
        let a_strides = if transposed { [1, m + 2] } else { [k + 2, 1] };
        let (a, b) = (numbers((m + 2) * (k + 2), 1), numbers(k * (n + 3), 2));
        let (before, keep) = (numbers(m * (n + 1), 3), numbers(m, 4));
        let mut c = before.clone();
        let keep_rows = kept.then_some(&keep[..]);
        MatMul { shape: [m, n, k], a: (&a, a_strides), b: (&b, n + 3), c: (&mut c, n + 1), keep: keep_rows }.run(isa);
        for i in 0..m {
            for j in 0..=n {
                let sum: f32 = (0..k).map(|k| a[i * a_strides[0] + k * a_strides[1]] * b[k * (n + 3) + j]).sum();
                let old = before[i * (n + 1) + j];
                let want = if j == n { old } else { sum + if kept { keep[i] * old } else { 0.0 } };
                assert_eq!(c[i * (n + 1) + j], want, "{} {:?} at {i}, {j}", isa.name(), [m, n, k]);
            }
        }
    }
}

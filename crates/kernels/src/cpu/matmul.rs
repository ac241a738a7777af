//! Products of small f32 matrices that are in the cache: what attention, the indexer and the delta rule are made of.

use super::isa::{Floats, Isa, Kernel, LANES, Simd};

/// Vectors, and how many from a row to the next.
pub(super) type Rows<'a> = (&'a [Floats], usize);

/// As [`Rows`], to be written.
pub(super) type RowsMut<'a> = (&'a mut [Floats], usize);

/// Rows of whole vectors.
pub(super) struct Matrix {
    values: Vec<Floats>,
    /// Vectors in a row.
    vectors: usize,
}

impl Matrix {
    /// Zeros; `cols` is rounded up to whole vectors.
    pub(super) fn new(rows: usize, cols: usize) -> Self {
        let vectors = cols.div_ceil(LANES);
        Self { values: vec![Floats::default(); rows * vectors], vectors }
    }

    /// Columns, those of the padding too.
    pub(super) fn cols(&self) -> usize {
        self.vectors * LANES
    }

    pub(super) fn row(&self, row: usize) -> &[f32] {
        bytemuck::cast_slice(&self.values[row * self.vectors..][..self.vectors])
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.values[row * self.vectors..][..self.vectors])
    }

    pub(super) fn vectors_mut(&mut self, row: usize) -> &mut [Floats] {
        &mut self.values[row * self.vectors..][..self.vectors]
    }

    /// The elements from `row` on, as the left operand of a [`MatMul`].
    pub(super) fn left(&self, row: usize) -> (&[f32], [usize; 2]) {
        (bytemuck::cast_slice(&self.values[row * self.vectors..]), [self.cols(), 1])
    }

    /// The rows from `row` on, as the right operand.
    pub(super) fn right(&self, row: usize) -> Rows<'_> {
        (&self.values[row * self.vectors..], self.vectors)
    }

    /// The rows from `row` on, as the result.
    pub(super) fn result(&mut self, row: usize) -> RowsMut<'_> {
        (&mut self.values[row * self.vectors..], self.vectors)
    }

    /// The rows from `right` to `result` as the right operand, and those from `result` on as the result.
    pub(super) fn right_and_result(&mut self, right: usize, result: usize) -> (Rows<'_>, RowsMut<'_>) {
        let (before, from) = self.values.split_at_mut(result * self.vectors);
        ((&before[right * self.vectors..], self.vectors), (from, self.vectors))
    }
}

/// `c[i, j] = keep[i] * c[i, j] + sum over k of a[i, k] * b[k, j]`, each sum in the order of k and rounded as the instruction
/// set's `mul_add` rounds, whatever the shape: an element's bits do not depend on its neighbours.
pub(super) struct MatMul<'a> {
    /// Rows i, vectors of columns j, terms k of each sum.
    pub shape: [usize; 3],
    /// Elements, and their strides: `a[i, k]` is at `i * strides[0] + k * strides[1]`.
    pub a: (&'a [f32], [usize; 2]),
    /// A row for each term.
    pub b: Rows<'a>,
    /// The result.
    pub c: RowsMut<'a>,
    /// A factor for each row of what is in `c`; where absent, `c` is overwritten.
    pub keep: Option<&'a [f32]>,
}

impl MatMul<'_> {
    /// Computes it with the vectors of `isa`.
    ///
    /// # Panics
    /// If a slice is too short for the shape.
    pub(super) fn run(self, isa: Isa) {
        let [m, n, k] = self.shape;
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
            8.. => self.rows::<S, 8, 2, 8>(simd),
            6.. => self.rows::<S, 6, 1, 4>(simd),
            _ => self.rows::<S, 3, 1, 2>(simd),
        }
    }
}

impl Checked<'_> {
    /// In tiles of R rows and V vectors; rows that are left one by one, W vectors at once, which keep a processor as busy.
    #[inline(always)]
    fn rows<S: Simd, const R: usize, const V: usize, const W: usize>(&mut self, simd: S) {
        let [m, n, _] = self.product.shape;
        let m_tiled = m / R * R;
        for j in (0..n / V * V).step_by(V) {
            (0..m_tiled).step_by(R).for_each(|i| self.sums::<S, R, V>(simd, i, j));
        }
        for j in n / V * V..n {
            (0..m_tiled).step_by(R).for_each(|i| self.sums::<S, R, 1>(simd, i, j));
        }
        for i in m_tiled..m {
            (0..n / W * W).step_by(W).for_each(|j| self.sums::<S, 1, W>(simd, i, j));
            (n / W * W..n).for_each(|j| self.sums::<S, 1, 1>(simd, i, j));
        }
    }

    /// The tile at row i, vector j.
    #[inline(always)]
    fn sums<S: Simd, const R: usize, const V: usize>(&mut self, simd: S, i: usize, j: usize) {
        let MatMul { shape: [.., terms], a: (a, a_strides), b: (b, b_stride), c: (c, c_stride), keep } =
            &mut self.product;
        let mut sums = [[simd.splat(0.0); V]; R];
        if let Some(keep) = keep {
            for (r, sums) in sums.iter_mut().enumerate() {
                let factor = simd.splat(keep[i + r]);
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.mul(factor, simd.load(&c[(i + r) * *c_stride + j + v]));
                }
            }
        }
        for k in 0..*terms {
            // SAFETY: term and vectors are below those of the shape, which `MatMul::run` found inside the slice.
            let b: [S::F32; V] = std::array::from_fn(|v| simd.load(unsafe { b.get_unchecked(k * *b_stride + j + v) }));
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
                simd.store(sum, &mut c[(i + r) * *c_stride + j + v]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers: exact in every order and with every rounding.
    fn number(i: usize) -> f32 {
        (i * 7 % 11) as f32 - 5.0
    }

    fn matrix(rows: usize, vectors: usize, seed: usize) -> Matrix {
        let mut matrix = Matrix::new(rows, vectors * LANES);
        for row in 0..rows {
            for (col, value) in matrix.row_mut(row).iter_mut().enumerate() {
                *value = number(row * 31 + col + seed);
            }
        }
        matrix
    }

    #[test]
    fn shapes_strides_and_factors() {
        for isa in Isa::available() {
            for m in [0, 1, 2, 3, 5, 6, 7, 8, 9, 17] {
                for n in [0, 1, 2, 3, 5] {
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
        let a: Vec<f32> = (0..(m + 2) * (k + 2)).map(number).collect();
        let a_strides = if transposed { [1, m + 2] } else { [k + 2, 1] };
        // A row before the operands and a vector beside them are not touched.
        let (b, mut c) = (matrix(k + 1, n + 1, 2), matrix(m + 1, n + 1, 3));
        let before = matrix(m + 1, n + 1, 3);
        let keep: Vec<f32> = (0..m).map(number).collect();
        let keep_rows = kept.then_some(&keep[..]);
        MatMul { shape: [m, n, k], a: (&a, a_strides), b: b.right(1), c: c.result(1), keep: keep_rows }.run(isa);
        assert_eq!(c.row(0), before.row(0));
        for i in 0..m {
            for (j, &old) in before.row(i + 1).iter().enumerate() {
                let sum: f32 = (0..k).map(|k| a[i * a_strides[0] + k * a_strides[1]] * b.row(k + 1)[j]).sum();
                let want = if j >= n * LANES { old } else { sum + if kept { keep[i] * old } else { 0.0 } };
                assert_eq!(c.row(i + 1)[j], want, "{} {:?} at {i}, {j}", isa.name(), [m, n, k]);
            }
        }
    }
}

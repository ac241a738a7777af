//! Plain host data.

use std::ops::{Index, IndexMut};

/// Numbers `[rows, groups, cols]`, without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T = f64> {
    /// Rows, groups, columns.
    pub shape: [usize; 3],
    /// The numbers, columns fastest.
    pub data: Vec<T>,
}

impl<T: Copy + Default> Array<T> {
    /// Zeros.
    pub fn zeros(shape: [usize; 3]) -> Self {
        Self { shape, data: vec![T::default(); shape.iter().product()] }
    }

    /// The value of `f` at each row, group and column.
    pub fn from_fn(shape: [usize; 3], mut f: impl FnMut(usize, usize, usize) -> T) -> Self {
        let mut array = Self::zeros(shape);
        let [rows, groups, cols] = shape;
        for r in 0..rows {
            for g in 0..groups {
                for c in 0..cols {
                    array[[r, g, c]] = f(r, g, c);
                }
            }
        }
        array
    }

    /// The columns of one group.
    pub fn at(&self, row: usize, group: usize) -> &[T] {
        let start = self.offset([row, group, 0]);
        &self.data[start..start + self.shape[2]]
    }

    fn offset(&self, [r, g, c]: [usize; 3]) -> usize {
        (r * self.shape[1] + g) * self.shape[2] + c
    }
}

impl<T: Copy + Default> Index<[usize; 3]> for Array<T> {
    type Output = T;

    fn index(&self, index: [usize; 3]) -> &T {
        &self.data[self.offset(index)]
    }
}

impl<T: Copy + Default> IndexMut<[usize; 3]> for Array<T> {
    fn index_mut(&mut self, index: [usize; 3]) -> &mut T {
        let offset = self.offset(index);
        &mut self.data[offset]
    }
}

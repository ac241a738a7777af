//! The rows of a plan, laid one after another within the range of f16.

use super::Array;

/// The least number that f16 rounds to infinity.
const TOO_LARGE: f64 = 65520.0;

/// The least s with which `row * 2^-s` is within f16's range; 0 for a row whose largest number is infinite.
pub fn range_exponent(row: &[f64]) -> i32 {
    let most = row.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    if most.is_infinite() {
        return 0;
    }
    (0..).find(|&s| most * 2f64.powi(-s) < TOO_LARGE).unwrap_or(0)
}

/// `x[stok[r]] * 2^-s[r]` for every row, zeros where `stok[r]` is no token, and s. `x` is `[T, 1, D]`, the result `[R, 1, D]`.
pub fn gather(x: &Array, stok: &[i32]) -> (Array, Vec<i32>) {
    let cols = x.shape[2];
    let row = |token: i32| usize::try_from(token).ok().map(|token| &x.data[token * cols..(token + 1) * cols]);
    let exponents: Vec<i32> = stok.iter().map(|&token| row(token).map_or(0, range_exponent)).collect();
    let element = |r: usize, c: usize| row(stok[r]).map_or(0.0, |row| row[c] * 2f64.powi(-exponents[r]));
    (Array::from_fn([stok.len(), 1, cols], |r, _, c| element(r, c)), exponents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_of_known_rows() {
        let found = |row: &[f32]| range_exponent(&row.iter().map(|&x| x.into()).collect::<Vec<f64>>());
        assert_eq!([found(&[]), found(&[1.0, -65519.0]), found(&[f32::INFINITY])], [0, 0, 0]);
        // 65520 by 2 fits; 131040 by 2 is 65520, which does not; 3e38 by 2^112 is 57,778; the largest is 2^128 - 2^104.
        let beyond = [[65520.0, 1.0], [-131_040.0, 0.0], [3.0, 3e38], [f32::MAX, 0.0]].map(|row| found(&row));
        assert_eq!(beyond, [1, 2, 112, 113]);
    }

    #[test]
    fn rows_of_known_tokens() {
        let x = Array { shape: [2, 1, 2], data: vec![1.0, 2.0, 131_072.0, -3.0] };
        let (rows, exponents) = gather(&x, &[1, -1, 0]);
        assert_eq!(rows.data, [32_768.0, -0.75, 0.0, 0.0, 1.0, 2.0]);
        assert_eq!(exponents, [2, 0, 0]);
    }
}

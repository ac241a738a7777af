//! The product, dense and routed, and what is made of it.

use super::Array;
use crate::device::DeviceError;

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `x / (1 + e^-x)`.
pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// A row of a product: which input row meets which expert, and where the result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The row of the input.
    pub input: usize,
    /// The matrix.
    pub expert: usize,
    /// The row of the output.
    pub output: usize,
}

/// Every row by itself, with expert 0.
pub fn identity(rows: usize) -> Vec<Row> {
    (0..rows).map(|row| Row { input: row, expert: 0, output: row }).collect()
}

/// The rows of a plan but its padding. `tiles` are (expert, first row, valid rows); `stok`, where there is one, names the
/// input row of each.
pub fn routed(tiles: &[[u32; 3]], stok: Option<&[i32]>) -> Vec<Row> {
    let mut rows = Vec::new();
    for &[expert, first, valid] in tiles {
        for output in first as usize..(first + valid) as usize {
            let input = stok.map_or(output, |stok| stok[output] as usize);
            rows.push(Row { input, expert: expert as usize, output });
        }
    }
    rows
}

/// `p[i, n] = sum_k x[rows[i].input, k] * w(rows[i].expert, n)[k] + bias[n]`, `w` giving the N rows of each matrix.
pub fn product(
    x: &Array,
    w: impl Fn(usize, usize) -> Result<Vec<f64>, DeviceError>,
    n: usize,
    bias: Option<&Array>,
    rows: &[Row],
) -> Result<Array, DeviceError> {
    let mut p = Array::zeros([rows.len(), 1, n]);
    let mut first = 0;
    for rows in rows.chunk_by(|a, b| a.expert == b.expert) {
        for n in 0..n {
            let w = w(rows[0].expert, n)?;
            for (i, row) in rows.iter().enumerate() {
                let dot: f64 = x.at(row.input, 0).iter().zip(&w).map(|(x, w)| x * w).sum();
                p[[first + i, 0, n]] = dot + bias.map_or(0.0, |bias| bias[[0, 0, n]]);
            }
        }
        first += rows.len();
    }
    Ok(p)
}

/// `silu(gate) * up`.
pub fn swiglu(gate: &Array, up: &Array) -> Array {
    Array::from_fn(gate.shape, |r, g, c| silu(gate[[r, g, c]]) * up[[r, g, c]])
}

/// `out[t, d] = mean over s of sigmoid(p[t, s*D + d]) * normed[t, s, d]`.
pub fn gate_mean(p: &Array, normed: &Array) -> Array {
    let [tokens, streams, width] = normed.shape;
    Array::from_fn([tokens, 1, width], |t, _, d| {
        let gated = |s: usize| sigmoid(p[[t, 0, s * width + d]]) * normed[[t, s, d]];
        (0..streams).map(gated).sum::<f64>() / streams as f64
    })
}

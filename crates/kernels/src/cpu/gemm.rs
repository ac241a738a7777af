//! The product of activations and quantised weights, dense and routed.

use rayon::iter::ParallelIterator;

use argon_gguf::decode_row;

use super::CpuDevice;
use super::math::{dot, sigmoid, silu};
use super::memory::{Tile, View, ViewMut, WeightRows};
use crate::device::DeviceError;
use crate::op::{Epilogue, Gemm, Precision, RowMap};

/// The modes that this device has, its default first.
pub(super) const PRECISIONS: &[Precision] = &[Precision::F32];

/// Rows of one expert in a tile of the plan.
pub(super) fn tile_rows(_entries: usize, _experts: usize) -> usize {
    16
}

/// Output rows of a dense product in one task.
const DENSE_ROWS: usize = 64;
/// Output columns in one task.
const COLS: usize = 32;

pub(super) fn gemm(device: &CpuDevice, o: &Gemm) -> Result<(), DeviceError> {
    let rows = Rows::of(device, &o.rows)?;
    let product = Product {
        x: View::of(device, &o.x)?,
        w: Matrix::of(device, &o.w)?,
        bias: o.bias.as_ref().map(|bias| View::of(device, bias)).transpose()?,
    };
    let out = ViewMut::<f32>::of(device, &o.out)?;
    let tiles = out.tiles([rows.height(), 1, COLS]).filter_map(|tile| {
        let rows = rows.of_tile(tile.rows.clone())?;
        Some((tile, rows))
    });
    match &o.epilogue {
        Epilogue::Store => tiles.for_each(|(tile, rows)| product.each(tile, &rows, |out, p| *out = p)),
        Epilogue::Accumulate => tiles.for_each(|(tile, rows)| product.each(tile, &rows, |out, p| *out += p)),
        Epilogue::Silu { scale } => {
            tiles.for_each(|(tile, rows)| product.each(tile, &rows, |out, p| *out = silu(p * scale)))
        }
        Epilogue::SwiGlu { up } => {
            let up = Product { w: Matrix::of(device, up)?, bias: None, ..product };
            tiles.for_each(|(mut tile, rows)| {
                for col in tile.cols.clone() {
                    let (gate, up) = (product.column(col, &rows), up.column(col, &rows));
                    for (i, (gate, up)) in gate.zip(up).enumerate() {
                        tile.view.at_mut(i, 0)[col - tile.cols.start] = silu(gate) * up;
                    }
                }
            });
        }
        Epilogue::GateMean { normed } => {
            let normed = View::<f32>::of(device, normed)?;
            let (streams, width) = (normed.groups(), normed.cols());
            tiles.for_each(|(mut tile, rows)| {
                for col in tile.cols.clone() {
                    let mut means = vec![0.0; rows.inputs.len()];
                    for s in 0..streams {
                        for (i, p) in product.column(s * width + col, &rows).enumerate() {
                            means[i] += sigmoid(p) * normed.at(rows.inputs[i], s)[col];
                        }
                    }
                    for (i, mean) in means.iter().enumerate() {
                        tile.view.at_mut(i, 0)[col - tile.cols.start] = mean / streams as f32;
                    }
                }
            });
        }
    }
    Ok(())
}

/// Which input rows and which expert a tile of output rows has.
enum Rows<'a> {
    Identity,
    Routed { height: usize, tiles: View<'a, u32>, used: usize, stok: Option<&'a [i32]> },
}

struct TileRows {
    expert: usize,
    inputs: Vec<usize>,
}

impl<'a> Rows<'a> {
    fn of(device: &CpuDevice, map: &'a RowMap) -> Result<Self, DeviceError> {
        let (plan, gather) = match map {
            RowMap::Identity => return Ok(Rows::Identity),
            RowMap::Gather(plan) => (plan, true),
            RowMap::Segments(plan) => (plan, false),
        };
        let stok = if gather { Some(View::of(device, &plan.stok)?.row(0)) } else { None };
        let used = View::<u32>::of(device, &plan.meta)?.row(0)[argon_plan::meta::TILES] as usize;
        Ok(Rows::Routed { height: plan.shape.tile(), tiles: View::of(device, &plan.tiles)?, used, stok })
    }

    fn height(&self) -> usize {
        match self {
            Rows::Identity => DENSE_ROWS,
            Rows::Routed { height, .. } => *height,
        }
    }

    /// The rows of an output tile; `None` behind the plan's last.
    fn of_tile(&self, rows: std::ops::Range<usize>) -> Option<TileRows> {
        match self {
            Rows::Identity => Some(TileRows { expert: 0, inputs: rows.collect() }),
            Rows::Routed { height, tiles, used, stok } => {
                let index = rows.start / height;
                let &[expert, first, valid] = (index < *used).then(|| tiles.row(index))? else { return None };
                let rows = first as usize..(first + valid) as usize;
                let inputs = match stok {
                    Some(stok) => stok[rows].iter().map(|&token| token as usize).collect(),
                    None => rows.collect(),
                };
                Some(TileRows { expert: expert as usize, inputs })
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Matrix<'a> {
    rows: WeightRows<'a>,
    format: argon_gguf::Format,
}

impl<'a> Matrix<'a> {
    fn of(device: &CpuDevice, w: &'a crate::tensor::Weight) -> Result<Self, DeviceError> {
        Ok(Self { rows: WeightRows::of(device, w)?, format: w.format })
    }
}

#[derive(Clone, Copy)]
struct Product<'a> {
    x: View<'a, f32>,
    w: Matrix<'a>,
    bias: Option<View<'a, f32>>,
}

impl Product<'_> {
    /// One column of the product for the rows of a tile.
    fn column<'r>(&'r self, col: usize, rows: &'r TileRows) -> impl Iterator<Item = f32> + 'r {
        let mut w = vec![0.0; self.x.cols()];
        decode_row(self.w.format, self.w.rows.row(rows.expert, col), &mut w);
        let bias = self.bias.map_or(0.0, |bias| bias.row(0)[col]);
        rows.inputs.iter().map(move |&row| dot(self.x.row(row), &w) + bias)
    }

    fn each(&self, mut tile: Tile<'_, f32>, rows: &TileRows, store: impl Fn(&mut f32, f32)) {
        for col in tile.cols.clone() {
            for (i, p) in self.column(col, rows).enumerate() {
                store(&mut tile.view.at_mut(i, 0)[col - tile.cols.start], p);
            }
        }
    }
}

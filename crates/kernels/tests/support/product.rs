//! One product on the CPU device, and the same product by its definition in float64.

use std::num::NonZero;

use argon_gguf::{Bytes, Format, decode_row};
use argon_kernels::cpu::{CpuDevice, CpuOptions, Isa};
use argon_kernels::device::tensor;
use argon_kernels::op::{Epilogue, Gemm, Plan, PlanBuffers, RowMap};
use argon_kernels::{DType, Device, Op, Precision, Tensor, Weight};
use argon_plan::{Shape, meta};

use super::weights::{Rng, filled, random};

/// A row map, with the sizes that only it has.
#[derive(Clone, Copy, Debug)]
pub enum Map {
    /// Rows of one expert.
    Identity,
    /// Tokens to experts.
    Gather,
    /// Plan rows to experts.
    Segments,
}

/// An epilogue without its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Store,
    Bias,
    Accumulate,
    Silu,
    SwiGlu,
    GateMean,
}

/// One product: everything that it depends on.
#[derive(Clone, Debug)]
pub struct Case {
    pub format: Format,
    pub precision: Precision,
    pub isa: Isa,
    pub threads: usize,
    pub map: Map,
    pub end: End,
    /// Tokens (rows of a dense product).
    pub tokens: usize,
    pub top_k: usize,
    pub experts: usize,
    /// Tile height of the plan.
    pub tile: usize,
    pub n: usize,
    pub k: usize,
    /// Factor of one input channel.
    pub outlier: f32,
    /// Factor of all inputs.
    pub size: f32,
}

/// What a device computed, and what the definition says.
pub struct Outcome {
    /// `[rows, N]`, all rows of the output.
    pub got: Vec<f32>,
    /// The same in float64; `None` for a row that must stay as it was.
    pub want: Vec<Option<Vec<f64>>>,
    pub width: usize,
}

/// What the output holds beforehand.
const BEFORE: f32 = 0.25;

impl Case {
    /// A small dense product.
    pub fn dense(format: Format, precision: Precision, isa: Isa) -> Self {
        let k = 2 * format.block_len().max(64);
        Self {
            format,
            precision,
            isa,
            threads: 2,
            map: Map::Identity,
            end: End::Store,
            tokens: 9,
            top_k: 1,
            experts: 1,
            tile: 1,
            n: 37,
            k,
            outlier: 1.0,
            size: 1.0,
        }
    }

    /// A small routed product: some experts have no row, one has many.
    pub fn routed(format: Format, precision: Precision, isa: Isa, map: Map) -> Self {
        Self { map, tokens: 23, top_k: 3, experts: 6, tile: 4, n: 21, ..Self::dense(format, precision, isa) }
    }

    /// Runs the product and its definition.
    pub fn run(&self) -> Outcome {
        self.run_with_seed([self.tokens, self.n, self.k].iter().fold(7, |h, &x| h * 1009 + x as u64))
    }

    /// Runs the product and its definition on the numbers of a seed: first the weights, then the inputs row by row.
    pub fn run_with_seed(&self, seed: u64) -> Outcome {
        let device = CpuDevice::new(CpuOptions {
            threads: NonZero::new(self.threads),
            isa: Some(self.isa),
            ..CpuOptions::default()
        })
        .unwrap();
        let mut rng = Rng::new(seed);
        let plan = match self.map {
            Map::Identity => None,
            Map::Gather | Map::Segments => Some(self.plan(&device, &mut rng)),
        };
        let rows = match (&self.map, &plan) {
            (Map::Segments, Some(plan)) => plan.shape.max_rows(),
            _ => self.tokens,
        };
        let streams = if self.end == End::GateMean { 3 } else { 1 };
        let (w, w_values) = self.weight(&device, streams, &mut rng);
        let up = (self.end == End::SwiGlu).then(|| self.weight(&device, 1, &mut rng));
        let bias: Option<Vec<f32>> = (self.end == End::Bias).then(|| (0..self.n).map(|_| rng.normal()).collect());
        let mut x: Vec<f32> = (0..rows * self.k).map(|_| rng.normal() * self.size).collect();
        for row in x.chunks_exact_mut(self.k.max(1)) {
            row[self.k / 3] *= self.outlier;
        }
        let normed: Vec<f32> = (0..self.tokens * streams * self.n).map(|_| rng.normal()).collect();

        let out_rows = plan.as_ref().map_or(self.tokens, |plan| plan.shape.max_rows());
        let out = filled(&device, [out_rows, 1, self.n], &vec![BEFORE; out_rows * self.n]);
        let op = Gemm {
            x: filled(&device, [rows, 1, self.k], &x),
            w,
            bias: bias.as_ref().map(|bias| filled(&device, [1, 1, self.n], bias)),
            rows: match (self.map, &plan) {
                (Map::Gather, Some(plan)) => RowMap::Gather(plan.clone()),
                (Map::Segments, Some(plan)) => RowMap::Segments(plan.clone()),
                _ => RowMap::Identity,
            },
            epilogue: match self.end {
                End::Store | End::Bias => Epilogue::Store,
                End::Accumulate => Epilogue::Accumulate,
                End::Silu => Epilogue::Silu { scale: 0.3 },
                End::SwiGlu => Epilogue::SwiGlu { up: up.as_ref().unwrap().0.clone() },
                End::GateMean => {
                    Epilogue::GateMean { normed: filled(&device, [self.tokens, streams, self.n], &normed) }
                }
            },
            precision: self.precision,
            out: out.clone(),
        };
        device.enqueue(&Op::from(op)).unwrap();

        let product = |w: &[f64], input: usize, expert: usize, col: usize| -> f64 {
            let x = &x[input * self.k..][..self.k];
            let w = &w[(expert * self.n * streams + col) * self.k..][..self.k];
            x.iter().zip(w).map(|(x, w)| f64::from(*x) * w).sum()
        };
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let element = |input: usize, expert: usize, col: usize| -> f64 {
            let p = product(&w_values, input, expert, col);
            match self.end {
                End::Store => p,
                End::Bias => p + f64::from(bias.as_ref().unwrap()[col]),
                End::Accumulate => f64::from(BEFORE) + p,
                End::Silu => silu(p * f64::from(0.3f32)),
                End::SwiGlu => silu(p) * product(&up.as_ref().unwrap().1, input, expert, col),
                End::GateMean => {
                    let stream = |s: usize| {
                        let gate = 1.0 / (1.0 + (-product(&w_values, input, 0, s * self.n + col)).exp());
                        gate * f64::from(normed[(input * streams + s) * self.n + col])
                    };
                    (0..streams).map(stream).sum::<f64>() / streams as f64
                }
            }
        };
        let mut want = vec![None; out_rows];
        for (row, input, expert) in self.row_map(&device, plan.as_ref()) {
            want[row] = Some((0..self.n).map(|col| element(input, expert, col)).collect());
        }
        Outcome { got: read(&device, &out), want, width: self.n }
    }

    fn weight(&self, device: &CpuDevice, streams: usize, rng: &mut Rng) -> (Weight, Vec<f64>) {
        let rows = self.n * streams;
        let len = self.experts * rows * self.k;
        let bytes = random(self.format, len, rng);
        let mut values = vec![0.0; len];
        decode_row(self.format, &bytes, &mut values);
        let buffer = device.constant(Bytes::from(bytes)).unwrap();
        let weight = Weight::dense(buffer, self.format, self.experts, rows, self.k).unwrap();
        (weight, values.into_iter().map(f64::from).collect())
    }

    /// Uneven: expert 0 gets about half of the entries, the last one none.
    fn plan(&self, device: &CpuDevice, rng: &mut Rng) -> PlanBuffers {
        let shape = Shape::new(self.tokens, self.top_k, self.experts, self.tile).unwrap();
        let used = (self.experts - 1).max(1);
        let ids: Vec<i32> = (0..shape.entries())
            .map(|_| match rng.below(8) {
                0 => -1,
                1..4 => 0,
                _ => rng.below(used) as i32,
            })
            .collect();
        let buffers = PlanBuffers::new(device, shape).unwrap();
        let (t, k) = (self.tokens, self.top_k);
        let ids_tensor = tensor(device, DType::I32, t, 1, k).unwrap();
        device.write(&ids_tensor, bytemuck::cast_slice(&ids)).unwrap();
        let weights = tensor(device, DType::F32, t, 1, k).unwrap();
        device.enqueue(&Op::from(Plan { ids: ids_tensor, weights, plan: buffers.clone() })).unwrap();
        buffers
    }

    /// (output row, input row, expert) of every row that is computed.
    fn row_map(&self, device: &CpuDevice, plan: Option<&PlanBuffers>) -> Vec<(usize, usize, usize)> {
        let Some(plan) = plan else { return (0..self.tokens).map(|row| (row, row, 0)).collect() };
        let words = |t: &Tensor| {
            let mut words = vec![0u32; t.len()];
            device.read(t, bytemuck::cast_slice_mut(&mut words)).unwrap();
            words
        };
        let (tiles, stok, meta_words) = (words(&plan.tiles), words(&plan.stok), words(&plan.meta));
        let tiles = &tiles.as_chunks::<3>().0[..meta_words[meta::TILES] as usize];
        let rows = tiles.iter().flat_map(|&[expert, first, rows]| (first..first + rows).map(move |row| (row, expert)));
        rows.map(|(row, expert)| {
            let input = if let Map::Gather = self.map { stok[row as usize] } else { row };
            (row as usize, input as usize, expert as usize)
        })
        .collect()
    }
}

impl Outcome {
    /// Relative L2 distance of the rows that are computed; checks that the others are as before.
    pub fn error(&self) -> f64 {
        let (mut difference, mut size) = (0.0, 0.0);
        for (row, want) in self.got.chunks_exact(self.width.max(1)).zip(&self.want) {
            let Some(want) = want else {
                assert!(row.iter().all(|x| x.to_bits() == BEFORE.to_bits()), "a padding row was written");
                continue;
            };
            for (got, want) in row.iter().zip(want) {
                difference += (f64::from(*got) - want).powi(2);
                size += want.powi(2);
            }
        }
        if size == 0.0 { difference.sqrt() } else { (difference / size).sqrt() }
    }
}

fn read(device: &CpuDevice, t: &Tensor) -> Vec<f32> {
    let mut values = vec![0.0; t.len()];
    device.read(t, bytemuck::cast_slice_mut(&mut values)).unwrap();
    values
}

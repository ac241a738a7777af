//! A product of random operands, the same numbers on every device.

use argon_gguf::{Bytes, Format};
use argon_kernels::device::tensor;
use argon_kernels::op::{Epilogue, Gemm, Plan, PlanBuffers, RowMap};
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::{DType, Device, Precision, Tensor, Weight};
use argon_plan::Shape;

use super::weights::{Rng, enlarge, filled, random};

/// A row map, without its plan.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// The second weight in a format of its own.
    SwiGluOf(Format),
    /// With a bias.
    GateMean,
}

/// One product: everything that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub format: Format,
    pub precision: Precision,
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
    /// Of [`End::GateMean`].
    pub streams: usize,
    /// Factor of one input channel.
    pub outlier: f32,
    /// Factor of all inputs.
    pub size: f32,
    /// Weights beyond the range of f16.
    pub large: bool,
}

/// What the output holds beforehand.
const BEFORE: f32 = 0.25;

impl Case {
    /// A small dense product.
    pub fn dense(format: Format, precision: Precision) -> Self {
        Self {
            format,
            precision,
            map: Map::Identity,
            end: End::Store,
            tokens: 9,
            top_k: 1,
            experts: 1,
            tile: 1,
            n: 37,
            k: 2 * format.block_len().max(64),
            streams: 3,
            outlier: 1.0,
            size: 1.0,
            large: false,
        }
    }

    /// A small routed product: some experts have no row, one has many.
    pub fn routed(format: Format, precision: Precision, map: Map) -> Self {
        Self { map, tokens: 23, top_k: 3, experts: 6, tile: 8, n: 21, ..Self::dense(format, precision) }
    }

    /// The output on one device, all rows of it.
    pub fn run(&self, device: &dyn Device) -> Vec<f32> {
        self.run_with_seed(device, [self.tokens, self.n, self.k].iter().fold(7, |h, &x| h * 1009 + x as u64))
    }

    /// The same of the numbers of a seed: first the weights, then the inputs row by row.
    pub fn run_with_seed(&self, device: &dyn Device, seed: u64) -> Vec<f32> {
        let gemm = self.op(device, &mut Rng::new(seed));
        let out = gemm.out.clone();
        let op = gemm.into();
        let run = || {
            device.enqueue(&op).unwrap_or_else(|e| panic!("{self:?}: {e}"));
            let mut values = vec![0f32; out.len()];
            device.read(&out, bytemuck::cast_slice_mut(&mut values)).unwrap_or_else(|e| panic!("{self:?}: {e}"));
            values
        };
        let values = run();
        // Once a host knows the range of the weights, it may launch another kernel.
        assert!(!self.large || values == run(), "a second time {self:?}");
        values
    }

    /// Runs it on a device, twice, and on the reference: the relative L2 distance, where rows that nothing is to be written to are
    /// as before.
    pub fn error(&self, device: &dyn Device) -> f64 {
        let (got, want) = (self.run(device), self.run(&ReferenceDevice::default()));
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&got) == bits(&self.run(device)), "two runs differ in {self:?}");
        let (mut difference, mut size) = (0.0, 0.0);
        for (i, (&got, &want)) in got.iter().zip(&want).enumerate() {
            if want.to_bits() == BEFORE.to_bits() {
                assert_eq!(got.to_bits(), want.to_bits(), "element {i} was written in {self:?}");
            }
            difference += (f64::from(got) - f64::from(want)).powi(2);
            size += f64::from(want).powi(2);
        }
        if size > 0.0 { (difference / size).sqrt() } else { difference.sqrt() }
    }

    /// The op and its operands.
    fn op(&self, device: &dyn Device, rng: &mut Rng) -> Gemm {
        let plan = (self.map != Map::Identity).then(|| self.plan(device, rng));
        let rows = match (self.map, &plan) {
            (Map::Segments, Some(plan)) => plan.shape.max_rows(),
            _ => self.tokens,
        };
        let streams = if self.end == End::GateMean { self.streams } else { 1 };
        let w = self.weight(device, self.format, streams, rng);
        let up = match self.end {
            End::SwiGluOf(format) => self.weight(device, format, 1, rng),
            _ => self.weight(device, self.format, 1, rng),
        };
        let numbers = |n: usize, rng: &mut Rng| (0..n).map(|_| rng.normal()).collect::<Vec<f32>>();
        let bias = filled(device, [1, 1, self.n * streams], &numbers(self.n * streams, rng));
        let mut x: Vec<f32> = numbers(rows * self.k, rng).iter().map(|x| x * self.size).collect();
        for row in x.chunks_exact_mut(self.k.max(1)) {
            row[self.k / 3] *= self.outlier;
        }
        // Part of a larger tensor: whole quads where the columns are.
        let apart = if self.n.is_multiple_of(4) { 4 } else { 3 };
        let shape = [self.tokens, streams + 1, self.n + apart];
        let all = filled(device, shape, &numbers(shape.into_iter().product(), rng));
        let offset = if all.is_empty() { 0 } else { apart };
        let normed = Tensor { groups: streams, cols: self.n, offset, ..all };
        let out_rows = plan.as_ref().map_or(self.tokens, |plan| plan.shape.max_rows());
        Gemm {
            x: filled(device, [rows, 1, self.k], &x),
            w,
            bias: matches!(self.end, End::Bias | End::GateMean).then_some(bias),
            rows: match (self.map, plan) {
                (Map::Gather, Some(plan)) => RowMap::Gather(plan),
                (Map::Segments, Some(plan)) => RowMap::Segments(plan),
                _ => RowMap::Identity,
            },
            epilogue: match self.end {
                End::Store | End::Bias => Epilogue::Store,
                End::Accumulate => Epilogue::Accumulate,
                End::Silu => Epilogue::Silu { scale: 0.3 },
                End::SwiGlu | End::SwiGluOf(_) => Epilogue::SwiGlu { up },
                End::GateMean => Epilogue::GateMean { normed },
            },
            precision: self.precision,
            out: filled(device, [out_rows, 1, self.n], &vec![BEFORE; out_rows * self.n]),
        }
    }

    fn weight(&self, device: &dyn Device, format: Format, streams: usize, rng: &mut Rng) -> Weight {
        let mut bytes = random(format, self.experts * self.n * streams * self.k, rng);
        if self.large {
            enlarge(format, &mut bytes, rng);
        }
        let buffer = device.constant(Bytes::from(bytes)).unwrap();
        Weight::dense(buffer, format, self.experts, self.n * streams, self.k).unwrap()
    }

    /// Uneven: expert 0 gets about half of the entries, the last one none, some are skipped.
    fn plan(&self, device: &dyn Device, rng: &mut Rng) -> PlanBuffers {
        let shape = Shape::new(self.tokens, self.top_k, self.experts, self.tile).unwrap();
        let used = (self.experts - 1).max(1);
        let draw = |_| match rng.below(8) {
            0 => -1,
            1..4 => 0,
            _ => rng.below(used) as i32,
        };
        let ids: Vec<i32> = (0..shape.entries()).map(draw).collect();
        let plan = PlanBuffers::new(device, shape).unwrap();
        let t = tensor(device, DType::I32, self.tokens, 1, self.top_k).unwrap();
        device.write(&t, bytemuck::cast_slice(&ids)).unwrap();
        let weights = tensor(device, DType::F32, self.tokens, 1, self.top_k).unwrap();
        device.enqueue(&Plan { ids: t, weights, plan: plan.clone() }.into()).unwrap();
        plan
    }
}

//! Operands of a case, the same numbers on every device, and everything that it wrote.

use std::cell::{Cell, RefCell};

use argon_gguf::{Bytes, Format};

use super::compare::{POLLUTION, Written};
use super::operands;
use super::weights::{self, Rng};
use crate::device::{Device, DeviceError, upload};
use crate::op::{Op, Precision};
use crate::tensor::{DType, Tensor, Weight};

/// Words behind every output that nobody should write.
const GUARD: usize = 16;

/// Rows that a device may multiply in another way than more of them.
const FEW: usize = 16;

/// The device whose operands reference B multiplies, and what it wrote.
#[derive(Clone, Copy)]
pub(super) struct Rounding<'d> {
    pub device: &'d dyn Device,
    pub found: &'d [Written],
}

/// One device with the operands of one case on it.
pub struct Desk<'d> {
    device: &'d dyn Device,
    /// Operands that take the place of the exact ones: reference B.
    rounding: Option<Rounding<'d>>,
    /// The device that is judged.
    judged: &'d dyn Device,
    /// Of the case's products.
    pub precision: Precision,
    /// Rows of the case's own products, where they are few; otherwise no limit.
    few: Cell<usize>,
    /// Of the plan through which the case's weights meet their rows.
    tile: Cell<Option<usize>>,
    rng: RefCell<Rng>,
    outputs: RefCell<Vec<(&'static str, Tensor)>>,
}

impl<'d> Desk<'d> {
    pub(super) fn new(
        device: &'d dyn Device,
        judged: &'d dyn Device,
        rounding: Option<Rounding<'d>>,
        precision: Precision,
        seed: u64,
    ) -> Self {
        let (few, tile, rng) = (Cell::new(usize::MAX), Cell::default(), RefCell::new(Rng::new(seed)));
        Self { device, judged, rounding, precision, few, tile, rng, outputs: RefCell::default() }
    }

    /// The tile height that suits the device that is judged, so that plans are the same on the reference.
    pub fn tile_rows(&self, entries: usize, experts: usize) -> usize {
        self.judged.tile_rows(entries, experts)
    }

    /// An integer below `n`.
    pub fn below(&self, n: usize) -> usize {
        self.rng.borrow_mut().below(n)
    }

    /// A number from -1 to 1.
    pub fn unit(&self) -> f32 {
        2.0 * self.rng.borrow_mut().uniform() - 1.0
    }

    /// A standard normal number.
    pub fn normal(&self) -> f32 {
        self.rng.borrow_mut().normal()
    }

    /// Numbers, one by one.
    pub fn numbers(&self, n: usize, mut number: impl FnMut(usize) -> f32) -> Vec<f32> {
        (0..n).map(&mut number).collect()
    }

    /// A tensor that the case writes and that is compared; polluted, so that what is not written shows.
    pub fn output(&self, name: &'static str, dtype: DType, [rows, groups, cols]: [usize; 3]) -> Made<Tensor> {
        let words = (rows * groups * cols * dtype.bytes()).div_ceil(4) + GUARD;
        let buffer = self.device.alloc(4 * words)?;
        let whole = Tensor::dense(buffer.clone(), DType::U32, 1, 1, words);
        self.device.write(&whole, &POLLUTION.repeat(words))?;
        let t = Tensor::dense(buffer, dtype, rows, groups, cols);
        self.outputs.borrow_mut().push((name, t.clone()));
        Ok(t)
    }

    /// A tensor that is read and written, and compared.
    pub fn changed(&self, name: &'static str, shape: [usize; 3], values: &[f32]) -> Made<Tensor> {
        let t = self.output(name, DType::F32, shape)?;
        self.device.write(&t, bytemuck::cast_slice(values))?;
        Ok(t)
    }

    /// A tensor of f32 that is read.
    pub fn floats(&self, shape: [usize; 3], values: &[f32]) -> Made<Tensor> {
        upload(self.device, DType::F32, shape, bytemuck::cast_slice(values))
    }

    /// The same with random numbers from -1 to 1.
    pub fn units(&self, shape: [usize; 3]) -> Made<Tensor> {
        self.floats(shape, &self.numbers(shape.iter().product(), |_| self.unit()))
    }

    /// A tensor of f16 that is read: the nearest to random numbers from -1 to 1.
    pub fn halves(&self, shape: [usize; 3]) -> Made<Tensor> {
        let half = |_| half::f16::from_f32(self.unit()).to_bits();
        let values: Vec<u16> = (0..shape.iter().product()).map(half).collect();
        upload(self.device, DType::F16, shape, bytemuck::cast_slice(&values))
    }

    /// Integers that are read.
    pub fn ints(&self, shape: [usize; 3], values: &[i32]) -> Made<Tensor> {
        upload(self.device, DType::I32, shape, bytemuck::cast_slice(values))
    }

    /// From now on weights meet their rows through a plan of such tiles.
    pub fn routed(&self, tile: usize) {
        self.tile.set(Some(tile));
    }

    /// Rows that meet weights of `format`.
    pub fn activations(&self, format: Format, [rows, cols]: [usize; 2], values: &[f32]) -> Made<Tensor> {
        self.few.set(if rows <= FEW { rows } else { usize::MAX });
        let as_device = |device| operands::activations(device, self.precision, format, values, cols, self.few.get());
        let rounded = self.rounding.map(|rounding| as_device(rounding.device));
        self.floats([rows, 1, cols], rounded.transpose()?.as_deref().unwrap_or(values))
    }

    /// The rows of an output on their way to weights of `format`. For reference B they are what the device itself wrote, as it
    /// rounds them: a number between two roundings would else fall on either side.
    pub fn onward(&self, name: &str, format: Format, t: &Tensor) -> Made<Tensor> {
        let Some(Rounding { device, found }) = self.rounding else { return Ok(t.clone()) };
        let found = found.iter().find(|written| written.name == name).map_or(Vec::new(), Written::floats);
        let rounded = operands::activations(device, self.precision, format, &found, t.cols, self.few.get())?;
        self.floats([t.rows, 1, t.cols], &rounded)
    }

    /// Random weights.
    pub fn weight(&self, format: Format, experts: usize, rows: usize, cols: usize) -> Made<Weight> {
        let bytes = weights::random(format, experts * rows * cols, &mut self.rng.borrow_mut());
        match self.rounding {
            None => weight(self.device, format, bytes, experts, rows, cols),
            Some(Rounding { device: rounding, .. }) => {
                let all = weight(rounding, format, bytes, 1, experts * rows, cols)?;
                let values = match (self.few.get(), self.tile.get()) {
                    (usize::MAX, Some(tile)) => operands::routed_weights(rounding, self.precision, &all, tile),
                    (few, _) => operands::weights(rounding, self.precision, &all, few),
                }?;
                let bytes = bytemuck::cast_slice(&values).to_vec();
                weight(self.device, Format::F32, bytes, experts, rows, cols)
            }
        }
    }

    /// Weights of these bytes, which are never rounded.
    pub fn constant(&self, format: Format, bytes: Vec<u8>, experts: usize, rows: usize, cols: usize) -> Made<Weight> {
        weight(self.device, format, bytes, experts, rows, cols)
    }

    /// The device.
    pub fn device(&self) -> &'d dyn Device {
        self.device
    }

    /// Enqueues an op.
    pub fn run(&self, op: impl Into<Op>) -> Made<()> {
        self.device.enqueue(&op.into())
    }

    /// All memory of the outputs.
    pub(super) fn written(self) -> Made<Vec<Written>> {
        let whole = |(name, t): (&'static str, Tensor)| {
            let mut bytes = vec![0; t.buffer.bytes()];
            let all = Tensor::dense(t.buffer.clone(), DType::U32, 1, 1, bytes.len() / 4);
            self.device.read(&all, &mut bytes)?;
            Ok(Written { name, dtype: t.dtype, shape: [t.rows, t.groups, t.cols], bytes })
        };
        self.outputs.into_inner().into_iter().map(whole).collect()
    }
}

/// What making an operand gives.
pub type Made<T> = Result<T, DeviceError>;

/// Weights of these bytes on a device.
pub(super) fn weight(
    device: &dyn Device,
    format: Format,
    bytes: Vec<u8>,
    experts: usize,
    rows: usize,
    cols: usize,
) -> Made<Weight> {
    let buffer = device.constant(Bytes::from(bytes))?;
    Weight::dense(buffer, format, experts, rows, cols).ok_or_else(|| DeviceError::Shape {
        op: "weight",
        what: format!("{experts} x {rows} rows of {cols} columns are no {format}"),
    })
}

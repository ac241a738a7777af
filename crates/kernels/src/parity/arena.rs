//! The memory of one case on one device: its operands, the same numbers on every device, and what it writes.

use std::cell::{Cell, RefCell};

use argon_gguf::{Bytes, Format};
use half::f16;

use super::compare::{POLLUTION, Written};
use super::rounded;
use super::weights::{self, Rng};
use crate::device::{Device, DeviceError, upload};
use crate::op::{Op, Precision};
use crate::tensor::{Buffer, DType, Tensor, Weight};

/// What making an operand or running an op gives.
pub type Result<T = (), E = DeviceError> = std::result::Result<T, E>;

/// Words behind every tensor that nobody should write.
const GUARD: usize = 16;

/// Elements between groups and between rows, where there are some; no multiple of anything.
const GAP: usize = 5;

/// Rows that a device may multiply in another way than more of them.
const FEW: usize = 16;

/// How tensors lie in their buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Without gaps, from the start.
    Dense,
    /// Behind an offset, with gaps between groups and rows.
    Padded,
    /// Groups outside, rows inside, with gaps.
    GroupMajor,
}

/// The device whose operands reference B multiplies, and what it wrote.
#[derive(Clone, Copy)]
pub(super) struct Rounding<'d> {
    pub device: &'d dyn Device,
    pub found: &'d [Written],
}

/// One device with the tensors of one case on it. Memory of all of them is polluted before anything is written to it, and
/// has words behind it, so that what is not written shows, and what nobody should write.
pub struct Arena<'d> {
    device: &'d dyn Device,
    /// The device that is judged.
    pub(super) judged: &'d dyn Device,
    /// Operands that take the place of the exact ones: reference B.
    pub(super) rounding: Option<Rounding<'d>>,
    /// Of the case's products.
    pub(super) precision: Precision,
    layout: Layout,
    /// Rows of the case's own products, where they are few; otherwise no limit.
    few: Cell<usize>,
    /// Of the plan through which the case's weights meet their rows.
    tile: Cell<Option<usize>>,
    rng: RefCell<Rng>,
    tensors: RefCell<Vec<Placed>>,
}

/// A tensor with all of its memory.
struct Placed {
    name: String,
    input: bool,
    tensor: Tensor,
}

impl<'d> Arena<'d> {
    /// Nothing yet, and numbers of this seed.
    pub fn new(device: &'d dyn Device, seed: u64) -> Self {
        Self {
            device,
            judged: device,
            rounding: None,
            precision: Precision::F32,
            layout: Layout::Dense,
            few: Cell::new(usize::MAX),
            tile: Cell::default(),
            rng: RefCell::new(Rng::new(seed)),
            tensors: RefCell::default(),
        }
    }

    /// The same, with tensors that lie so.
    pub fn laid_out(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// The device.
    pub fn device(&self) -> &'d dyn Device {
        self.device
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
    pub fn numbers(&self, n: usize, number: impl FnMut(usize) -> f32) -> Vec<f32> {
        (0..n).map(number).collect()
    }

    /// A tensor that the case writes and that is compared.
    ///
    /// # Errors
    /// Those of the device, here and in what follows.
    pub fn output(&self, name: &str, dtype: DType, shape: [usize; 3]) -> Result<Tensor> {
        self.place(name.into(), false, dtype, shape)
    }

    /// A tensor of f32 that the case reads and writes, and that is compared.
    pub fn in_out(&self, name: &str, shape: [usize; 3], number: impl FnMut(usize) -> f32) -> Result<Tensor> {
        self.filled(self.output(name, DType::F32, shape)?, number)
    }

    /// A tensor of f32 or f16 that the case reads.
    pub fn input(&self, dtype: DType, shape: [usize; 3], number: impl FnMut(usize) -> f32) -> Result<Tensor> {
        self.filled(self.place(self.input_name(), true, dtype, shape)?, number)
    }

    /// The same with random numbers from -1 to 1.
    pub fn units(&self, dtype: DType, shape: [usize; 3]) -> Result<Tensor> {
        self.input(dtype, shape, |_| self.unit())
    }

    /// Integers that the case reads.
    pub fn ints(&self, shape: [usize; 3], values: &[i32]) -> Result<Tensor> {
        let t = self.place(self.input_name(), true, DType::I32, shape)?;
        self.device.write(&t, bytemuck::cast_slice(values))?;
        Ok(t)
    }

    fn input_name(&self) -> String {
        format!("input {}", self.tensors.borrow().iter().filter(|placed| placed.input).count())
    }

    /// Polluted memory.
    fn place(&self, name: String, input: bool, dtype: DType, [rows, groups, cols]: [usize; 3]) -> Result<Tensor> {
        let gap = if self.layout == Layout::Dense { 0 } else { GAP };
        let (row_stride, group_stride, elements) = match self.layout {
            Layout::GroupMajor => (cols + gap, rows * (cols + gap) + gap, groups * (rows * (cols + gap) + gap)),
            _ => (groups * (cols + gap) + gap, cols + gap, rows * (groups * (cols + gap) + gap)),
        };
        let words = ((gap + elements) * dtype.bytes()).div_ceil(4) + GUARD;
        let buffer = self.device.alloc(4 * words)?;
        self.device.write(&all_words(buffer.clone()), &POLLUTION.repeat(words))?;
        let tensor = Tensor { buffer, dtype, offset: gap, rows, groups, cols, row_stride, group_stride };
        self.tensors.borrow_mut().push(Placed { name, input, tensor: tensor.clone() });
        Ok(tensor)
    }

    fn filled(&self, t: Tensor, number: impl FnMut(usize) -> f32) -> Result<Tensor> {
        let values = self.numbers(t.len(), number);
        match t.dtype {
            DType::F16 => {
                let halves: Vec<u16> = values.iter().map(|&x| f16::from_f32(x).to_bits()).collect();
                self.device.write(&t, bytemuck::cast_slice(&halves))?;
            }
            _ => self.device.write(&t, bytemuck::cast_slice(&values))?,
        }
        Ok(t)
    }

    /// From now on weights meet their rows through a plan of such tiles.
    pub fn routed(&self, tile: usize) {
        self.tile.set(Some(tile));
    }

    /// Rows that meet weights of `format`.
    pub fn activations(&self, format: Format, [rows, cols]: [usize; 2], values: &[f32]) -> Result<Tensor> {
        self.few.set(if rows <= FEW { rows } else { usize::MAX });
        let as_device = |device| rounded::activations(device, self.precision, format, values, cols, self.few.get());
        let rounded = self.rounding.map(|rounding| as_device(rounding.device)).transpose()?;
        let values = rounded.as_deref().unwrap_or(values);
        self.input(DType::F32, [rows, 1, cols], |i| values[i])
    }

    /// The rows of an output on their way to weights of `format`. For reference B they are what the device itself wrote, as it
    /// rounds them: a number between two roundings would else fall on either side.
    pub fn onward(&self, name: &str, format: Format, t: &Tensor) -> Result<Tensor> {
        let Some(Rounding { device, found }) = self.rounding else { return Ok(t.clone()) };
        let found = found.iter().find(|written| written.name == name).map_or(Vec::new(), Written::floats);
        let rounded = rounded::activations(device, self.precision, format, &found, t.cols, self.few.get())?;
        upload(self.device, DType::F32, [t.rows, 1, t.cols], bytemuck::cast_slice(&rounded))
    }

    /// Random weights.
    pub fn weight(&self, format: Format, experts: usize, rows: usize, cols: usize) -> Result<Weight> {
        let bytes = weights::random(format, experts * rows * cols, &mut self.rng.borrow_mut());
        match self.rounding {
            None => weight(self.device, format, bytes, experts, rows, cols),
            Some(Rounding { device: rounding, .. }) => {
                let all = weight(rounding, format, bytes, 1, experts * rows, cols)?;
                let values = match (self.few.get(), self.tile.get()) {
                    (usize::MAX, Some(tile)) => rounded::routed_weights(rounding, self.precision, &all, tile),
                    (few, _) => rounded::weights(rounding, self.precision, &all, few),
                }?;
                let bytes = bytemuck::cast_slice(&values).to_vec();
                weight(self.device, Format::F32, bytes, experts, rows, cols)
            }
        }
    }

    /// Weights of these bytes, which are never rounded.
    pub fn constant(&self, format: Format, bytes: Vec<u8>, experts: usize, rows: usize, cols: usize) -> Result<Weight> {
        weight(self.device, format, bytes, experts, rows, cols)
    }

    /// Enqueues an op.
    pub fn run(&self, op: impl Into<Op>) -> Result {
        self.device.enqueue(&op.into())
    }

    /// Enqueues ops in their order.
    pub fn run_all(&self, ops: impl IntoIterator<Item = Op>) -> Result {
        ops.into_iter().try_for_each(|op| self.run(op))
    }

    /// All memory of the tensors, in the order in which they were made.
    pub fn written(self) -> Result<Vec<Written>> {
        let whole = |Placed { name, input, tensor: t }: Placed| {
            let mut bytes = vec![0; t.buffer.bytes()];
            self.device.read(&all_words(t.buffer.clone()), &mut bytes)?;
            let (shape, strides) = ([t.rows, t.groups, t.cols], [t.row_stride, t.group_stride]);
            Ok(Written { name, input, dtype: t.dtype, shape, offset: t.offset, strides, bytes })
        };
        self.tensors.into_inner().into_iter().map(whole).collect()
    }
}

/// A buffer as words.
fn all_words(buffer: Buffer) -> Tensor {
    let words = buffer.bytes() / 4;
    Tensor::dense(buffer, DType::U32, 1, 1, words)
}

/// Weights of these bytes on a device.
pub(super) fn weight(
    device: &dyn Device,
    format: Format,
    bytes: Vec<u8>,
    experts: usize,
    rows: usize,
    cols: usize,
) -> Result<Weight> {
    let buffer = device.constant(Bytes::from(bytes))?;
    Weight::dense(buffer, format, experts, rows, cols).ok_or_else(|| DeviceError::Shape {
        op: "weight",
        what: format!("{experts} x {rows} rows of {cols} columns are no {format}"),
    })
}

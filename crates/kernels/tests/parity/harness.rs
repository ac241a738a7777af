//! Operands on two devices at once, and the comparison of all their memory afterwards.

use std::cell::RefCell;
use std::num::NonZero;
use std::sync::Arc;

use argon_gguf::{Bytes, Format};
use argon_kernels::cpu::{CpuDevice, CpuOptions};
use argon_kernels::reference::ReferenceDevice;
use argon_kernels::{Buffer, DType, Device, DeviceError, Op, Tensor, Weight};
use half::f16;

/// The devices under test; none on a machine without one.
pub use crate::devices;

/// What memory holds before anything is written to it: a number that spoils any float sum.
const POLLUTION: u32 = 0xDEAD_BEEF;

/// A device under test. Those with one `bits` have to agree to the bit.
pub struct Tested {
    pub name: String,
    pub bits: &'static str,
    pub device: Arc<dyn Device>,
}

pub fn cpu(threads: usize) -> CpuDevice {
    CpuDevice::new(CpuOptions { threads: NonZero::new(threads), ..CpuOptions::default() }).unwrap()
}

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

const LAYOUTS: [Layout; 3] = [Layout::Dense, Layout::Padded, Layout::GroupMajor];

/// The largest difference of two floats: `abs + rel * |want|`.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    pub abs: f64,
    pub rel: f64,
}

/// The same bits.
pub const EXACT: Tolerance = Tolerance { abs: 0.0, rel: 0.0 };

/// For values around 1 that go through a handful of f32 operations.
pub const fn within(abs: f64) -> Tolerance {
    Tolerance { abs, rel: abs }
}

/// Makes operands on one device; the same ones whenever it is asked in the same order.
pub struct Arena<'d> {
    device: &'d dyn Device,
    layout: Layout,
    random: RefCell<u64>,
    tensors: RefCell<Vec<(String, Tensor)>>,
}

impl<'d> Arena<'d> {
    pub fn new(device: &'d dyn Device, layout: Layout) -> Self {
        Self { device, layout, random: RefCell::new(7), tensors: RefCell::default() }
    }

    pub fn device(&self) -> &'d dyn Device {
        self.device
    }

    /// A random word.
    pub fn word(&self) -> u64 {
        let mut state = self.random.borrow_mut();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A random number from -1 to 1.
    pub fn unit(&self) -> f32 {
        (self.word() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// An output, polluted.
    pub fn output(&self, name: &str, dtype: DType, [rows, groups, cols]: [usize; 3]) -> Tensor {
        let gap = if self.layout == Layout::Dense { 0 } else { 5 };
        let (row_stride, group_stride) = match self.layout {
            Layout::GroupMajor => (cols + gap, rows * (cols + gap) + gap),
            _ => (groups * (cols + gap) + gap, cols + gap),
        };
        let (row_stride, group_stride) =
            if self.layout == Layout::Dense { (groups * cols, cols) } else { (row_stride, group_stride) };
        // Beyond the tensor there is always something to spoil.
        let words = gap + rows * groups * (cols + gap) + (rows + groups) * gap + 16;
        let buffer = self.device.alloc(words * 4).unwrap();
        let whole = Tensor::dense(buffer.clone(), DType::U32, 1, 1, words);
        self.device.write(&whole, &POLLUTION.to_ne_bytes().repeat(words)).unwrap();
        let t = Tensor { buffer, dtype, offset: gap, rows, groups, cols, row_stride, group_stride };
        self.tensors.borrow_mut().push((name.into(), t.clone()));
        t
    }

    /// Floats, each from `f`.
    pub fn floats_by(&self, name: &str, dtype: DType, shape: [usize; 3], mut f: impl FnMut(usize) -> f32) -> Tensor {
        let t = self.output(name, dtype, shape);
        let values = (0..t.len()).map(&mut f);
        let bytes: Vec<u8> = match dtype {
            DType::F16 => values.flat_map(|x| f16::from_f32(x).to_ne_bytes()).collect(),
            _ => values.flat_map(f32::to_ne_bytes).collect(),
        };
        self.device.write(&t, &bytes).unwrap();
        t
    }

    /// Random f32 from -1 to 1.
    pub fn floats(&self, name: &str, shape: [usize; 3]) -> Tensor {
        self.floats_by(name, DType::F32, shape, |_| self.unit())
    }

    /// The given integers.
    pub fn ints(&self, name: &str, shape: [usize; 3], values: &[i32]) -> Tensor {
        let t = self.output(name, DType::I32, shape);
        self.device.write(&t, bytemuck::cast_slice(values)).unwrap();
        t
    }

    /// A weight of random f32.
    pub fn weight(&self, rows: usize, cols: usize) -> Weight {
        let bytes: Vec<u8> = (0..rows * cols).flat_map(|_| self.unit().to_ne_bytes()).collect();
        let buffer = self.device.constant(Bytes::from(bytes)).unwrap();
        Weight::dense(buffer, Format::F32, 1, rows, cols).unwrap()
    }
}

/// All words of a buffer.
pub fn words(device: &dyn Device, buffer: &Buffer) -> Vec<u32> {
    let mut words = vec![0; buffer.bytes() / 4];
    let t = Tensor::dense(buffer.clone(), DType::U32, 1, 1, words.len());
    device.read(&t, bytemuck::cast_slice_mut(&mut words)).unwrap();
    words
}

/// Runs the ops that `build` makes on the reference and on every device, in every layout, and compares.
pub fn parity(tolerance: Tolerance, build: impl Fn(&Arena) -> Vec<Op>) {
    parity_in(&LAYOUTS, tolerance, |arena, _| build(arena));
}

/// As [`parity`], where `build` also says how to do the same in several calls: the reference runs the ops for `false`, the
/// devices those for `false` and for `true`.
pub fn parity_split(tolerance: Tolerance, build: impl Fn(&Arena, bool) -> Vec<Op>) {
    parity_in(&LAYOUTS, tolerance, build);
}

/// As [`parity_split`], in some layouts only.
pub fn parity_in(layouts: &[Layout], tolerance: Tolerance, build: impl Fn(&Arena, bool) -> Vec<Op>) {
    if devices().is_empty() {
        return;
    }
    for &layout in layouts {
        let reference = ReferenceDevice::default();
        let (want, tensors) = run(&reference, layout, |arena| build(arena, false));
        for split in [false, true] {
            let mut first: Vec<(&str, String, Vec<Vec<u32>>)> = Vec::new();
            for Tested { name, bits, device } in devices() {
                let (got, _) = run(&*device, layout, |arena| build(arena, split));
                let name = format!("{name}, {layout:?}{}", if split { ", split" } else { "" });
                compare(&name, &tensors, &got, &want, tolerance);
                match first.iter().find(|(b, ..)| *b == bits) {
                    None => first.push((bits, name, got)),
                    Some((_, other, bits)) => assert!(*bits == got, "{name} and {other} differ in bits"),
                }
            }
        }
    }
}

/// The memory of all tensors after the ops.
fn run(
    device: &dyn Device,
    layout: Layout,
    build: impl Fn(&Arena) -> Vec<Op>,
) -> (Vec<Vec<u32>>, Vec<(String, Tensor)>) {
    let arena = Arena::new(device, layout);
    for op in build(&arena) {
        device.enqueue(&op).unwrap_or_else(|e| panic!("{layout:?}: {e}"));
    }
    let tensors = arena.tensors.into_inner();
    (tensors.iter().map(|(_, t)| words(device, &t.buffer)).collect(), tensors)
}

fn compare(device: &str, tensors: &[(String, Tensor)], got: &[Vec<u32>], want: &[Vec<u32>], tolerance: Tolerance) {
    for (((name, t), got), want) in tensors.iter().zip(got).zip(want) {
        let per_word = 4 / t.dtype.bytes();
        for (slot, element) in elements(t).into_iter().enumerate() {
            let (got, want) = (got[slot / per_word], want[slot / per_word]);
            let Some(element) = element else {
                // The whole word, or the half of it that this place is.
                let mask = if per_word == 1 { u32::MAX } else { 0xFFFF << (16 * (slot % 2)) };
                let untouched = |word| (word ^ POLLUTION) & mask == 0;
                assert!(untouched(want), "the reference wrote beside {name}");
                assert!(untouched(got), "{device} wrote beside {name}, at {slot} of its buffer");
                continue;
            };
            let (got, want) = (value(t.dtype, got, slot % per_word), value(t.dtype, want, slot % per_word));
            let limit = match t.dtype {
                DType::F32 | DType::F16 => tolerance.abs + tolerance.rel * want.abs(),
                _ => 0.0,
            };
            let close = (got - want).abs() <= limit || (got.is_nan() && want.is_nan()) || got == want;
            let at = [element / t.width(), element / t.cols % t.groups, element % t.cols];
            assert!(close, "{device}: {name}{at:?} is {got}, not {want} within {limit:e}");
        }
    }
}

/// For each place in the buffer, as wide as an element: which element of the tensor is there.
fn elements(t: &Tensor) -> Vec<Option<usize>> {
    let mut places = vec![None; t.buffer.bytes() / t.dtype.bytes()];
    for element in 0..t.len() {
        let (r, g, c) = (element / t.width(), element / t.cols % t.groups, element % t.cols);
        places[t.offset + r * t.row_stride + g * t.group_stride + c] = Some(element);
    }
    places
}

/// An element's number; `half` is which half of the word a 16-bit one is.
fn value(dtype: DType, word: u32, half: usize) -> f64 {
    match dtype {
        DType::F32 => f32::from_bits(word).into(),
        DType::F16 => f16::from_bits((word >> (16 * half)) as u16).to_f64(),
        DType::I32 => (word as i32).into(),
        DType::U32 => word.into(),
    }
}

/// Rows 0..n, in one part or in two.
pub fn parts(n: usize, split: bool) -> Vec<std::ops::Range<usize>> {
    let cuts = if split { vec![0, n / 2, n] } else { vec![0, n] };
    cuts.windows(2).map(|cut| cut[0]..cut[1]).collect()
}

/// Runs one op on every device and the reference and gives each answer.
pub fn outcomes(build: impl Fn(&Arena) -> Op) -> Vec<Result<(), DeviceError>> {
    let mut outcomes = vec![outcome(&ReferenceDevice::default(), &build)];
    outcomes.extend(devices().iter().map(|tested| outcome(&*tested.device, &build)));
    outcomes
}

fn outcome(device: &dyn Device, build: &impl Fn(&Arena) -> Op) -> Result<(), DeviceError> {
    device.enqueue(&build(&Arena::new(device, Layout::Dense)))?;
    device.sync()
}

//! What happens to products before they are stored.

use std::ops::Range;

use crate::cpu::CpuDevice;
use crate::cpu::isa::{Floats, Isa, Kernel, LANES, Simd};
use crate::cpu::math::{sigmoid, silu};
use crate::cpu::view::View;
use crate::device::DeviceError;
use crate::op::Epilogue;

/// Adds a bias to each row of a tile of products.
pub(super) fn add(bias: &[f32], products: &mut [Floats]) {
    for row in products {
        row.0.iter_mut().zip(bias).for_each(|(p, bias)| *p += bias);
    }
}

/// The epilogue of a product, its operands located.
pub(super) enum Finish<'a> {
    Store,
    Accumulate,
    Silu { scale: f32 },
    SwiGlu,
    GateMean { normed: View<'a, f32> },
}

impl<'a> Finish<'a> {
    /// Of an epilogue.
    pub fn new(device: &CpuDevice, epilogue: &'a Epilogue) -> Result<Self, DeviceError> {
        Ok(match epilogue {
            Epilogue::Store => Finish::Store,
            Epilogue::Accumulate => Finish::Accumulate,
            Epilogue::Silu { scale } => Finish::Silu { scale: *scale },
            Epilogue::SwiGlu { .. } => Finish::SwiGlu,
            Epilogue::GateMean { normed } => Finish::GateMean { normed: View::of(device, normed)? },
        })
    }

    /// Stores the products of a block of rows with a panel, for each part of the product one [`Floats`] a row.
    pub fn store<'o>(&self, isa: Isa, parts: &[Vec<Floats>], target: &Target<impl Fn(usize) -> &'o mut [f32]>) {
        let (a, b) = (parts[0].as_slice(), parts[parts.len() - 1].as_slice());
        match self {
            Finish::Store => isa.run(Each { a, b, target, f: |p, _| p }),
            Finish::Silu { scale } => isa.run(Each { a, b, target, f: |p, _| silu(p * scale) }),
            Finish::SwiGlu => isa.run(Each { a, b, target, f: |gate, up| silu(gate) * up }),
            Finish::Accumulate => {
                for (row, p) in a.iter().enumerate() {
                    (target.out)(row).iter_mut().zip(&p.0).for_each(|(out, p)| *out += p);
                }
            }
            Finish::GateMean { normed } => isa.run(GateMean { parts, normed: *normed, target }),
        }
    }
}

/// Where the products of a block of rows with a panel go.
pub(super) struct Target<'a, O> {
    /// The input row of each row.
    pub inputs: &'a [usize],
    /// The panel's columns of the output.
    pub cols: Range<usize>,
    /// Those columns of a row.
    pub out: O,
    /// Whether nobody reads the output soon.
    pub stream: bool,
}

impl<'o, O: Fn(usize) -> &'o mut [f32]> Target<'_, O> {
    #[inline(always)]
    fn put<S: Simd>(&self, simd: S, row: usize, lanes: &Floats) {
        let out = (self.out)(row);
        match bytemuck::try_cast_slice_mut::<f32, Floats>(out) {
            Ok([line]) if self.stream => simd.stream(simd.load(lanes), line),
            _ => out.copy_from_slice(&lanes.0[..self.cols.len()]),
        }
    }
}

/// `out = f(a, b)` in every lane of every row.
struct Each<'a, O, F> {
    a: &'a [Floats],
    b: &'a [Floats],
    target: &'a Target<'a, O>,
    f: F,
}

impl<'o, O: Fn(usize) -> &'o mut [f32], F: Fn(f32, f32) -> f32> Kernel for Each<'_, O, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (row, (a, b)) in self.a.iter().zip(self.b).enumerate() {
            let mut lanes = Floats::default();
            for i in 0..LANES {
                lanes.0[i] = (self.f)(a.0[i], b.0[i]);
            }
            self.target.put(simd, row, &lanes);
        }
    }
}

/// `out = mean over streams of sigmoid(part) * normed`.
struct GateMean<'a, O> {
    parts: &'a [Vec<Floats>],
    normed: View<'a, f32>,
    target: &'a Target<'a, O>,
}

impl<'o, O: Fn(usize) -> &'o mut [f32]> Kernel for GateMean<'_, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let share = 1.0 / self.parts.len() as f32;
        for (row, &input) in self.target.inputs.iter().enumerate() {
            let mut lanes = Floats::default();
            for (s, part) in self.parts.iter().enumerate() {
                let mut stream = Floats::default();
                stream.0[..self.target.cols.len()].copy_from_slice(&self.normed.at(input, s)[self.target.cols.clone()]);
                for i in 0..LANES {
                    lanes.0[i] += sigmoid(part[row].0[i]) * stream.0[i] * share;
                }
            }
            self.target.put(simd, row, &lanes);
        }
    }
}

//! What happens to products before they are stored.

use std::ops::Range;

use crate::cpu::CpuDevice;
use crate::cpu::isa::{Floats, Isa, Kernel, LANES, Simd};
use crate::cpu::math::{sigmoid, silu};
use crate::cpu::memory::View;
use crate::device::DeviceError;
use crate::op::Epilogue;

/// Adds a bias to each row of a tile of products.
pub(super) fn add(bias: &[f32], products: &mut [Floats]) {
    for row in products {
        row.0.iter_mut().zip(bias).for_each(|(p, bias)| *p += bias);
    }
}

/// The epilogue of a product, its operands located.
pub(super) struct Finish<'a> {
    epilogue: &'a Epilogue,
    normed: Option<View<'a, f32>>,
}

impl<'a> Finish<'a> {
    /// Of an epilogue.
    pub fn new(device: &CpuDevice, epilogue: &'a Epilogue) -> Result<Self, DeviceError> {
        let normed = match epilogue {
            Epilogue::GateMean { normed } => Some(View::of(device, normed)?),
            _ => None,
        };
        Ok(Self { epilogue, normed })
    }

    /// Stores row `i` of the products, a tile for each part, in the columns `cols` of an output row. `input` is the number
    /// of the input row.
    pub fn store(&self, isa: Isa, parts: &[Vec<Floats>], i: usize, input: usize, cols: Range<usize>, out: &mut [f32]) {
        let p = &parts[0][i];
        match (self.epilogue, self.normed) {
            (Epilogue::Store, _) => isa.run(Each { a: p, b: p, out, f: |p, _, _| p }),
            (Epilogue::Accumulate, _) => out.iter_mut().zip(&p.0).for_each(|(out, p)| *out += p),
            (Epilogue::Silu { scale }, _) => isa.run(Each { a: p, b: p, out, f: |p, _, _| silu(p * scale) }),
            (Epilogue::SwiGlu { .. }, _) => {
                isa.run(Each { a: p, b: &parts[1][i], out, f: |gate, up, _| silu(gate) * up });
            }
            (Epilogue::GateMean { .. }, None) => {}
            (Epilogue::GateMean { .. }, Some(normed)) => {
                let share = 1.0 / parts.len() as f32;
                out.fill(0.0);
                for (s, part) in parts.iter().enumerate() {
                    let mut stream = Floats::default();
                    stream.0[..out.len()].copy_from_slice(&normed.at(input, s)[cols.clone()]);
                    isa.run(Each {
                        a: &part[i],
                        b: &stream,
                        out,
                        f: |p, stream, sum| sum + sigmoid(p) * stream * share,
                    });
                }
            }
        }
    }
}

/// `out = f(a, b, out)`, lane by lane, for as many lanes as `out` has.
struct Each<'a, F> {
    a: &'a Floats,
    b: &'a Floats,
    out: &'a mut [f32],
    f: F,
}

impl<F: Fn(f32, f32, f32) -> f32> Kernel for Each<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { a, b, out, f } = self;
        let mut lanes = Floats::default();
        lanes.0[..out.len()].copy_from_slice(out);
        for i in 0..LANES {
            lanes.0[i] = f(a.0[i], b.0[i], lanes.0[i]);
        }
        match bytemuck::try_cast_slice_mut::<f32, Floats>(out) {
            Ok([line]) => simd.stream(simd.load(&lanes), line),
            _ => out.copy_from_slice(&lanes.0[..out.len()]),
        }
    }
}

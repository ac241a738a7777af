//! The product of activations and quantised weights, dense and routed by one row map.
//!
//! Output rows that meet the same expert form a *segment*: the whole of a dense product, one run of plan rows for each
//! expert of a routed one. A segment is computed in blocks of rows, a block in panels of [`LANES`] output columns:
//!
//! ```text
//! for each unit = (segment, block of rows, run of panels)          threads take units in order, from a counter
//!     pack the block's input rows into tiles of a few rows         [tile][k][row]
//!     for each panel of the run
//!         unpack its weight rows                                   [k][LANES]
//!         for each tile: multiply, apply the epilogue, store       accumulators stay in registers
//! ```
//!
//! A weight row is decoded once for all rows of the block, however few or many they are, and padding rows of a plan are
//! never looked at.
//!
//! Invariant: an output element is computed by one thread, by operations whose order depends on K alone: its bits are the
//! same for any number of threads, any block, and any neighbours.

mod epilogue;
mod f32;
mod rows;
mod tune;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::CpuDevice;
use super::isa::{Isa, LANES};
use super::memory::{View, ViewMut, WeightRows};
use crate::device::DeviceError;
use crate::op::{Epilogue, Gemm, Precision};
use crate::tensor::Weight;
use epilogue::Finish;
use rows::Segment;
pub(super) use tune::tile_rows;

/// The modes that this device has, its default first.
pub(super) const PRECISIONS: &[Precision] = &[Precision::F32];

/// One row of a tile's products with a panel.
type Lanes = [f32; LANES];

/// A way to represent the operands of a product.
trait Scheme: Sync {
    /// Input rows, packed in tiles.
    type Rows: Default;
    /// Unpacked weight rows, [`LANES`] of them side by side.
    type Panel: Default;

    /// Packs input rows `rows` in tiles of these heights.
    fn pack(&self, isa: Isa, rows: &[usize], heights: &[usize], packed: &mut Self::Rows);

    /// Unpacks up to [`LANES`] encoded rows of `part`; the missing ones are zero.
    fn unpack(&self, isa: Isa, part: &Weight, rows: &[&[u8]], panel: &mut Self::Panel);

    /// The products of tile `tile` of the packed rows with a panel; `out` is as long as the tile is high.
    fn multiply(&self, isa: Isa, packed: &Self::Rows, tile: usize, panel: &Self::Panel, out: &mut [Lanes]);
}

/// Runs one product to its end.
pub(super) fn gemm(device: &CpuDevice, o: &Gemm) -> Result<(), DeviceError> {
    match o.precision {
        Precision::F32 => run(device, o, &f32::F32 { x: View::of(device, &o.x)? }),
        other => {
            Err(DeviceError::Unsupported { device: device.id().into(), what: format!("{} products", other.name()) })
        }
    }
}

/// The part of a product that one thread takes at a time.
struct Unit<'a> {
    segment: &'a Segment,
    /// Rows of the segment.
    rows: Range<usize>,
    /// Panels of the output.
    panels: Range<usize>,
}

fn run<S: Scheme>(device: &CpuDevice, o: &Gemm, scheme: &S) -> Result<(), DeviceError> {
    let segments = rows::segments(device, o)?;
    let job = Job::new(device, o, scheme)?;
    let shape = tune::Shape {
        panels: job.width.div_ceil(LANES),
        k: o.w.cols,
        segments: segments.len(),
        largest: segments.iter().map(|s| s.rows()).max().unwrap_or(0),
        threads: rayon::current_num_threads(),
    };
    let config = tune::config(&shape, job.isa);
    let units: Vec<Unit> = segments.iter().flat_map(|segment| cut(segment, &shape, &config)).collect();
    let next = AtomicUsize::new(0);
    rayon::broadcast(|_| {
        let mut scratch = Scratch::<S>::default();
        while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            job.unit(unit, config.tile_rows, &mut scratch);
        }
    });
    Ok(())
}

/// The units of a segment, in the order of its weight rows.
fn cut<'a>(segment: &'a Segment, shape: &tune::Shape, config: &tune::Config) -> impl Iterator<Item = Unit<'a>> {
    let (rows, panels) = (segment.rows(), shape.panels);
    let (block, run) = (config.block_rows, config.unit_panels);
    (0..rows).step_by(block).flat_map(move |row| {
        (0..panels).step_by(run).map(move |panel| Unit {
            segment,
            rows: row..rows.min(row + block),
            panels: panel..panels.min(panel + run),
        })
    })
}

/// What one thread works with.
struct Scratch<S: Scheme> {
    packed: S::Rows,
    /// One for each part of the product.
    panels: Vec<S::Panel>,
    heights: Vec<usize>,
    /// One tile of products for each part.
    products: Vec<Vec<Lanes>>,
}

impl<S: Scheme> Default for Scratch<S> {
    fn default() -> Self {
        Self { packed: S::Rows::default(), panels: vec![], heights: vec![], products: vec![] }
    }
}

/// One product, its operands located.
struct Job<'a, S> {
    scheme: &'a S,
    isa: Isa,
    /// The weight rows whose products meet in one output element: one, two with SwiGLU, S with a mean over S streams.
    parts: Vec<Part<'a>>,
    /// Columns of the output.
    width: usize,
    finish: Finish<'a>,
    out: ViewMut<'a, f32>,
}

struct Part<'a> {
    weight: &'a Weight,
    bytes: WeightRows<'a>,
    /// The weight row of output column 0.
    first: usize,
    /// Added to the product, one for each weight row.
    bias: Option<&'a [f32]>,
}

impl<'a, S: Scheme> Job<'a, S> {
    fn new(device: &CpuDevice, o: &'a Gemm, scheme: &'a S) -> Result<Self, DeviceError> {
        let bias = o.bias.as_ref().map(|bias| View::of(device, bias)).transpose()?.map(|bias| bias.all());
        let part = |weight: &'a Weight, first| {
            // Only `w` has the bias, not SwiGLU's second factor.
            let bias = bias.filter(|_| std::ptr::eq(weight, &o.w));
            Ok(Part { weight, bytes: WeightRows::of(device, weight)?, first, bias })
        };
        let width = o.out.cols;
        let parts = match &o.epilogue {
            Epilogue::SwiGlu { up } => vec![part(&o.w, 0)?, part(up, 0)?],
            Epilogue::GateMean { normed } => {
                (0..normed.groups).map(|s| part(&o.w, s * width)).collect::<Result<_, DeviceError>>()?
            }
            Epilogue::Store | Epilogue::Accumulate | Epilogue::Silu { .. } => vec![part(&o.w, 0)?],
        };
        let finish = Finish::new(device, &o.epilogue)?;
        Ok(Self { scheme, isa: device.isa, parts, width, finish, out: ViewMut::of(device, &o.out)? })
    }

    fn unit(&self, unit: &Unit, tile_rows: usize, scratch: &mut Scratch<S>) {
        let Scratch { packed, panels, heights, products } = scratch;
        panels.resize_with(self.parts.len(), S::Panel::default);
        products.resize_with(self.parts.len(), Vec::new);
        tune::tile_heights(unit.rows.len(), tile_rows, heights);
        self.scheme.pack(self.isa, &unit.segment.inputs[unit.rows.clone()], heights, packed);
        for panel in unit.panels.clone() {
            let cols = panel * LANES..self.width.min((panel + 1) * LANES);
            for (part, panel) in self.parts.iter().zip(panels.iter_mut()) {
                self.unpack(part, unit.segment.expert, cols.clone(), panel);
            }
            let mut row = unit.rows.start;
            for (tile, &height) in heights.iter().enumerate() {
                for (products, panel) in products.iter_mut().zip(panels.iter()) {
                    products.resize(height, [0.0; LANES]);
                    self.scheme.multiply(self.isa, packed, tile, panel, products);
                }
                self.store(unit.segment, row, cols.clone(), products);
                row += height;
            }
        }
    }

    /// Stores the products of a tile of rows, one tile for each part, the first of them row `row` of the segment.
    fn store(&self, segment: &Segment, row: usize, cols: Range<usize>, products: &mut [Vec<Lanes>]) {
        for (part, products) in self.parts.iter().zip(products.iter_mut()) {
            if let Some(bias) = part.bias {
                epilogue::add(&bias[part.first + cols.start..part.first + cols.end], products);
            }
        }
        for i in 0..products[0].len() {
            // SAFETY: units differ in their rows or in their panels, and one thread computes a unit.
            let out = unsafe { self.out.part(segment.first + row + i, cols.clone()) };
            self.finish.store(self.isa, products, i, segment.inputs[row + i], cols.clone(), out);
        }
    }

    fn unpack(&self, part: &Part, expert: usize, cols: Range<usize>, panel: &mut S::Panel) {
        let mut rows: [&[u8]; LANES] = [&[]; LANES];
        for (row, col) in rows.iter_mut().zip(cols.clone()) {
            *row = part.bytes.row(expert, part.first + col);
        }
        self.scheme.unpack(self.isa, part.weight, &rows[..cols.len()], panel);
    }
}

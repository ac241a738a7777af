//! The product of activations and quantised weights, dense and routed by one row map.
//!
//! Output rows that meet the same expert form a *segment*: the whole of a dense product, one run of plan rows for each
//! expert of a routed one. A segment is computed in blocks of rows, a block in panels of [`LANES`] output columns:
//!
//! ```text
//! for each unit = (segment, block of rows, run of panels)          threads take units in order, from a counter
//!     for each panel of the run
//!         for each stretch of its columns                          few enough to stay in the L1 cache
//!             unpack its weight rows                               [k][lane]
//!             for each tile of the block's rows                    few enough that the sums stay in registers
//!                 add their products to the block's sums
//!         apply the epilogue, store
//! ```
//!
//! A weight is unpacked once for all rows of the block, however few or many they are, and padding rows of a plan are never
//! looked at.
//!
//! Invariant: an output element is computed by one thread, by operations whose order depends on K alone: its bits are the
//! same for any number of threads, any block, and any neighbours.

#[cfg(target_arch = "x86_64")]
mod across;
mod ahead;
mod epilogue;
mod f32;
#[cfg(target_arch = "x86_64")]
mod few;
mod integer;
mod narrow;
mod quantise;
mod rows;
mod tune;
mod unpack;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::CpuDevice;
#[cfg(target_arch = "x86_64")]
use super::isa::Avx512;
use super::isa::{Floats, Isa, LANES};
use super::view::{View, ViewMut, WeightRows};
use crate::device::DeviceError;
use crate::op::{Epilogue, Gemm, Precision};
use crate::tensor::Weight;
use ahead::Ahead;
use epilogue::{Finish, Target};
use integer::Tile;
pub(super) use quantise::Spare;
use quantise::{Quantised, Words};
use rows::Segment;
pub(super) use tune::tile_rows;
use unpack::{Coding, Stretch};

/// The modes that this device has, its default first.
pub(super) const PRECISIONS: &[Precision] = &[Precision::Int8, Precision::F16, Precision::F32];

/// Runs one product to its end.
pub(super) fn gemm(device: &CpuDevice, o: &Gemm) -> Result<(), DeviceError> {
    if !PRECISIONS.contains(&o.precision) {
        let what = format!("products in {}", o.precision.name());
        return Err(DeviceError::Unsupported { device: device.id().into(), what });
    }
    if narrow::takes(o) {
        return narrow::gemm(device, o);
    }
    let segments = rows::segments(device, o)?;
    let job = Job::new(device, o, &segments)?;
    let units: Vec<Unit> = segments.iter().flat_map(|segment| job.cut(segment)).collect();
    let counter = AtomicUsize::new(0);
    let claim = || units.get(counter.fetch_add(1, Ordering::Relaxed));
    device.team.run(units.len(), &|_| {
        let mut scratch = Scratch::default();
        let mut claimed = claim();
        while let Some(unit) = claimed {
            claimed = claim();
            job.unit(unit, claimed, &mut scratch);
        }
        job.isa.fence();
    });
    Ok(())
}

/// The part of a product that one thread takes at a time.
struct Unit<'a> {
    segment: &'a Segment,
    /// Rows of the segment.
    rows: Range<usize>,
    /// Panels of the output.
    panels: Range<usize>,
}

/// What one thread works with.
#[derive(Default)]
struct Scratch {
    floats: Vec<Floats>,
    codes: unpack::Memory,
    #[cfg(target_arch = "x86_64")]
    across: across::Memory,
    /// Products of the block's rows with the panel, for each part.
    sums: Vec<Vec<Floats>>,
}

/// One product, its operands located.
struct Job<'a> {
    isa: Isa,
    /// The weight rows whose products meet in one output element: one, two with SwiGLU, S with a mean over S streams.
    parts: Vec<Part<'a>>,
    /// Columns of the output.
    width: usize,
    config: tune::Config,
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
    inputs: Inputs<'a>,
}

/// The input rows, in the form that suits a weight's format and the precision.
#[derive(Clone)]
enum Inputs<'a> {
    /// As they are, for plain floats and for f32.
    Floats(View<'a, f32>),
    /// 8-bit integers.
    Int8(Coding, Arc<Quantised>),
    /// 16-bit integers in two planes.
    Int16(Coding, Arc<Quantised>),
    /// Either, in so many planes, for products across the lanes.
    #[cfg(target_arch = "x86_64")]
    Across(Avx512, usize, Arc<Quantised>),
}

impl<'a> Inputs<'a> {
    fn new(
        device: &CpuDevice,
        x: View<'a, f32>,
        o: &Gemm,
        weight: &Weight,
        used: impl Fn(usize) -> bool + Sync,
    ) -> Self {
        let Some(coding) = unpack::coding(device.isa, weight.format) else { return Inputs::Floats(x) };
        let (planes, x) = match o.precision {
            Precision::Int8 => (1, Quantised::new::<1, { Words::<1>::LEN }>(device, x, coding, used)),
            Precision::F16 => (2, Quantised::new::<2, { Words::<2>::LEN }>(device, x, coding, used)),
            _ => return Inputs::Floats(x),
        };
        let x = Arc::new(x);
        match (coding, planes) {
            #[cfg(target_arch = "x86_64")]
            (Coding { across: Some(avx512), .. }, _) => Inputs::Across(avx512, planes, x),
            (_, 1) => Inputs::Int8(coding, x),
            _ => Inputs::Int16(coding, x),
        }
    }

    fn row_bytes(&self) -> usize {
        match self {
            Inputs::Floats(x) => x.cols() * size_of::<f32>(),
            Inputs::Int8(_, x) | Inputs::Int16(_, x) => x.row_bytes(),
            #[cfg(target_arch = "x86_64")]
            Inputs::Across(_, _, x) => x.row_bytes(),
        }
    }
}

impl<'a> Job<'a> {
    fn new(device: &CpuDevice, o: &'a Gemm, segments: &[Segment]) -> Result<Self, DeviceError> {
        let (isa, width) = (device.isa, o.out.cols);
        let x = View::of(device, &o.x)?;
        let used = rows::used(o, segments);
        let bias = o.bias.as_ref().map(|bias| View::of(device, bias)).transpose()?.map(|bias| bias.all());
        let inputs = Inputs::new(device, x, o, &o.w, &used);
        let part = |weight: &'a Weight, first, bias, inputs| {
            Ok(Part { weight, bytes: WeightRows::of(device, weight)?, first, bias, inputs })
        };
        let parts = match &o.epilogue {
            Epilogue::SwiGlu { up } => {
                let same = unpack::coding(isa, up.format) == unpack::coding(isa, o.w.format);
                let up_inputs = if same { inputs.clone() } else { Inputs::new(device, x, o, up, &used) };
                vec![part(&o.w, 0, bias, inputs)?, part(up, 0, None, up_inputs)?]
            }
            Epilogue::GateMean { normed } => {
                let streams = (0..normed.groups).map(|s| part(&o.w, s * width, bias, inputs.clone()));
                streams.collect::<Result<_, DeviceError>>()?
            }
            Epilogue::Store | Epilogue::Accumulate | Epilogue::Silu { .. } => vec![part(&o.w, 0, bias, inputs)?],
        };
        let shape = tune::Shape {
            segments: &segments.iter().map(Segment::rows).collect::<Vec<_>>(),
            panels: width.div_ceil(LANES),
            row_bytes: parts.iter().map(|part: &Part| part.inputs.row_bytes()).max().unwrap_or(0),
            out_bytes: o.out.len() * size_of::<f32>(),
            threads: device.team.threads(),
        };
        let config = tune::config(&shape, isa);
        let (finish, out) = (Finish::new(device, &o.epilogue)?, ViewMut::of(device, &o.out)?);
        Ok(Self { isa, parts, width, config, finish, out })
    }

    /// The units of a segment.
    fn cut<'s>(&self, segment: &'s Segment) -> impl Iterator<Item = Unit<'s>> {
        let (rows, panels) = (segment.rows(), self.width.div_ceil(LANES));
        let (block, run) = (self.config.block_rows, self.config.unit_panels);
        tune::tiles(rows, block).flat_map(move |rows| {
            (0..panels).step_by(run).map(move |panel| Unit {
                segment,
                rows: rows.clone(),
                panels: panel..panels.min(panel + run),
            })
        })
    }

    /// Computes a unit; `next` is the one that this thread computes after it.
    fn unit(&self, unit: &Unit, next: Option<&Unit>, scratch: &mut Scratch) {
        scratch.sums.resize_with(self.parts.len(), Vec::new);
        for panel in unit.panels.clone() {
            for p in 0..self.parts.len() {
                let ahead = if p + 1 < self.parts.len() {
                    self.bytes(unit, panel, p + 1)
                } else if panel + 1 < unit.panels.end {
                    self.bytes(unit, panel + 1, 0)
                } else {
                    next.map_or(&[][..], |next| self.bytes(next, next.panels.start, 0))
                };
                self.products(unit, panel, p, ahead, scratch);
            }
            let (first, cols) = (unit.segment.first + unit.rows.start, self.cols(panel));
            let target = Target {
                inputs: &unit.segment.inputs[unit.rows.clone()],
                cols: cols.clone(),
                // SAFETY: units differ in their rows or in their panels, and one thread computes a unit.
                out: |row| unsafe { self.out.part(first + row, cols.clone()) },
                stream: self.config.stream,
            };
            self.finish.store(self.isa, &scratch.sums, &target);
        }
    }

    /// The output columns of a panel.
    fn cols(&self, panel: usize) -> Range<usize> {
        panel * LANES..self.width.min((panel + 1) * LANES)
    }

    /// The weight bytes of a panel of part number `p`.
    fn bytes(&self, unit: &Unit, panel: usize, p: usize) -> &'a [u8] {
        let (part, cols) = (&self.parts[p], self.cols(panel));
        part.bytes.span(unit.segment.expert, part.first + cols.start..part.first + cols.end)
    }

    /// The products of a unit's rows with a panel of part number `p`, into that part's sums. Meanwhile the bytes `ahead`
    /// are brought nearer.
    fn products(&self, unit: &Unit, panel: usize, p: usize, ahead: &[u8], scratch: &mut Scratch) {
        let Scratch { floats, codes, sums, .. } = scratch;
        let (part, cols, isa) = (&self.parts[p], self.cols(panel), self.isa);
        let (rows, sums) = (&unit.segment.inputs[unit.rows.clone()], &mut sums[p]);
        sums.clear();
        sums.resize(rows.len(), Floats::default());
        let (bytes, stride) = (self.bytes(unit, panel, p), part.weight.row_bytes);
        let k = part.weight.cols;
        let mut ahead = Ahead::new(ahead, k / 32);
        let all = Stretch { format: part.weight.format, bytes, stride, lanes: cols.len(), cols: 0..k };
        match &part.inputs {
            #[cfg(target_arch = "x86_64")]
            Inputs::Across(avx512, planes, x) => {
                let (block, memory) = (across::Block { x, rows, sums }, &mut scratch.across);
                match planes {
                    1 => across::multiply::<1, { Words::<1>::LEN }>(*avx512, &all, &mut ahead, memory, block),
                    _ => across::multiply::<2, { Words::<2>::LEN }>(*avx512, &all, &mut ahead, memory, block),
                }
            }
            Inputs::Floats(x) => {
                for stretch in all.cut(self.config.depth) {
                    let panel = unpack::grown(floats, stretch.cols.len());
                    f32::unpack(isa, &stretch, &mut ahead, panel);
                    for tile in tune::tiles(rows.len(), self.config.tile_rows) {
                        f32::multiply(isa, *x, &rows[tile.clone()], stretch.cols.start, panel, &mut sums[tile]);
                    }
                }
            }
            Inputs::Int8(coding, x) => {
                let block = Tile { x, rows, first: 0, sums };
                self.integers::<1, { Words::<1>::LEN }>(*coding, &all, &mut ahead, codes, block);
            }
            Inputs::Int16(coding, x) => {
                let block = Tile { x, rows, first: 0, sums };
                self.integers::<2, { Words::<2>::LEN }>(*coding, &all, &mut ahead, codes, block);
            }
        }
        if let Some(bias) = part.bias {
            epilogue::add(&bias[part.first + cols.start..part.first + cols.end], sums);
        }
    }

    /// Unpacks stretch after stretch and adds its products with a block of rows, however many.
    fn integers<const PLANES: usize, const W: usize>(
        &self,
        coding: Coding,
        weights: &Stretch,
        ahead: &mut Ahead,
        codes: &mut unpack::Memory,
        block: Tile,
    ) {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx512) = unpack::avx512_for(self.isa, weights.format).filter(|_| block.rows.len() <= few::MOST) {
            return few::multiply::<PLANES, W>(avx512, weights, ahead, block);
        }
        for stretch in weights.cut(self.config.depth) {
            let panel = &mut codes.panel(&coding, stretch.cols.len());
            unpack::unpack(self.isa, &stretch, ahead, panel);
            for tile in tune::tiles(block.rows.len(), self.config.tile_rows) {
                let (rows, sums) = (&block.rows[tile.clone()], &mut block.sums[tile]);
                let tile = Tile { x: block.x, rows, first: stretch.cols.start, sums };
                integer::multiply::<PLANES, W>(self.isa, coding, tile, panel);
            }
        }
    }
}

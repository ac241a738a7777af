//! Launches of products.

use argon_gguf::Format;

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::elementwise;
use super::host::{End, Map, order};
use super::memory::View;
use super::range;
use super::source::Source;
use super::tune::{self, ImpossibleTile, Product, Tile};
use super::workspace::Hidden;
use crate::device::DeviceError;
use crate::op::{Epilogue, Gemm, PlanBuffers, Precision, RowMap};
use crate::tensor::{Tensor, Weight};

type Result<T = ()> = std::result::Result<T, DeviceError>;

/// Rows and outputs of a block of threads of product.cu.
const PLAIN_TILE: usize = 64;

/// What the kernels are told of these launches (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[
    ("ACT_ARGS", size_of::<ActArgs>()),
    ("SWIGLU_ARGS", size_of::<SwigluArgs>()),
    ("SUM_ARGS", size_of::<SumArgs>()),
    ("GEMM_ARGS", size_of::<GemmArgs>()),
    ("PRODUCT_ARGS", size_of::<ProductArgs>()),
    ("PRODUCT_TILE", PLAIN_TILE),
    ("NARROW_ARGS", size_of::<NarrowArgs>()),
];

/// One launch: a product of `x` with one matrix per expert, or with two for [`End::SwiGlu`].
struct Job<'a> {
    x: &'a Tensor,
    w: &'a Weight,
    up: Option<&'a Weight>,
    /// The streams of [`End::GateMean`].
    normed: Option<View>,
    bias: Option<&'a Tensor>,
    rows: &'a RowMap,
    end: End,
    scale: f32,
    out: View,
    /// What `out` is a view of; not for the device's own memory.
    tensor: &'a Tensor,
    precision: Precision,
}

pub(super) fn gemm(device: &CudaDevice, state: &mut State, o: &Gemm) -> Result {
    if !matches!(o.precision, Precision::F32 | Precision::F16) {
        return Err(DeviceError::Unsupported {
            device: device.driver.id().into(),
            what: format!("products in {}", o.precision.name()),
        });
    }
    let out = device.output(&o.out)?;
    if out.rows == 0 || out.cols == 0 {
        return Ok(());
    }
    let job = Job {
        x: &o.x,
        w: &o.w,
        up: None,
        normed: None,
        bias: o.bias.as_ref(),
        rows: &o.rows,
        end: End::Store,
        scale: 1.0,
        out,
        tensor: &o.out,
        precision: o.precision,
    };
    match &o.epilogue {
        Epilogue::Store => product(device, state, &job),
        Epilogue::Accumulate => product(device, state, &Job { end: End::Accumulate, ..job }),
        Epilogue::Silu { scale } => product(device, state, &Job { end: End::Silu, scale: *scale, ..job }),
        Epilogue::SwiGlu { up } if alike(&o.w, up) && o.bias.is_none() => {
            product(device, state, &Job { end: End::SwiGlu, up: Some(up), ..job })
        }
        Epilogue::SwiGlu { up } => {
            let address = state.workspace.between.at_least(&device.driver, o.out.rows * o.out.cols * 4)?;
            let other = View::matrix(address, o.out.rows, o.out.cols);
            product(device, state, &Job { ..job })?;
            product(device, state, &Job { w: up, bias: None, out: other, ..job })?;
            swiglu(device, state, &o.rows, out, other)
        }
        Epilogue::GateMean { normed } => {
            let normed = device.input(normed)?;
            if at_hand(&normed) {
                return product(device, state, &Job { end: End::GateMean, normed: Some(normed), ..job });
            }
            let address = state.workspace.between.at_least(&device.driver, o.x.rows * o.w.rows * 4)?;
            let p = View::matrix(address, o.x.rows, o.w.rows);
            product(device, state, &Job { out: p, ..job })?;
            elementwise::gate_mean(device, state, p, normed, out)
        }
    }
}

/// Whether the kernels of products can take the mean of these streams: 16 weight rows are those of all streams, for some
/// columns, and the streams are fetched 16 bytes at a time. Of others the product's logits are stored, and read again.
fn at_hand(normed: &View) -> bool {
    let whole = [normed.first / 4, normed.row_stride, normed.group_stride, normed.cols.into()];
    matches!(normed.groups, 2 | 4 | 8 | 16) && whole.iter().all(|n| n % 4 == 0)
}

impl Job<'_> {
    /// Weight rows that make one output.
    fn factors(&self) -> usize {
        match self.end {
            End::SwiGlu => 2,
            End::GateMean => self.normed.map_or(1, |normed| normed.groups as usize),
            _ => 1,
        }
    }

    /// What a kernel is told of its streams.
    fn streams(&self) -> Option<(&'static str, u32)> {
        self.normed.map(|normed| ("GEMM_STREAMS", normed.groups))
    }
}

/// Whether one kernel can walk through both weights side by side.
fn alike(a: &Weight, b: &Weight) -> bool {
    (a.format, a.row_bytes, a.expert_bytes) == (b.format, b.row_bytes, b.expert_bytes)
}

/// `SwigluArgs` of act.cu.
#[repr(C)]
struct SwigluArgs {
    gate: View,
    up: View,
    stok: u64,
    meta: u64,
}

/// `gate = silu(gate) * up` in the rows that a product wrote.
fn swiglu(device: &CudaDevice, state: &mut State, rows: &RowMap, gate: View, up: View) -> Result {
    let (stok, meta) = match plan(rows) {
        Some(plan) => (device.input(&plan.stok)?.first, device.input(&plan.meta)?.first),
        None => (0, 0),
    };
    let launch = Launch { grid: [gate.rows, 1, 1], block: 256, shared: 0 };
    // SAFETY: `SwigluArgs` of act.cu; both views have the rows and columns of the product's output.
    unsafe { device.launch(state, ("act.cu", "swiglu"), launch, &SwigluArgs { gate, up, stok, meta }) }
}

fn plan(rows: &RowMap) -> Option<&PlanBuffers> {
    match rows {
        RowMap::Identity => None,
        RowMap::Gather(plan) | RowMap::Segments(plan) => Some(plan),
    }
}

/// Which rows of x a product's are.
fn map(rows: &RowMap) -> Map {
    match rows {
        RowMap::Identity => Map::Dense,
        RowMap::Gather(_) => Map::Gather,
        RowMap::Segments(_) => Map::Segments,
    }
}

/// Weights beyond the range of f16 are multiplied in f32. Until the host knows whether they are, both kernels are launched, and
/// the one that should not run finds that out by itself.
fn product(device: &CudaDevice, state: &mut State, job: &Job) -> Result {
    let align = alignment(device, job)?;
    if job.precision != Precision::F16 || !on_tensor_cores(job.w, align) {
        return if is_narrow(device, job)? {
            narrow(device, state, job, align)
        } else {
            plain(device, state, job, None)
        };
    }
    let ranges = [Some(job.w), job.up].map(|w| w.map(|w| range::of(device, state, w)));
    let [Some(first), second] = ranges else { return plain(device, state, job, None) };
    let (first, second) = (first?, second.transpose()?);
    let known = [first.exceeded(), second.as_ref().map_or(Some(false), |range| range.exceeded())];
    if known.contains(&Some(true)) {
        return plain(device, state, job, None);
    }
    let asked = known.contains(&None).then(|| [first.address(), second.map_or(0, |range| range.address())]);
    let beyond = tensor_cores(device, state, job, align, asked)?;
    match asked {
        Some(exceeded) => plain(device, state, job, Some(Instead { exceeded, beyond })),
        None => Ok(()),
    }
}

/// When a product in f32 takes the place of one on tensor cores.
struct Instead {
    /// Where the device says that weights are beyond the range of f16, or 0.
    exceeded: [u64; 2],
    /// Where it says so of the rows in f16 that go on to the next product, or 0: it does not write those.
    beyond: u64,
}

/// Whether the kernel for tensor cores takes these weights: whole runs of 32, whole words; not plain f32, which it would
/// round.
fn on_tensor_cores(w: &Weight, align: u64) -> bool {
    w.cols > 0 && w.cols.is_multiple_of(32) && w.format != Format::F32 && (align >= 2 || w.format == Format::MXFP4)
}

/// What all rows of the weights begin at a multiple of, up to 16 bytes.
fn alignment(device: &CudaDevice, job: &Job) -> Result<u64> {
    let mut bits = 16;
    for w in [Some(job.w), job.up].into_iter().flatten() {
        bits |= device.weight(w)? | w.row_bytes as u64 | w.expert_bytes as u64;
    }
    Ok(1 << bits.trailing_zeros())
}

/// `GemmArgs` of gemm.cu.
#[repr(C)]
struct GemmArgs {
    x: u64,
    exponents: u64,
    w0: u64,
    w1: u64,
    out: u64,
    half: u64,
    beyond: u64,
    scaled: u64,
    exceeded: [u64; 2],
    bias: u64,
    stok: u64,
    tiles: u64,
    meta: u64,
    normed: View,
    expert_bytes: u64,
    row_bytes: u64,
    x_stride: u32,
    out_stride: u32,
    half_stride: u32,
    k: u32,
    n: u32,
    tokens: u32,
    parts: u32,
    row_blocks: u32,
    scale: f32,
}

/// Gives where it counts the numbers beyond the range of f16 in the rows that go on, or 0.
fn tensor_cores(
    device: &CudaDevice,
    state: &mut State,
    job: &Job,
    align: u64,
    exceeded: Option<[u64; 2]>,
) -> Result<u64> {
    let format = job.w.format;
    let input = activations(device, state, job)?;
    let half = half_output(device, state, job)?;
    let plan = plan(job.rows);
    let (rows, most_tiles) = match plan {
        Some(plan) => (plan.shape.tile(), plan.shape.max_tiles()),
        None => (job.x.rows, 1),
    };
    let (outputs, columns, factors) = (job.w.rows, job.w.cols, job.factors());
    let wanted = Product { format, rows, end: job.end, columns };
    let tile = tile(device, job, &wanted)?;
    let parts = rows.div_ceil(tile.tokens as usize);
    let row_blocks = (job.out.cols as usize).div_ceil(tile.rows() / factors);
    let pieces = most_tiles.saturating_mul(parts).saturating_mul(row_blocks);
    let blocks = pieces.min((device.machine().processors * tile.blocks) as usize) as u32;
    let shares = match plan {
        None if factors == 1 => tune::shares(&device.machine(), &tile, pieces, columns),
        _ => 1,
    };
    let end = if shares > 1 { End::Store } else { job.end };
    let share = columns / shares;
    let address = |t: Option<&Tensor>| device.optional(t).map(|view| view.first);
    let (x_stride, out_stride) = strides(device, job)?;
    let sums = match shares {
        1 => None,
        _ => Some(state.workspace.parts.at_least(&device.driver, shares * job.x.rows * outputs * 4)?),
    };
    let args = GemmArgs {
        x: input.address,
        exponents: input.exponents,
        w0: device.weight(job.w)?,
        w1: job.up.map_or(Ok(0), |up| device.weight(up))?,
        out: sums.unwrap_or(job.out.first),
        half: half.map_or(0, |half| half.address),
        beyond: half.map_or(0, |half| half.scaled),
        scaled: input.scaled,
        exceeded: exceeded.unwrap_or_default(),
        bias: address(job.bias)?,
        stok: address(plan.map(|plan| &plan.stok))?,
        tiles: address(plan.map(|plan| &plan.tiles))?,
        meta: address(plan.map(|plan| &plan.meta))?,
        normed: job.normed.unwrap_or_default(),
        expert_bytes: job.w.expert_bytes as u64,
        row_bytes: job.w.row_bytes as u64,
        x_stride,
        out_stride: if sums.is_some() { outputs as u32 } else { out_stride },
        half_stride: outputs as u32,
        k: share as u32,
        n: outputs as u32,
        tokens: job.x.rows as u32,
        parts: if plan.is_some() { parts as u32 } else { 1 },
        row_blocks: row_blocks as u32,
        scale: job.scale,
    };
    let mut source = Source::gemm(format, align, &tile, map(job.rows), end);
    source.defines.extend(half.map(|half| ("GEMM_HALF_OUT", half.order)));
    source.defines.extend(job.streams());
    source.defines.push(("GEMM_TAIL", u32::from(!share.is_multiple_of(tile.chunk as usize))));
    source.defines.extend(if sums.is_some() { Some(("GEMM_SPLIT", 1)) } else { job.bias.map(|_| ("GEMM_BIAS", 1)) });
    let kernel = device.kernel(state, source, "gemm")?;
    let shared = tile.shared_bytes(format, share, end) as u32;
    let launch = Launch { grid: [blocks, shares as u32, 1], block: tile.threads(), shared };
    // SAFETY: `GemmArgs` of gemm.cu; weights, output and plan are inside their buffers (`Op::check`, `weight`), the
    // kernel reads at most 31 bytes behind a row, which every allocation has behind it.
    unsafe { device.driver.launch(kernel, launch, &args) }?;
    if let Some(sums) = sums {
        add_parts(device, state, job, sums, shares, args.exceeded[0])?;
    }
    Ok(args.beyond)
}

/// `SumArgs` of act.cu.
#[repr(C)]
struct SumArgs {
    out: View,
    sums: u64,
    bias: u64,
    exceeded: u64,
    parts: u32,
    end: u32,
    scale: f32,
}

/// Adds up the sums of the shares of a product's columns.
fn add_parts(device: &CudaDevice, state: &mut State, job: &Job, sums: u64, parts: usize, exceeded: u64) -> Result {
    let bias = device.optional(job.bias)?.first;
    let args =
        SumArgs { out: job.out, sums, bias, exceeded, parts: parts as u32, end: job.end as u32, scale: job.scale };
    let launch = Launch { grid: [job.out.rows, job.out.cols.div_ceil(1024), 1], block: 256, shared: 0 };
    // SAFETY: `SumArgs` of act.cu; the sums are as many as parts, rows and columns say.
    unsafe { device.launch(state, ("act.cu", "add_parts"), launch, &args) }
}

/// Pieces of 8 columns from row to row of the input in f16, and elements from row to row of the output. The kernel counts
/// pieces and bytes of a few rows in 32 bits.
fn strides(device: &CudaDevice, job: &Job) -> Result<(u32, u32)> {
    let pieces = job.x.cols / 8;
    let all = job.x.rows.checked_mul(pieces).and_then(|n| u32::try_from(n).ok());
    let stride = u32::try_from(job.out.row_stride).ok();
    match (all, stride) {
        (Some(_), Some(stride)) => Ok((pieces as u32, stride)),
        _ => Err(device.driver.failed(format!("a product of {} rows of {}", job.x.rows, job.x.cols))),
    }
}

/// The tile that was asked for, or else the chosen one.
fn tile(device: &CudaDevice, job: &Job, product: &Product) -> Result<Tile> {
    let forced =
        if matches!(job.rows, RowMap::Segments(_)) { device.options.forced.down } else { device.options.forced.first };
    let forced = forced.filter(|(format, _)| *format == product.format && product.end != End::GateMean);
    let Some((_, tile)) = forced else {
        return Ok((device.options.tile)(&device.driver.machine, product));
    };
    let impossible = |error: ImpossibleTile| device.driver.failed(error.to_string());
    tile.possible(&device.driver.machine, product.format).map_err(impossible).map(|()| tile)
}

/// Rows in f16 in the device's own memory.
#[derive(Clone, Copy)]
struct Half {
    address: u64,
    /// Of each row.
    exponents: u64,
    /// Where there is 0 if no row is scaled; 0 if it is not known.
    scaled: u64,
    order: u32,
}

/// The input in f16, in the format's order of columns, and its rows' exponents. Products that follow each other often
/// share their input: it is converted once, until something writes to it. The rows of a SwiGLU are in f16 already, if
/// the product that made them knew the order; what exceeded the range is then converted again, with exponents.
fn activations(device: &CudaDevice, state: &mut State, job: &Job) -> Result<Half> {
    let order = order(job.w.format);
    if let RowMap::Segments(_) = job.rows {
        state.workspace.hidden_order = Some(order);
    }
    let (bytes, rows) = (job.x.rows * job.x.cols * 2, job.x.rows * 4);
    let made = |held: &Hidden, plan: &PlanBuffers| {
        held.order == order && same(&held.rows, job.x) && same(&held.stok, &plan.stok)
    };
    if let (RowMap::Segments(plan), Some(held)) = (job.rows, &state.workspace.hidden_of)
        && made(held, plan)
    {
        let exponents = state.workspace.hidden_exponents.at_least(&device.driver, rows)?;
        let address = state.workspace.hidden.at_least(&device.driver, bytes)?;
        let scaled = state.workspace.hidden_beyond.at_least(&device.driver, 4)?;
        let half = Half { address, exponents, scaled, order };
        convert(device, state, job, half)?;
        return Ok(half);
    }
    let address = state.workspace.half.at_least(&device.driver, bytes)?;
    let exponents = state.workspace.exponents.at_least(&device.driver, rows)?;
    let half = Half { address, exponents, scaled: 0, order };
    if state.workspace.activations.as_ref().is_none_or(|(t, o)| *o != order || !same(t, job.x)) {
        state.workspace.activations = None;
        convert(device, state, job, half)?;
        // Of a plan's rows only those that it has are converted: another plan may have more.
        state.workspace.activations =
            matches!(job.rows, RowMap::Identity | RowMap::Gather(_)).then(|| (job.x.clone(), order));
    }
    Ok(half)
}

/// `ActArgs` of act.cu.
#[repr(C)]
struct ActArgs {
    x: View,
    out: u64,
    exponents: u64,
    rows: u64,
    needed: u64,
    stride: u64,
    order: u32,
}

/// f32 to f16; where `half.scaled` says that nothing exceeded the range, what is there stays.
fn convert(device: &CudaDevice, state: &mut State, job: &Job, half: Half) -> Result {
    let x = device.input(job.x)?;
    let rows = match job.rows {
        RowMap::Segments(plan) => device.input(&plan.meta)?.first + 4 * argon_plan::meta::ROWS as u64,
        _ => 0,
    };
    let Half { address: out, exponents, scaled: needed, order } = half;
    let args = ActArgs { x, out, exponents, rows, needed, stride: u64::from(x.cols), order };
    let launch = Launch { grid: [x.rows.min(8 * device.machine().processors), 1, 1], block: 256, shared: 0 };
    // SAFETY: `ActArgs` of act.cu; the input is inside its buffer, both outputs are as long as its rows need.
    unsafe { device.launch(state, ("act.cu", "act_f16"), launch, &args) }
}

/// Where a SwiGLU also writes its rows in f16, once a product has shown in which order it wants them.
fn half_output(device: &CudaDevice, state: &mut State, job: &Job) -> Result<Option<Half>> {
    let (End::SwiGlu, RowMap::Gather(plan), Some(order)) = (job.end, job.rows, state.workspace.hidden_order) else {
        return Ok(None);
    };
    let (rows, cols) = (job.out.rows as usize, job.out.cols as usize);
    if cols % 32 != 0 {
        return Ok(None);
    }
    let address = state.workspace.hidden.at_least(&device.driver, rows * cols * 2)?;
    let scaled = state.workspace.hidden_beyond.at_least(&device.driver, 4)?;
    // SAFETY: the count is this long.
    unsafe { device.driver.zero(scaled, 4) }?;
    state.workspace.hidden_of = Some(Hidden { rows: job.tensor.clone(), stok: plan.stok.clone(), order });
    Ok(Some(Half { address, exponents: 0, scaled, order }))
}

/// Whether two views have the same elements.
fn same(a: &Tensor, b: &Tensor) -> bool {
    let shape = |t: &Tensor| [t.offset, t.rows, t.groups, t.cols, t.row_stride];
    a.buffer.same(&b.buffer) && a.dtype == b.dtype && shape(a) == shape(b)
}

/// `ProductArgs` of product.cu.
#[repr(C)]
struct ProductArgs {
    x: View,
    out: View,
    normed: View,
    w0: u64,
    w1: u64,
    bias: u64,
    stok: u64,
    tiles: u64,
    meta: u64,
    exceeded: [u64; 2],
    beyond: u64,
    expert_bytes: u64,
    row_bytes: u64,
    k: u32,
    n: u32,
    tokens: u32,
    parts: u32,
    scale: f32,
}

fn plain(device: &CudaDevice, state: &mut State, job: &Job, instead: Option<Instead>) -> Result {
    let Instead { exceeded, beyond } = instead.unwrap_or(Instead { exceeded: [0; 2], beyond: 0 });
    let plan = plan(job.rows);
    let (rows, tiles) = match plan {
        Some(plan) => (plan.shape.tile(), plan.shape.max_tiles()),
        None => (job.x.rows, 1),
    };
    let parts = rows.div_ceil(PLAIN_TILE);
    let address = |t: Option<&Tensor>| device.optional(t).map(|view| view.first);
    let args = ProductArgs {
        x: device.input(job.x)?,
        out: job.out,
        normed: job.normed.unwrap_or_default(),
        w0: device.weight(job.w)?,
        w1: job.up.map_or(Ok(0), |up| device.weight(up))?,
        bias: address(job.bias)?,
        stok: address(plan.map(|plan| &plan.stok))?,
        tiles: address(plan.map(|plan| &plan.tiles))?,
        meta: address(plan.map(|plan| &plan.meta))?,
        exceeded,
        beyond,
        expert_bytes: job.w.expert_bytes as u64,
        row_bytes: job.w.row_bytes as u64,
        k: job.w.cols as u32,
        n: job.w.rows as u32,
        tokens: job.x.rows as u32,
        parts: if plan.is_some() { parts as u32 } else { 1 },
        scale: job.scale,
    };
    let mut source = Source::product(job.w.format, alignment(device, job)?, map(job.rows), job.end);
    source.defines.extend(job.streams());
    let kernel = device.kernel(state, source, "product")?;
    let blocks = tiles.checked_mul(parts).and_then(|n| u32::try_from(n).ok());
    let blocks = blocks.ok_or_else(|| device.driver.failed("a product of too many tiles"))?;
    let outputs = job.w.rows.div_ceil(PLAIN_TILE) as u32;
    // SAFETY: `ProductArgs` of product.cu; views, weights and plan are inside their buffers (`Op::check`, `weight`).
    unsafe { device.driver.launch(kernel, Launch { grid: [blocks, outputs, 1], block: 256, shared: 0 }, &args) }
}

/// Whether a product in f32 has so few outputs or rows that tiles of it would be mostly empty, and few; its rows are taken 16 bytes
/// at a time.
fn is_narrow(device: &CudaDevice, job: &Job) -> Result<bool> {
    let x = device.input(job.x)?;
    let whole = x.first % 16 == 0 && x.row_stride % 4 == 0 && x.cols % 4 == 0;
    let few = job.w.rows <= PLAIN_TILE || job.x.rows <= PLAIN_TILE / 2;
    Ok(matches!(job.rows, RowMap::Identity) && job.factors() == 1 && few && whole)
}

/// `NarrowArgs` of narrow.cu.
#[repr(C)]
struct NarrowArgs {
    x: View,
    out: View,
    w: u64,
    bias: u64,
    row_bytes: u64,
    k: u32,
    n: u32,
    scale: f32,
}

fn narrow(device: &CudaDevice, state: &mut State, job: &Job, align: u64) -> Result {
    let args = NarrowArgs {
        x: device.input(job.x)?,
        out: job.out,
        w: device.weight(job.w)?,
        bias: device.optional(job.bias)?.first,
        row_bytes: job.w.row_bytes as u64,
        k: job.w.cols as u32,
        n: job.w.rows as u32,
        scale: job.scale,
    };
    // Of a block of threads.
    let (outputs, rows) = match args.n {
        1 => (1, 8),
        2..=4 => (4, 8),
        _ => (8, 4),
    };
    let kernel = device.kernel(state, Source::narrow(job.w.format, align, [outputs, rows], job.end), "narrow")?;
    let launch = Launch { grid: [args.x.rows.div_ceil(rows), args.n.div_ceil(outputs), 1], block: 256, shared: 0 };
    // SAFETY: `NarrowArgs` of narrow.cu; views and weights are inside their buffers (`Op::check`, `weight`).
    unsafe { device.driver.launch(kernel, launch, &args) }
}

//! Launches of the gated delta rule: by chunks of tokens, or token after token.

use super::device::{CudaDevice, State};
use super::driver::Launch;
use super::memory::View;
use super::source::Source;
use crate::device::DeviceError;
use crate::op::{DeltaNet, HeadMap};
use crate::tensor::Tensor;

/// Columns of a head that one block of threads of delta_net.cu keeps, and that are marked together in delta_chunks.cu.
const COLUMNS: usize = 16;

/// Columns of a head that one block of threads of delta_chunks.cu keeps.
const CHUNK_COLUMNS: usize = 32;

/// Tokens in a chunk.
const CHUNK: usize = 32;

/// Rows of a head's state that delta_chunks.cu has registers for.
const WIDEST: usize = 128;

/// Tokens from which chunks are faster: two chunks, while one is still worth its launches token by token.
const CHUNKED_FROM: usize = 64;

/// Tokens that are prepared at once: a long prompt needs no more memory than this.
const SPAN: usize = 2048;

/// What the kernels are told of these launches (host.cuh).
pub(super) const HOST: &[(&str, usize)] = &[
    ("DELTA_RULE", size_of::<DeltaRule>()),
    ("DELTA_ARGS", size_of::<DeltaArgs>()),
    ("CHUNK_ARGS", size_of::<ChunkArgs>()),
    ("DELTA_COLUMNS", COLUMNS),
    ("CHUNK_COLUMNS", CHUNK_COLUMNS),
    ("CHUNK_TOKENS", CHUNK),
    ("CHUNK_WIDEST", WIDEST),
];

/// `DeltaRule` of delta.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeltaRule {
    q: View,
    k: View,
    v: View,
    alpha: View,
    beta: View,
    a: View,
    dt_bias: View,
    state: View,
    out: View,
    grouped: u32,
    eps: f32,
}

/// `DeltaArgs` of delta_net.cu.
#[repr(C)]
struct DeltaArgs {
    rule: DeltaRule,
    factors: u64,
    spoilt: u64,
}

/// `ChunkArgs` of delta_chunks.cu.
#[repr(C)]
struct ChunkArgs {
    rule: DeltaRule,
    units: u64,
    mixing: u64,
    factors: u64,
    spoilt: u64,
    vectors: u32,
}

pub(super) fn delta_net(device: &CudaDevice, state: &mut State, o: &DeltaNet) -> Result<(), DeviceError> {
    let (tokens, depth, width) = (o.v.rows, o.k.cols, o.v.cols);
    if tokens == 0 || depth == 0 || width == 0 {
        return Ok(());
    }
    let memory = Memory::new(o, tokens.min(SPAN));
    let scratch = state.workspace.between.at_least(&device.driver, memory.bytes)?;
    let shared = device.machine().shared as usize;
    let fits = |&stages: &usize| depth <= WIDEST && shared_bytes(depth, stages) <= shared;
    let stages = [2, 1].into_iter().find(fits);
    let v = device.input(&o.v)?;
    let vectors =
        v.first % 16 == 0 && [v.row_stride, v.group_stride].iter().all(|stride| stride % 4 == 0) && width % 4 == 0;
    for first in (0..tokens).step_by(SPAN) {
        let count = SPAN.min(tokens - first);
        let rows = |t: &Tensor| t.rows(first..first + count);
        let span = |t| device.input(&rows(t));
        let rule = DeltaRule {
            q: span(&o.q)?,
            k: span(&o.k)?,
            v: span(&o.v)?,
            alpha: span(&o.alpha)?,
            beta: span(&o.beta)?,
            a: device.input(&o.a)?,
            dt_bias: device.input(&o.dt_bias)?,
            state: device.output(&o.state)?,
            out: device.output(&rows(&o.out))?,
            grouped: u32::from(o.heads == HeadMap::Grouped),
            eps: o.eps,
        };
        let stages = stages.filter(|_| count >= CHUNKED_FROM);
        if let Some(stages) = stages {
            let args = ChunkArgs {
                rule,
                units: scratch + memory.units,
                mixing: scratch + memory.mixing,
                factors: scratch + memory.factors,
                spoilt: scratch + memory.spoilt,
                vectors: u32::from(vectors),
            };
            chunks(device, state, &args, stages)?;
        }
        // All of it, or what chunks have marked.
        let spoilt = if stages.is_some() { scratch + memory.spoilt } else { 0 };
        by_token(device, state, &DeltaArgs { rule, factors: scratch + memory.norms, spoilt })?;
    }
    Ok(())
}

/// Where in the memory between the kernels what is, for some tokens; whole pieces of 16 bytes.
struct Memory {
    units: u64,
    mixing: u64,
    factors: u64,
    spoilt: u64,
    norms: u64,
    bytes: usize,
}

impl Memory {
    fn new(o: &DeltaNet, tokens: usize) -> Self {
        let (chunks, key_heads, heads) = (tokens.div_ceil(CHUNK), o.k.groups, o.v.groups);
        let mut bytes = 0;
        let mut next = |size: usize| {
            let at = bytes as u64;
            bytes += size.next_multiple_of(16);
            at
        };
        Self {
            units: next(chunks * key_heads * 2 * CHUNK * units_pitch(o.k.cols) * 2),
            mixing: next(chunks * heads * 2 * CHUNK * 2 * CHUNK * 2),
            factors: next(chunks * heads * 3 * CHUNK * 4),
            spoilt: next((1 + heads * o.v.cols.div_ceil(COLUMNS)) * 4),
            norms: next(tokens * key_heads * 8),
            bytes,
        }
    }
}

/// From row to row of normalised queries and keys, as delta_chunks.cu has them.
fn units_pitch(depth: usize) -> usize {
    2 * depth.next_multiple_of(16) + 8
}

/// Bytes of shared memory that `delta_chunks` asks for.
pub(super) fn shared_bytes(depth: usize, stages: usize) -> usize {
    let rows = 2 * CHUNK * 2 * (units_pitch(depth) + 2 * CHUNK);
    let stage = rows + CHUNK * (CHUNK_COLUMNS + 4) * 4 + 3 * CHUNK * 4;
    let operand = |pieces: usize| pieces * 2 * 32 * 16 + 16 * 4;
    stages * stage + 2 * operand(depth.div_ceil(16)) + 2 * operand(CHUNK / 16) + 16
}

fn chunks(device: &CudaDevice, state: &mut State, args: &ChunkArgs, stages: usize) -> Result<(), DeviceError> {
    let DeltaRule { k, v, .. } = args.rule;
    let (depth, width) = (k.cols as usize, v.cols as usize);
    let (source, shared) = (Source::delta_chunks([depth, width], stages), shared_bytes(depth, stages) as u32);
    let prepare = device.kernel(state, source.clone(), "delta_prepare")?;
    let rule = device.kernel(state, source, "delta_chunks")?;
    let chunks = v.rows.div_ceil(CHUNK as u32);
    // SAFETY: `ChunkArgs` of delta_chunks.cu; views are inside their buffers and `Op::check` has compared their shapes; the
    // memory between is as long as `Memory` says.
    unsafe {
        device.driver.launch(prepare, Launch { grid: [chunks, k.groups, 1], block: 128, shared: 0 }, args)?;
        let grid = [v.cols.div_ceil(CHUNK_COLUMNS as u32), v.groups, 1];
        device.driver.launch(rule, Launch { grid, block: 128, shared }, args)
    }
}

/// Token after token.
fn by_token(device: &CudaDevice, state: &mut State, args: &DeltaArgs) -> Result<(), DeviceError> {
    let DeltaRule { k, v, .. } = args.rule;
    let source = Source::delta_net([k.cols as usize, v.cols as usize]);
    let norms = device.kernel(state, source.clone(), "delta_norms")?;
    let rule = device.kernel(state, source, "delta_net")?;
    // SAFETY: `DeltaArgs` of delta_net.cu; views are inside their buffers and `Op::check` has compared their shapes; the
    // factors are two numbers for each token and key head.
    unsafe {
        let grid = [(k.rows * k.groups).div_ceil(8), 1, 1];
        device.driver.launch(norms, Launch { grid, block: 256, shared: 0 }, args)?;
        let grid = [v.cols.div_ceil(COLUMNS as u32), v.groups, 1];
        device.driver.launch(rule, Launch { grid, block: 128, shared: 0 }, args)
    }
}

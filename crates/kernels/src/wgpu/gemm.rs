//! Products: which tile, which buffers of the weights, and how many columns in one submit.

use super::device::{State, WgpuDevice};
use super::elementwise;
use super::memory::Window;
use super::shader::{File, Kernel, has_half};
use super::tier::Products;
use super::tune::{self, Tile, height};
use crate::device::DeviceError;
use crate::op::{Epilogue, Gemm, PlanBuffers, Precision, RowMap};
use crate::tensor::{DType, Tensor, Weight};

pub(super) fn gemm(device: &WgpuDevice, state: &mut State, o: &Gemm) -> Result<(), DeviceError> {
    let core = device.core();
    if !matches!(o.precision, Precision::F32 | Precision::F16) {
        return Err(core.unsupported(format!("products in {}", o.precision.name())));
    }
    if o.out.is_empty() || o.w.rows == 0 {
        return Ok(());
    }
    match &o.epilogue {
        Epilogue::Store => product(device, state, o, &[&o.w], &o.out, 0, 0.0),
        Epilogue::Accumulate => product(device, state, o, &[&o.w], &o.out, 1, 0.0),
        Epilogue::Silu { scale } => product(device, state, o, &[&o.w], &o.out, 2, *scale),
        Epilogue::SwiGlu { up } => swiglu(device, state, o, up),
        Epilogue::GateMean { normed } => {
            let p = scratch(device, state, o.x.rows, o.w.rows)?;
            product(device, state, o, &[&o.w], &p, 0, 0.0)?;
            elementwise::gate_mean(device, state, [&p, normed, &o.out])
        }
    }
}

/// f32 `[rows, 1, cols]` for what a second kernel finishes.
fn scratch(device: &WgpuDevice, state: &mut State, rows: usize, cols: usize) -> Result<Tensor, DeviceError> {
    let bytes = rows.checked_mul(cols).and_then(|n| n.checked_mul(4)).unwrap_or(usize::MAX);
    Ok(Tensor::dense(state.scratch(device.core(), 0, bytes)?, DType::F32, rows, 1, cols))
}

fn plan_of(o: &Gemm) -> Option<&PlanBuffers> {
    match &o.rows {
        RowMap::Identity => None,
        RowMap::Gather(plan) | RowMap::Segments(plan) => Some(plan),
    }
}

/// Gate and up in one kernel where it can read both: one format, each in one buffer. Otherwise one after the other.
fn swiglu(device: &WgpuDevice, state: &mut State, o: &Gemm, up: &Weight) -> Result<(), DeviceError> {
    let core = device.core();
    let one_buffer = |w: &Weight| Ok::<_, DeviceError>(core.parts(w)?.len() == 1);
    if o.bias.is_none() && up.format == o.w.format && one_buffer(&o.w)? && one_buffer(up)? {
        return product(device, state, o, &[&o.w, up], &o.out, 0, 0.0);
    }
    let second = scratch(device, state, o.out.rows, up.rows)?;
    product(device, state, o, &[&o.w], &o.out, 0, 0.0)?;
    let unbiased = Gemm { bias: None, ..o.clone() };
    product(device, state, &unbiased, &[up], &second, 0, 0.0)?;
    let plan = plan_of(o);
    let call = device.call(Kernel::plain(File::Swiglu, "swiglu")).output(&o.out)?.input(&second)?;
    let call = call.optional(plan.map(|plan| &plan.stok))?.optional(plan.map(|plan| &plan.meta))?;
    call.parameters(&[("routed", plan.is_some().into())]).groups(state, o.out.rows)
}

/// The input rounded to f16, rows of so many columns, and the exponent of each row. By matrices they lie in fragments and in
/// the order of the product's tiles, otherwise as they are.
fn activations(
    device: &WgpuDevice,
    state: &mut State,
    o: &Gemm,
    tile: &Tile,
    columns: usize,
) -> Result<(Window, Window), DeviceError> {
    let core = device.core();
    let (height, fragment) = tile.matrices().map_or((1, 1), |matrices| (tile.rows as usize, matrices.matrix.size));
    let gather = tile.matrices().is_some() && matches!(o.rows, RowMap::Gather(_));
    let plan = plan_of(o).filter(|_| gather || matches!(o.rows, RowMap::Segments(_)));
    // Rows that lie together, and how often.
    let (together, tiles) =
        plan.map_or((height, o.x.rows.div_ceil(height)), |plan| (plan.shape.tile(), plan.shape.max_tiles()));
    let padded = together.next_multiple_of(height);
    let rows = plan.map_or(o.x.rows, |plan| plan.shape.max_rows());
    let half_rows = tiles.saturating_mul(padded);
    let half = core.all_of(&state.scratch(core, 1, half_rows.saturating_mul(2 * columns))?)?;
    let exponents = core.all_of(&state.scratch(core, 2, half_rows.saturating_mul(4))?)?;
    let call = device.call(Kernel::plain(File::Act, "act_f16")).input(&o.x)?;
    let call = call.optional(plan.map(|plan| &plan.stok))?.optional(plan.map(|plan| &plan.meta))?;
    let laid_out = [
        ("columns", core.word("a number of columns", columns)?),
        ("routed", plan.is_some().into()),
        ("gather", gather.into()),
        ("tile_rows", core.word("a tile", together)?),
        ("padded_rows", core.word("a tile", padded)?),
        ("fragment", fragment),
    ];
    call.buffer(&half).buffer(&exponents).parameters(&laid_out).groups(state, rows)?;
    Ok((half, exponents))
}

/// Rows that a subgroup sums at a time, where the product has few rows and the adapter has subgroups. Input is read four columns
/// at a time.
fn few(device: &WgpuDevice, o: &Gemm) -> Option<u32> {
    let by_four = |n: usize| n.is_multiple_of(4);
    let whole = by_four(o.x.offset) && by_four(o.x.cols) && (o.x.rows <= 1 || by_four(o.x.row_stride));
    device.tier().subgroups.filter(|_| whole)?;
    match plan_of(o) {
        None => tune::few(o.x.rows, o.x.rows, 1),
        Some(plan) => tune::few(plan.shape.tokens(), plan.shape.entries(), plan.shape.experts()),
    }
}

/// One product, or gate and up together: over the parts of the weight, and over as many columns as a submit may hold.
fn product(
    device: &WgpuDevice,
    state: &mut State,
    o: &Gemm,
    weights: &[&Weight],
    out: &Tensor,
    epilogue: u32,
    scale: f32,
) -> Result<(), DeviceError> {
    let (core, plan) = (device.core(), plan_of(o));
    let rows = plan.map_or(o.x.rows, |plan| plan.shape.tile());
    let format = weights[0].format;
    let products = match o.precision {
        Precision::F16 if has_half(format) => device.tier().products,
        _ => Products::F32Tiles,
    };
    let swiglu = weights.len() == 2;
    let tile = match few(device, o) {
        Some(rows) => Tile::few(rows, swiglu),
        None => Tile::new(products, format, height(rows) as u32, swiglu),
    };
    // Whole steps.
    let columns = tile.half_depth().map(|depth| o.x.cols.next_multiple_of(depth as usize));
    let half = columns.map(|columns| activations(device, state, o, &tile, columns)).transpose()?;
    let (tiles, parts_of_tile) = match plan {
        None => (o.x.rows.div_ceil(tile.rows as usize), 0),
        Some(plan) => {
            let parts = rows.div_ceil(tile.rows as usize);
            (plan.shape.max_tiles() * parts, parts)
        }
    };
    let n = weights[0].rows;
    let blocks = n.div_ceil(tile.columns() as usize);
    // Rows of the plan that are not there cost nothing.
    let most_rows =
        plan.map_or(o.x.rows, |plan| plan.shape.entries().max(plan.shape.max_tiles().min(plan.shape.experts())));
    let block_work = (most_rows * o.x.cols * tile.slots as usize) as u64;
    let at_once = ((core.options.work_per_submit / block_work.max(1)) as usize).clamp(1, blocks);
    let up = core.parts(weights[weights.len() - 1])?;
    for part in &core.parts(weights[0])? {
        let up = if tile.swiglu { &up[0] } else { part };
        for first in (0..blocks).step_by(at_once) {
            let here = at_once.min(blocks - first);
            let parameters = [
                ("m", core.word("a number of rows", o.x.rows)?),
                ("k", core.word("a number of columns", o.x.cols)?),
                ("n", core.word("a number of columns", n)?),
                ("parts", core.word("parts of a tile", parts_of_tile)?),
                ("first_block", first as u32),
                ("column_blocks", here as u32),
                ("epilogue", epilogue),
                ("scale", scale.to_bits()),
                ("gather", matches!(o.rows, RowMap::Gather(_)).into()),
                ("has_bias", o.bias.is_some().into()),
                ("half_columns", columns.unwrap_or(0) as u32),
            ];
            let call = device.call(Kernel::gemm(format, tile));
            let call = match &half {
                Some((half, _)) => call.unviewed(half),
                None => call.input(&o.x)?,
            };
            let call = call.weights(part, up, tile.matrices().is_none());
            let call = call.optional(plan.map(|plan| &plan.stok))?.optional(plan.map(|plan| &plan.tiles))?;
            let call = call.optional(plan.map(|plan| &plan.meta))?.optional(o.bias.as_ref())?.output(out)?;
            let call = match &half {
                Some((_, exponents)) => call.buffer(exponents),
                None => call,
            };
            call.parameters(&parameters).work(block_work * here as u64).groups(state, tiles * here)?;
        }
    }
    Ok(())
}

//! Every op in float64, one obvious loop each: what all backends are held to.
//!
//! The functions work on plain [`Array`]s and follow the formulas of [`op`](crate::op) word by word. [`ReferenceDevice`]
//! runs them on tensors, so that a test, or a whole model, runs on it as on any device: operands are read as float64,
//! results are rounded once, to the type of the tensor that they go to. A product's weights are decoded exactly and its
//! [`Precision`] is ignored: this is the answer that each precision is measured against.
//!
//! Nothing here is shared with another backend.

mod array;
mod attention;
mod combine;
mod conv;
mod copy;
mod delta_net;
mod embed;
mod gather;
mod gemm;
mod hyper;
mod memory;
mod norm;
mod ple;
mod rope;
mod route;
mod select_blocks;

use std::sync::{Mutex, MutexGuard, PoisonError};

use argon_gguf::Bytes;

use crate::device::{Clock, Device, DeviceError, DeviceInfo, host_elapsed};
use crate::op::{Epilogue, Gather, Gemm, Op, Plan, Precision, RowMap};
use crate::tensor::{Buffer, Tensor, Weight};
use memory::{Memory, read, read_ints, read_words, weight_row, write, write_ints};

pub use array::Array;
pub use attention::{attention, visible};
pub use combine::combine;
pub use conv::conv;
pub use copy::{add, copy};
pub use delta_net::{DeltaNetInput, delta_net};
pub use embed::embed;
pub use gather::{gather, range_exponent};
pub use gemm::{Row, gate_mean, identity, product, routed, sigmoid, silu, swiglu};
pub use hyper::hyper_write;
pub use norm::{gated_norm, rms_norm};
pub use ple::ple_gate;
pub use rope::rope;
pub use route::route;
pub use select_blocks::{mean_pool, select_blocks};

/// The device's id.
const ID: &str = "reference";

/// The device that is right and slow.
#[derive(Debug, Default)]
pub struct ReferenceDevice {
    /// Held while an op runs, so that ops run one after the other.
    lock: Mutex<()>,
}

impl ReferenceDevice {
    fn exclusive(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for ReferenceDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            id: ID.into(),
            name: "float64 loops".into(),
            details: String::new(),
            memory: u64::MAX,
            largest_tensor: u64::MAX,
            precisions: vec![Precision::F32],
        }
    }

    fn tile_rows(&self, _entries: usize, _experts: usize) -> usize {
        8
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        let memory = Memory::zeroed(bytes).ok_or_else(|| DeviceError::OutOfMemory { device: ID.into(), bytes })?;
        Ok(Buffer::new(memory))
    }

    fn constant(&self, bytes: Bytes) -> Result<Buffer, DeviceError> {
        Ok(Buffer::new(Memory::Constant(bytes)))
    }

    fn reads_in_place(&self) -> bool {
        false // its weights are looked at while they are loaded, as on devices that copy
    }

    fn prepare(&self, _: &Weight) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
        let _lock = self.exclusive();
        memory::write_bytes(dst, bytes)
    }

    fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let _lock = self.exclusive();
        let found = memory::read_bytes(src)?;
        if found.len() != bytes.len() {
            return Err(DeviceError::Shape { op: "read", what: format!("{} bytes for {}", bytes.len(), found.len()) });
        }
        bytes.copy_from_slice(&found);
        Ok(())
    }

    fn bytes_to_host(&self) -> u64 {
        0
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        op.check()?;
        let _lock = self.exclusive();
        run(op)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        drop(self.exclusive());
        Ok(())
    }

    fn clock(&self) -> Clock {
        Clock::Host
    }

    fn elapsed(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        host_elapsed(self, work)
    }
}

/// Reads the operands of an op, calls its function, writes the result.
fn run(op: &Op) -> Result<(), DeviceError> {
    match op {
        Op::Fill(o) => {
            let shape = [o.dst.rows, o.dst.groups, o.dst.cols];
            write(&o.dst, &Array::from_fn(shape, |_, _, _| o.value.into()))
        }
        Op::Copy(o) => write(&o.dst, &copy(&read(&o.src)?, o.dst.groups)),
        Op::Add(o) => write(&o.dst, &add(&read(&o.dst)?, &read(&o.src)?)),
        Op::Embed(o) => {
            let table = |row| weight_row(&o.table, 0, row);
            write(&o.out, &embed(o.table.rows, o.table.cols, table, &read_ints(&o.ids)?)?)
        }
        Op::RmsNorm(o) => write(&o.out, &rms_norm(&read(&o.x)?, &read(&o.weight)?, o.eps.into())),
        Op::GatedNorm(o) => {
            let (x, gate, weight) = (read(&o.x)?, read(&o.gate)?, read(&o.weight)?);
            write(&o.out, &gated_norm(&x, &gate, &weight, o.eps.into(), o.activation))
        }
        Op::Rope(o) => {
            let freqs: Vec<f32> = read(&o.freqs)?.data.iter().map(|&freq| freq as f32).collect();
            write(&o.x, &rope(&read(&o.x)?, &freqs, o.pairs, o.pos0, o.step))
        }
        Op::Gemm(o) => run_gemm(o),
        Op::Attention(o) => {
            let gate = o.gate.as_ref().map(read).transpose()?;
            let blocks = o.select.as_ref().map(|select| read_ints(&select.blocks)).transpose()?;
            let select = blocks.as_ref().zip(o.select.as_ref().map(|select| select.ratio));
            let (q, k, v) = (read(&o.q)?, read(&o.k)?, read(&o.v)?);
            write(&o.out, &attention(&q, &k, &v, gate.as_ref(), select, o.pos0, o.scale.into()))
        }
        Op::MeanPool(o) => write(&o.out, &mean_pool(&read(&o.x)?, o.ratio, o.out.rows)),
        Op::SelectBlocks(o) => {
            let chosen = select_blocks(&read(&o.q)?, &read(&o.keys)?, o.pos0, o.ratio, o.out.cols);
            write_ints(&o.out, &chosen.data)
        }
        Op::Conv(o) => {
            let (out, state) = conv(&read(&o.x)?, &read(&o.weight)?, o.dilation, &read(&o.state)?);
            write(&o.state, &state)?;
            write(&o.out, &if o.accumulate { add(&read(&o.out)?, &out) } else { out })
        }
        Op::DeltaNet(o) => {
            let input = DeltaNetInput {
                q: &read(&o.q)?,
                k: &read(&o.k)?,
                v: &read(&o.v)?,
                alpha: &read(&o.alpha)?,
                beta: &read(&o.beta)?,
                a: &read(&o.a)?,
                dt_bias: &read(&o.dt_bias)?,
                heads: o.heads,
                eps: o.eps.into(),
            };
            let (out, state) = delta_net(&input, &read(&o.state)?);
            write(&o.state, &state)?;
            write(&o.out, &out)
        }
        Op::HyperWrite(o) => write(&o.x, &hyper_write(&read(&o.x)?, &read(&o.y)?, &read(&o.inject)?)),
        Op::PleGate(o) => write(&o.out, &ple_gate(&read(&o.key)?, &read(&o.query)?, &read(&o.value)?)),
        Op::Route(o) => {
            let bias = o.bias.as_ref().map(read).transpose()?;
            let (ids, weights) = route(&read(&o.logits)?, bias.as_ref(), &o.config)
                .map_err(|token| DeviceError::NanLogit { layer: o.layer, token })?;
            write_ints(&o.ids, &ids.data)?;
            write(&o.weights, &weights)
        }
        Op::Plan(o) => run_plan(o),
        Op::Gather(o) => run_gather(o),
        Op::Combine(o) => {
            let y = o.shared.as_ref().map(|shared| read(&shared.y)).transpose()?;
            let gate = o.shared.as_ref().and_then(|shared| shared.gate.as_ref()).map(read).transpose()?;
            let shared = y.as_ref().map(|y| (y, gate.as_ref()));
            let sum = combine(&read(&o.rows)?, &read(&o.weights)?, &read_ints(&o.plan.pos)?.data, shared);
            write(&o.out, &if o.accumulate { add(&read(&o.out)?, &sum) } else { sum })
        }
    }
}

fn run_gemm(o: &Gemm) -> Result<(), DeviceError> {
    let rows = match &o.rows {
        RowMap::Identity => identity(o.x.rows),
        RowMap::Gather(p) | RowMap::Segments(p) => {
            let used = read_words(&p.meta)?.data[argon_plan::meta::TILES] as usize;
            let tiles = read_words(&p.tiles.first(used))?;
            let stok = match &o.rows {
                RowMap::Gather(p) => Some(read_ints(&p.stok)?.data),
                _ => None,
            };
            routed(tiles.data.as_chunks().0, stok.as_deref())
        }
    };
    let x = read(&o.x)?;
    let bias = o.bias.as_ref().map(read).transpose()?;
    let p = product(&x, |expert, n| weight_row(&o.w, expert, n), o.w.rows, bias.as_ref(), &rows)?;
    let mut out = read(&o.out)?;
    let value = match &o.epilogue {
        Epilogue::Store => p,
        Epilogue::Accumulate => Array::from_fn(p.shape, |i, _, n| out[[rows[i].output, 0, n]] + p[[i, 0, n]]),
        Epilogue::Silu { scale } => Array::from_fn(p.shape, |i, _, n| silu(p[[i, 0, n]] * f64::from(*scale))),
        Epilogue::SwiGlu { up } => {
            let up = product(&x, |expert, n| weight_row(up, expert, n), up.rows, None, &rows)?;
            swiglu(&p, &up)
        }
        Epilogue::GateMean { normed } => gate_mean(&p, &read(normed)?),
    };
    for (i, row) in rows.iter().enumerate() {
        for n in 0..out.shape[2] {
            out[[row.output, 0, n]] = value[[i, 0, n]];
        }
    }
    write(&o.out, &out)
}

/// Writes the rows that a plan has, and no other.
fn run_gather(o: &Gather) -> Result<(), DeviceError> {
    let rows = read_words(&o.plan.meta)?.data[argon_plan::meta::ROWS] as usize;
    let (out, exponents) = gather(&read(&o.x)?, &read_ints(&o.plan.stok.cols(0..rows))?.data);
    if let Some(to) = &o.exponents {
        write_ints(&to.cols(0..rows), &exponents)?;
    }
    write(&o.out.first(rows), &out)
}

/// Writes the words that a plan defines, and no other.
fn run_plan(o: &Plan) -> Result<(), DeviceError> {
    let p = &o.plan;
    let plan = argon_plan::reference::plan(p.shape, &read_ints(&o.ids)?.data, &read_words(&o.weights)?.data);
    let tiles: Vec<u32> = plan.tiles().flat_map(|tile| tile.to_words()).collect();
    write_ints(&p.bcnt, plan.bcnt())?;
    write_ints(&p.boff, plan.boff())?;
    write_ints(&p.eoff, plan.eoff())?;
    write_ints(&p.tiles.first(plan.tiles().len()), &tiles)?;
    write_ints(&p.stok.cols(0..plan.rows()), plan.stok())?;
    write_ints(&p.sw.cols(0..plan.rows()), plan.sw())?;
    write_ints(&p.pos, plan.pos())?;
    write_ints(&p.meta, plan.meta())
}

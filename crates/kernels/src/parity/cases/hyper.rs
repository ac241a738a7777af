//! The hyper-connection: norm over the streams, the low-rank gate with its two epilogues, the write into every stream; and the
//! n-gram gate.

use argon_gguf::Format;

use super::{F32, List, elementwise};
use crate::op::{Epilogue, Gemm, HyperWrite, PleGate, RowMap};
use crate::parity::{Arena, Bound, Result};
use crate::tensor::DType;

/// S.
const STREAMS: usize = 4;

/// Rank of the gate.
const RANK: usize = 64;

pub(super) fn cases(list: &mut List) {
    let tokens = list.request.tokens.unwrap_or(35);
    for hidden in [1, 33, 320] {
        let shape = [tokens, STREAMS, hidden];
        list.add(format!("gr_norm {shape:?}"), F32, move |a| elementwise::rms_norm(a, shape, STREAMS));
        list.add(format!("hyper_write {shape:?}"), F32, move |a| hyper_write(a, shape));
        // The root of a score near 0 has a steep slope: an error e of it becomes e / (2 sqrt(score)).
        list.add(format!("ple_gate {shape:?}"), Bound::Within { a: 2e-5, b: None }, move |a| ple_gate(a, shape));
    }
    for format in [Format::Q8_0, Format::BF16] {
        list.products(&format!("gr_epi_down, {format}"), move |a| down(a, format, tokens));
        for [streams, hidden] in [[2, 76], [3, 76], [STREAMS, 75], [STREAMS, 76], [8, 20]] {
            let shape = [tokens, streams, hidden];
            list.products(&format!("read {shape:?}, {format}"), move |a| read(a, format, shape));
        }
    }
}

/// The write into streams `[T, S, D]`.
///
/// # Errors
/// Those of the device.
pub fn hyper_write(a: &Arena, [tokens, streams, cols]: [usize; 3]) -> Result {
    let y = a.units(DType::F32, [tokens, 1, cols])?;
    let inject = a.input(DType::F32, [tokens, 1, streams], |_| 20.0 * a.unit())?;
    a.run(HyperWrite { y, inject, x: a.in_out("x", [tokens, streams, cols], |_| a.unit())? })
}

/// The n-gram gate of streams `[T, S, D]`.
///
/// # Errors
/// Those of the device.
pub fn ple_gate(a: &Arena, shape: [usize; 3]) -> Result {
    let (key, query) = (a.units(DType::F32, shape)?, a.units(DType::F32, shape)?);
    let value = a.units(DType::F32, [shape[0], 1, shape[2]])?;
    a.run(PleGate { key, query, value, out: a.output("out", DType::F32, shape)? })
}

/// `silu(p / S)` of the product with the low-rank matrix.
fn down(a: &Arena, format: Format, tokens: usize) -> Result {
    let hidden = STREAMS * 96;
    let x = a.activations(format, [tokens, hidden], &a.numbers(tokens * hidden, |_| a.normal()))?;
    let (w, out) = (a.weight(format, 1, RANK, hidden)?, a.output("out", DType::F32, [tokens, 1, RANK])?);
    let epilogue = Epilogue::Silu { scale: 1.0 / STREAMS as f32 };
    a.run(Gemm { x, w, bias: None, rows: RowMap::Identity, epilogue, precision: a.precision, out })
}

/// The mean over the streams, each gated by its part of the product.
fn read(a: &Arena, format: Format, [tokens, streams, hidden]: [usize; 3]) -> Result {
    let x = a.activations(format, [tokens, RANK], &a.numbers(tokens * RANK, |_| a.normal()))?;
    let w = a.weight(format, 1, streams * hidden, RANK)?;
    let epilogue = Epilogue::GateMean { normed: a.units(DType::F32, [tokens, streams, hidden])? };
    let out = a.output("mixed", DType::F32, [tokens, 1, hidden])?;
    a.run(Gemm { x, w, bias: None, rows: RowMap::Identity, epilogue, precision: a.precision, out })
}

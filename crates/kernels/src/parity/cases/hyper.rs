//! The hyper-connection: norm over the streams, the low-rank gate with its two epilogues, the write into every stream; and the
//! n-gram gate.

use argon_gguf::Format;

use super::{F32, List};
use crate::op::{Epilogue, Gemm, HyperWrite, PleGate, RmsNorm, RowMap};
use crate::parity::desk::Made;
use crate::parity::{Bound, Desk};
use crate::tensor::DType;

/// S.
const STREAMS: usize = 4;

/// Rank of the gate.
const RANK: usize = 64;

pub(super) fn cases(list: &mut List) {
    let tokens = list.request.tokens.unwrap_or(35);
    for hidden in [1, 33, 320] {
        let shape = [tokens, STREAMS, hidden];
        list.add(format!("gr_norm {shape:?}"), F32, move |desk| {
            let (x, weight) = (desk.units(shape)?, desk.units([1, STREAMS, hidden])?);
            desk.run(RmsNorm { x, weight, eps: 1e-6, out: desk.output("out", DType::F32, shape)? })
        });
        list.add(format!("hyper_write {shape:?}"), F32, move |desk| {
            let (y, inject) = (desk.units([tokens, 1, hidden])?, desk.units([tokens, 1, STREAMS])?);
            let x = desk.changed("x", shape, &desk.numbers(tokens * STREAMS * hidden, |_| desk.unit()))?;
            desk.run(HyperWrite { y, inject, x })
        });
        // The root of a score near 0 has a steep slope: an error e of it becomes e / (2 sqrt(score)).
        list.add(format!("ple_gate {shape:?}"), Bound::Within { a: 2e-5, b: None }, move |desk| {
            let (key, query, value) = (desk.units(shape)?, desk.units(shape)?, desk.units([tokens, 1, hidden])?);
            desk.run(PleGate { key, query, value, out: desk.output("out", DType::F32, shape)? })
        });
    }
    for format in [Format::Q8_0, Format::BF16] {
        list.products(&format!("gr_epi_down, {format}"), move |desk| down(desk, format, tokens));
        list.products(&format!("read, {format}"), move |desk| read(desk, format, tokens));
    }
}

/// `silu(p / S)` of the product with the low-rank matrix.
fn down(desk: &Desk, format: Format, tokens: usize) -> Made<()> {
    let hidden = STREAMS * 96;
    let x = desk.activations(format, [tokens, hidden], &desk.numbers(tokens * hidden, |_| desk.normal()))?;
    let (w, out) = (desk.weight(format, 1, RANK, hidden)?, desk.output("out", DType::F32, [tokens, 1, RANK])?);
    let epilogue = Epilogue::Silu { scale: 1.0 / STREAMS as f32 };
    desk.run(Gemm { x, w, bias: None, rows: RowMap::Identity, epilogue, precision: desk.precision, out })
}

/// The mean over the streams, each gated by its part of the product.
fn read(desk: &Desk, format: Format, tokens: usize) -> Made<()> {
    let hidden = 75;
    let x = desk.activations(format, [tokens, RANK], &desk.numbers(tokens * RANK, |_| desk.normal()))?;
    let w = desk.weight(format, 1, STREAMS * hidden, RANK)?;
    let epilogue = Epilogue::GateMean { normed: desk.units([tokens, STREAMS, hidden])? };
    let out = desk.output("mixed", DType::F32, [tokens, 1, hidden])?;
    desk.run(Gemm { x, w, bias: None, rows: RowMap::Identity, epilogue, precision: desk.precision, out })
}

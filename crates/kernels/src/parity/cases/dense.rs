//! Dense products: every format, and the edges of tiles.

use argon_gguf::Format;

use super::{List, layer};
use crate::op::{Epilogue, Gemm, RowMap};
use crate::parity::{Arena, Result};
use crate::tensor::DType;

/// What is made of a product.
#[derive(Clone, Copy, PartialEq)]
enum Finish {
    Store,
    Bias,
    Accumulate,
    SwiGlu,
}

/// Rows, outputs and columns of a product. Outputs are not so few that all of them may cancel out.
type Size = [usize; 3];

pub(super) fn cases(list: &mut List) {
    let tokens = list.request.tokens.unwrap_or(33);
    for format in Format::weights().filter(|&format| list.request.gate_up.is_none_or(|asked| asked == format)) {
        let name = format!("{format}, {tokens} rows");
        list.products(&name, move |a| dense(a, format, [tokens, 70, 512], Finish::Store, 1.0));
    }
    let format = list.request.gate_up.unwrap_or(Format::IQ4_NL);
    for [rows, n] in [[1, 30], [7, 31], [8, 16], [9, 17], [17, 64], [65, 129], [130, 127], [193, 65]] {
        let name = format!("{format}, {rows} rows, {n} outputs");
        list.products(&name, move |a| dense(a, format, [rows, n, 256], Finish::Store, 1.0));
    }
    for (name, finish) in [("bias", Finish::Bias), ("added", Finish::Accumulate)] {
        list.products(&format!("{format}, {name}"), move |a| dense(a, format, [33, 70, 512], finish, 1.0));
    }
    let name = format!("{format}, SwiGLU");
    list.within(layer(&[format], 33), &name, move |a| dense(a, format, [33, 70, 512], Finish::SwiGlu, 1.0));
    // Beyond the range of f16, inside and in the result.
    for size in [1e5, 1e8] {
        let name = format!("{format}, inputs of {size:e}");
        list.products(&name, move |a| dense(a, format, [33, 70, 512], Finish::Store, size));
    }
}

fn dense(a: &Arena, format: Format, [rows, n, k]: Size, finish: Finish, size: f32) -> Result {
    let x = a.numbers(rows * k, |_| a.normal() * size);
    let (x, w) = (a.activations(format, [rows, k], &x)?, a.weight(format, 1, n, k)?);
    let out = match finish {
        Finish::Accumulate => a.in_out("out", [rows, 1, n], |_| a.unit())?,
        _ => a.output("out", DType::F32, [rows, 1, n])?,
    };
    a.run(Gemm {
        x,
        w,
        bias: if finish == Finish::Bias { Some(a.units(DType::F32, [1, 1, n])?) } else { None },
        rows: RowMap::Identity,
        epilogue: match finish {
            Finish::Store | Finish::Bias => Epilogue::Store,
            Finish::Accumulate => Epilogue::Accumulate,
            Finish::SwiGlu => Epilogue::SwiGlu { up: a.weight(format, 1, n, k)? },
        },
        precision: a.precision,
        out,
    })
}

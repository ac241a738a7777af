//! Numbers that host and kernels share, in a header that is made of them: host.cuh. Kernels use them, or assert that theirs are
//! the same.

use std::fmt::Write;

use argon_gguf::Format;

use super::{attention, delta_net, device, elementwise, gather, gemm, memory, plan, range, route, select_blocks};

/// Which row of x a row of a product is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// The same.
    Dense,
    /// That of its token.
    Gather,
    /// The same, of those that a plan has.
    Segments,
}

/// What becomes of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is stored.
    Store,
    /// It is added to what is there.
    Accumulate,
    /// It is scaled, and its silu stored.
    Silu,
    /// Silu of one product times another.
    SwiGlu,
    /// The mean over streams, each gated by the sigmoid of its part of the product.
    GateMean,
}

/// In which order a decoder wants columns (order.cuh).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Eights,
    Halves,
    Nibbles,
    Sixteens,
}

/// Order in which a format's decoder wants columns.
pub(super) fn order(format: Format) -> u32 {
    let order = match format {
        Format::IQ2_XXS | Format::IQ2_XS | Format::IQ2_S => Order::Sixteens,
        Format::IQ4_NL | Format::IQ4_XS | Format::MXFP4 | Format::NVFP4 => Order::Halves,
        Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 => Order::Nibbles,
        _ => Order::Eights,
    };
    order as u32
}

/// The numbers of products, as kernels know them.
const NUMBERS: &[(&str, usize)] = &[
    ("MAP_DENSE", Map::Dense as usize),
    ("MAP_GATHER", Map::Gather as usize),
    ("MAP_SEGMENTS", Map::Segments as usize),
    ("EPILOGUE_STORE", End::Store as usize),
    ("EPILOGUE_ACCUMULATE", End::Accumulate as usize),
    ("EPILOGUE_SILU", End::Silu as usize),
    ("EPILOGUE_SWIGLU", End::SwiGlu as usize),
    ("EPILOGUE_GATE_MEAN", End::GateMean as usize),
    ("ORDER_EIGHTS", Order::Eights as usize),
    ("ORDER_HALVES", Order::Halves as usize),
    ("ORDER_NIBBLES", Order::Nibbles as usize),
    ("ORDER_SIXTEENS", Order::Sixteens as usize),
];

/// Every number that host and kernels share.
fn shared_numbers() -> impl Iterator<Item = (&'static str, usize)> {
    let all = [
        NUMBERS,
        attention::HOST,
        delta_net::HOST,
        device::HOST,
        elementwise::HOST,
        gather::HOST,
        gemm::HOST,
        memory::HOST,
        plan::HOST,
        range::HOST,
        route::HOST,
        select_blocks::HOST,
    ];
    all.into_iter().flatten().copied()
}

/// The text of host.cuh.
pub(super) fn header() -> String {
    let mut text = String::from("#pragma once\n");
    for (name, value) in shared_numbers() {
        let _ = writeln!(text, "#define {name} {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::source::{FILES, HEADERS};

    #[test]
    fn every_shared_number_has_one_meaning_and_a_use() {
        let names: Vec<_> = shared_numbers().map(|(name, _)| name).collect();
        let used = |name: &str| FILES.iter().chain(&HEADERS).any(|(_, text)| text.contains(name));
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name) && used(name), "{name}");
        }
    }
}

//! Every device against the reference, op by op.
//!
//! Each test makes the same operands on the reference and on every device of [`devices`], in several memory layouts, runs
//! the op, and compares all memory: integers exactly, floats within the tolerance of the case, which says why it is what it
//! is; whatever the op should not touch, to the bit.
//!
//! The ops and their operands are those of `argon_kernels::parity::cases`. What users run, and `kernels.rs` tests, is a few
//! of them in shapes that models have, without gaps, and looks at how far whole tensors are off, in every format. Here it is
//! every element, every layout, every edge of a size, the same work in several calls, and what is refused.

use std::num::NonZero;
use std::sync::Arc;

use argon_kernels::cpu::{CpuDevice, CpuOptions, Isa};

#[path = "parity/ops.rs"]
mod ops;

#[path = "parity/fixtures.rs"]
mod fixtures;
#[path = "parity/shuffle.rs"]
mod shuffle;

use ops::harness::Tested;

/// Every device of this machine, in every setting that may not matter. Only instruction sets that fuse a product and a sum
/// round differently from those that do not.
pub fn devices() -> Vec<Tested> {
    let cpu = |(isa, threads): (Isa, usize)| Tested {
        name: format!("cpu, {}, {threads} threads", isa.name()),
        bits: if isa.name() == "portable" { "portable" } else { "fused" },
        device: Arc::new(
            CpuDevice::new(CpuOptions { threads: NonZero::new(threads), isa: Some(isa), ..CpuOptions::default() })
                .unwrap(),
        ),
    };
    Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]).map(cpu).collect()
}

//! Every device against the reference, op by op.
//!
//! Each test builds the same operands on the reference and on every device of [`harness::devices`], in several memory
//! layouts, runs the op, and compares all memory: integers exactly, floats within the tolerance of the case, which says
//! why it is what it is; whatever the op should not touch, to the bit.
//!
//! `argon_kernels::parity`, which users run and `kernels.rs` tests, has each op in shapes that models have, without gaps, and
//! looks at how far whole tensors are off, in every format. Here it is every element, every layout, every edge of a size, the
//! same work in several calls, and what is refused.

use std::num::NonZero;
use std::sync::Arc;

use argon_kernels::cpu::{CpuDevice, CpuOptions, Isa};

#[path = "parity/harness.rs"]
mod harness;

#[path = "parity/attention.rs"]
mod attention;
#[path = "parity/conv.rs"]
mod conv;
#[path = "parity/copy.rs"]
mod copy;
#[path = "parity/delta_net.rs"]
mod delta_net;
#[path = "parity/errors.rs"]
mod errors;
#[path = "parity/fixtures.rs"]
mod fixtures;
#[path = "parity/gather.rs"]
mod gather;
#[path = "parity/mix.rs"]
mod mix;
#[path = "parity/norm.rs"]
mod norm;
#[path = "parity/plan.rs"]
mod plan;
#[path = "parity/rope.rs"]
mod rope;
#[path = "parity/route.rs"]
mod route;
#[path = "parity/select_blocks.rs"]
mod select_blocks;
#[path = "parity/shuffle.rs"]
mod shuffle;

/// Every device of this machine, in every setting that may not matter. Only instruction sets that fuse a product and a sum
/// round differently from those that do not.
pub fn devices() -> Vec<harness::Tested> {
    let cpu = |(isa, threads): (Isa, usize)| harness::Tested {
        name: format!("cpu, {}, {threads} threads", isa.name()),
        bits: if isa.name() == "portable" { "portable" } else { "fused" },
        device: Arc::new(
            CpuDevice::new(CpuOptions { threads: NonZero::new(threads), isa: Some(isa), ..CpuOptions::default() })
                .unwrap(),
        ),
    };
    Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]).map(cpu).collect()
}

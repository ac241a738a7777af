//! Every device against the reference, op by op.
//!
//! Each test builds the same operands on the reference and on every device of [`harness::devices`], in several memory
//! layouts, runs the op, and compares all memory: integers exactly, floats within the tolerance of the case, which says
//! why it is what it is; whatever the op should not touch, to the bit.

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

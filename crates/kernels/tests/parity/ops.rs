//! Every op of every device of `crate::devices` against the reference.

mod attention;
mod conv;
mod copy;
mod delta_net;
mod errors;
mod gather;
pub mod harness;
mod hyper;
mod norm;
mod plan;
mod rope;
mod route;
mod select_blocks;

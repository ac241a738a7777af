//! Random weights, as parity draws them.

pub use argon_kernels::parity::weights::*;

//! Comparing a device with the reference.

pub mod weights;

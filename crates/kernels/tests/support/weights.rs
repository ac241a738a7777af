//! Operands of tests: random weights, as parity draws them, and numbers in a device's memory.

use argon_kernels::device::upload;
pub use argon_kernels::parity::weights::*;
use argon_kernels::{DType, Device, Tensor};

/// A dense tensor of these numbers.
pub fn filled(device: &dyn Device, shape: [usize; 3], values: &[f32]) -> Tensor {
    upload(device, DType::F32, shape, bytemuck::cast_slice(values)).unwrap()
}

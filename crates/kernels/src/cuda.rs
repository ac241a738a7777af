//! NVIDIA GPUs, compute capability 8.0 and later.
//!
//! Kernels are CUDA C++ in `cuda/kernels`, compiled at run time ([`jit`]) for the card that is there and for the format,
//! tile and epilogue at hand. Nothing of CUDA is needed to build this; to run, a driver and NVRTC.
//!
//! * `driver`: the driver's calls, each checked.
//! * [`jit`], [`source`]: from kernel source to machine code, cached on disk.
//! * `memory`: buffers, and tensors as kernels see them.
//! * `device`: [`CudaDevice`]: its state; errors of kernels come with the next read or sync. `streams`: which ops run side by
//!   side, as their declared reads and writes allow. `workspace`: a stream's own memory. `range`: weights beyond f16.
//! * `gemm`, `plan`, `attention`, ...: which kernels an op launches. [`tune`] chooses tiles, as a pure function.

mod attention;
mod delta_net;
mod device;
mod driver;
mod elementwise;
mod gather;
mod gemm;
pub mod host;
pub mod jit;
mod memory;
mod plan;
mod range;
mod route;
mod select_blocks;
pub mod source;
mod streams;
pub mod tune;
mod workspace;

pub use device::{CudaDevice, CudaOptions};
pub use driver::{Graph, Machine};
pub use plan::PlanVariant;

//! Any GPU that wgpu reaches: Metal, Vulkan, DX12; also a software driver.
//!
//! Kernels are WGSL in `wgpu/shaders`, under the names they have in every backend. Nothing here is chosen by a vendor's
//! name: what an adapter says it has, and whether it passes a self-test, decides.
//!
//! * [`adapter`]: which adapters there are, and what one can do.
//! * `core`: the driver's handles, limits and errors.
//! * `device`: [`WgpuDevice`]: ops in program order; errors of kernels come with the next read or sync.
//! * `queue`: one call of a kernel, and how calls become submits short enough for a driver's watchdog.
//! * `memory`: buffers, also those that lie in several of wgpu's.
//! * [`tier`]: which kernels a device runs.
//! * `subgroup_check`, `half_check`: whether an adapter's subgroups, matrices and f16 compute what they should.
//! * [`shader`]: the text of each kernel, and the list of all of them.
//! * [`tune`]: how products are cut into workgroups.
//! * `gemm`, `plan`, `attention`, ...: which kernels an op calls.

pub mod adapter;
mod attention;
mod codebooks;
mod core;
mod delta_net;
mod device;
mod elementwise;
mod gather;
mod gemm;
mod half_check;
mod memory;
mod plan;
mod queue;
mod route;
mod select_blocks;
pub mod shader;
mod subgroup_check;
pub mod tier;
pub mod tune;

pub use device::{WgpuDevice, WgpuOptions};
pub use tier::{Allowed, Products, Tier};

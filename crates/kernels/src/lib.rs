//! What a model asks of a device, and the devices that answer.
//!
//! A model is written once, as a sequence of [`Op`]s over [`Tensor`]s that live in device memory. A [`Device`] runs
//! them in program order: [`cpu`] at once, a GPU whenever it likes as long as every op sees what the ops before it
//! wrote. Nothing here knows a model's name, and nothing in a model file knows a device's.
//!
//! * [`tensor`]: handles: `Buffer` (memory of one device), `Tensor` (a typed, strided view), `Weight` (quantised rows).
//! * [`op`]: the operations, one struct each, with the formula, the shapes and what is read and written.
//! * [`device`]: the trait and its errors.
//! * [`cpu`]: the backend that is always there.
//! * [`mod@reference`]: the same operations in float64, one obvious loop each: what every backend is held to.
//! * [`parity`], [`self_test`]: a device beside the reference, in full and in a moment.
//! * `cuda` (a feature, on): NVIDIA GPUs.
//! * `wgpu` (a feature): any GPU behind Metal, Vulkan or DX12.
//! * [`shuffle`]: a device for tests that runs ops in every order that their reads and writes permit.
//! * [`wrapper`]: a device around another, for tests and stand-ins.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod fallible;
pub mod op;
pub mod parity;
pub mod reference;
pub mod self_test;
pub mod shuffle;
pub mod tensor;
#[cfg(feature = "wgpu")]
pub mod wgpu;
pub mod wrapper;

pub use device::{Clock, Device, DeviceError, DeviceInfo};
pub use op::{Access, Op, Precision};
pub use tensor::{Buffer, DType, Storage, Tensor, Weight};
pub use wrapper::Wrapper;

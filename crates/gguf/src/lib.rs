//! GGUF: bytes on disk to typed, unread tensors.
//!
//! [`Gguf::open`] maps a model (one file, or all parts of a split one) and checks everything its headers say: every
//! length, count, offset and product against the bytes that are there, before anything is allocated or followed. What
//! comes out is [`Metadata`] with typed getters and a list of [`TensorInfo`], whose bytes [`Gguf::data`] hands out
//! without copying. [`Writer`] writes such files.
//!
//! [`Format`] is the one table of the formats that weights are stored in, and [`quant::decode`] defines what their bytes
//! mean.

#![deny(unsafe_code)]

mod bytes;
mod cursor;
mod error;
mod file;
mod gguf;
mod metadata;
mod name;
mod part;
pub mod quant;
mod split;
mod tensor;
mod value;
mod write;

pub use bytes::Bytes;
pub use error::{Error, Fault};
pub use gguf::{Gguf, Location, PartFile};
pub use metadata::Metadata;
pub use quant::{Format, decode_row, encode_row, scales_are_finite};
pub use tensor::TensorInfo;
pub use value::{Array, Value, ValueType};
pub use write::{ToMetadata, Writer};

//! Language models with routed experts: from a GGUF file and a device to logits.
//!
//! [`Engine`] is a loaded model, [`Session`] one conversation with it; everything else here is an option, an error or a
//! small value of theirs, but for [`chat`] (messages to text), [`tokenizer`] (text to ids), [`sampler`] (logits to an
//! id), [`probe`] (a look inside a forward pass) and [`compare`] (how logits are compared).
//!
//! Invariant: no file here names a backend; the forward pass is a sequence of [`argon_kernels::Op`]s.
//! Invariant: a family is a table of traits, not a forward pass of its own.
//! Invariant: nothing is sized by a key of the file before the key was checked, against limits and against tensors.

pub mod chat;
pub mod compare;
mod config;
mod engine;
mod error;
mod experts;
mod fingerprint;
mod finite;
mod model;
pub mod probe;
pub mod sampler;
mod session;
mod state;
pub mod tokenizer;
mod weights;

pub use engine::{Engine, EngineOptions, ModelInfo};
pub use error::EngineError;
pub use session::{Logits, LogitsOut, Progress, Session, SessionFileError, SessionOptions, StatePart};
pub use state::CacheTypes;

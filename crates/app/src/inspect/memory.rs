//! The memory that a model takes on the processor.

use std::sync::Arc;

use argon_engine::{CacheTypes, Engine, EngineError, EngineOptions, ModelInfo, SessionOptions};
use argon_gguf::Gguf;
use argon_kernels::DType;
use argon_kernels::cpu::{CpuDevice, CpuOptions};
use serde::Serialize;

use super::meter::Meter;

/// Bytes that a model and one session take.
#[derive(Debug, PartialEq, Serialize)]
pub struct Memory {
    /// Of the model.
    pub weights: u64,
    /// Of a session with f16 caches, for every 1000 tokens of context.
    pub per_1000_tokens_f16: u64,
    /// The same with f32 caches.
    pub per_1000_tokens_f32: u64,
    /// Of a session whatever its context: scratch and recurrent state.
    pub fixed: u64,
    /// Tokens of a chunk, which `fixed` depends on.
    pub chunk: usize,
}

/// The chunk of a session by default.
const CHUNK: usize = 2048;

impl Memory {
    /// Lets a stand-in of the processor load the model and start sessions; also gives what the loader says.
    ///
    /// # Errors
    /// Why the model does not run.
    pub fn measure(gguf: &Gguf) -> Result<(Memory, ModelInfo), EngineError> {
        let meter = Arc::new(Meter::new(Arc::new(CpuDevice::new(CpuOptions::default())?)));
        let engine = Engine::load(gguf.clone(), meter.clone(), EngineOptions::default())?;
        let weights = meter.constants() + meter.allocated();
        let session = |context, cache| {
            let before = meter.allocated();
            engine.session(SessionOptions { context, chunk: CHUNK, cache: CacheTypes { k: cache, v: cache } })?;
            Ok::<usize, EngineError>(meter.allocated() - before)
        };
        // Contexts of several chunks: below that, the scratch is smaller.
        let (short, long) = (2 * CHUNK, 2 * CHUNK + 1000);
        let slope = |cache| Ok::<usize, EngineError>(session(long, cache)? - session(short, cache)?);
        let per_1000_tokens_f16 = slope(DType::F16)?;
        let fixed = session(short, DType::F16)?.saturating_sub(per_1000_tokens_f16 * short / 1000);
        let memory = Memory {
            weights: weights as u64,
            per_1000_tokens_f16: per_1000_tokens_f16 as u64,
            per_1000_tokens_f32: slope(DType::F32)? as u64,
            fixed: fixed as u64,
            chunk: CHUNK,
        };
        Ok((memory, engine.info().clone()))
    }
}

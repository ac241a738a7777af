//! The memory that a model takes on the processor.

use std::sync::Arc;

use argon_engine::{CacheTypes, Engine, EngineError, EngineOptions, ModelInfo, SessionOptions};
use argon_gguf::Gguf;
use argon_kernels::DType;
use argon_kernels::cpu::{CpuDevice, CpuOptions, machine};
use serde::Serialize;

use super::meter::Meter;
use crate::words::bytes;

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
    /// Tokens of the context that the model was trained for.
    pub trained: usize,
    /// Of all this together, with f16 caches of so many tokens.
    pub trained_total: u64,
    /// Bytes of memory that this machine has, where it tells.
    pub machine: Option<u64>,
}

/// The chunk of a session by default.
const CHUNK: usize = 2048;

/// What is found out by loading a model without its weights.
#[derive(Default)]
pub struct Trial {
    /// What it takes.
    pub memory: Option<Memory>,
    /// Why it takes no text, if the file's tokenizer cannot be used.
    pub no_text: Option<String>,
    /// Parts of the file that are not used.
    pub skipped: Vec<String>,
    /// What the loader warns of.
    pub warnings: Vec<String>,
}

impl Trial {
    /// Lets a stand-in of the processor load the model and start sessions.
    ///
    /// # Errors
    /// Why the model does not run.
    pub fn run(gguf: &Gguf) -> Result<Trial, EngineError> {
        let meter = Arc::new(Meter::new(Arc::new(CpuDevice::new(CpuOptions::default())?)));
        let engine = Engine::load(gguf.clone(), meter.clone(), EngineOptions::default())?;
        let memory = Some(Memory::measure(&engine, &meter)?);
        let no_text = engine.tokenizer().err().map(|error| error.to_string());
        let ModelInfo { skipped, warnings, .. } = engine.info().clone();
        Ok(Trial { memory, no_text, skipped, warnings })
    }
}

impl Memory {
    /// Of a model that was just loaded onto `meter`.
    fn measure(engine: &Engine, meter: &Meter) -> Result<Memory, EngineError> {
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
        let trained = engine.info().context;
        let caches = (per_1000_tokens_f16 as u64).saturating_mul(trained as u64) / 1000;
        Ok(Memory {
            trained,
            trained_total: caches.saturating_add((weights + fixed) as u64),
            machine: machine::memory(),
            weights: weights as u64,
            per_1000_tokens_f16: per_1000_tokens_f16 as u64,
            per_1000_tokens_f32: slope(DType::F32)? as u64,
            fixed: fixed as u64,
            chunk: CHUNK,
        })
    }

    /// In a line for each part, and one for all of them.
    pub fn describe(&self) -> [String; 4] {
        let (f16, f32) = (bytes(self.per_1000_tokens_f16), bytes(self.per_1000_tokens_f32));
        let machine = self.machine.map_or_else(String::new, |machine| {
            let too_little = if self.trained_total > machine { ": too little" } else { "" };
            format!("; this machine has {}{too_little}", bytes(machine))
        });
        [
            format!("{} of weights", bytes(self.weights)),
            format!("{f16} for 1000 tokens of context ({f32} with f32 caches)"),
            format!("{} to work in, with chunks of {} (-ub)", bytes(self.fixed), self.chunk),
            format!("{} in all at the trained context of {}{machine}", bytes(self.trained_total), self.trained),
        ]
    }
}

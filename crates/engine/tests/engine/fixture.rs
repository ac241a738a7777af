//! Models, prompts and devices that the tests share.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use argon_engine::{CacheTypes, Engine, EngineOptions, Logits, LogitsOut, Session, SessionOptions};
use argon_gguf::Gguf;
use argon_kernels::cpu::{CpuDevice, CpuOptions};
use argon_kernels::{DType, Device, Precision};

/// One fixture for each family.
pub const MODELS: [&str; 7] = ["qwen4exp_s", "qwen3moe", "qwen3next", "qwen35moe", "qwen2moe", "olmoe", "mixtral"];

/// Room for the longest prompt of any test.
pub const CONTEXT: usize = 320;

/// Caches that lose nothing.
pub const EXACT: CacheTypes = CacheTypes { k: DType::F32, v: DType::F32 };

/// The file `name` of the model fixtures.
pub fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/models", name].iter().collect()
}

pub fn gguf(model: &str) -> Gguf {
    Gguf::open(path(&format!("{model}.gguf"))).unwrap()
}

pub fn cpu() -> CpuDevice {
    CpuDevice::new(CpuOptions { threads: NonZero::new(2), ..CpuOptions::default() }).unwrap()
}

/// The engine of `gguf` on `device`, all products in f32.
pub fn load_on(device: impl Device + 'static, gguf: Gguf) -> Engine {
    Engine::load(gguf, Arc::new(device), EngineOptions { precision: Some(Precision::F32) }).unwrap()
}

/// The engine of a fixture on the CPU.
pub fn engine(model: &str) -> Engine {
    load_on(cpu(), gguf(model))
}

/// A session with exact caches.
pub fn session(engine: &Engine, chunk: usize) -> Session {
    engine.session(SessionOptions { context: CONTEXT, chunk, cache: EXACT }).unwrap()
}

/// The prompts of the fixtures.
pub fn prompts() -> [Vec<u32>; 3] {
    let json = std::fs::read_to_string(path("prompts.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    serde_json::from_value(json["prompts"].clone()).unwrap()
}

/// 300 tokens with several EOS among them.
pub fn long_prompt() -> Vec<u32> {
    let [p0, p1, p2] = prompts();
    [p2, p1.clone(), p0, p1].concat()[..300].to_vec()
}

/// A prefill that nobody watches or stops.
pub fn prefill(session: &mut Session, tokens: &[u32], logits: Logits) -> LogitsOut {
    session.prefill(tokens, logits, &mut |_| ControlFlow::Continue(())).unwrap().unwrap()
}

/// All logits of `tokens` in a fresh session.
pub fn all_logits(engine: &Engine, chunk: usize, tokens: &[u32]) -> LogitsOut {
    prefill(&mut session(engine, chunk), tokens, Logits::All)
}

/// The bits of numbers, for exact comparisons.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

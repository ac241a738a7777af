//! argon-engine

pub mod sampler;
pub mod tokenizer;

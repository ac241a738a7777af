//! argon-engine

pub mod tokenizer;

//! argon-gguf

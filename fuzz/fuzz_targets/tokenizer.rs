//! Any bytes as a tokenizer.
#![no_main]

#[path = "../../crates/engine/tests/tokenizer_fuzz/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise::exercise(bytes);
});

//! The body of the fuzz target on random recipes and spoilt files, the same ones each time.
#![allow(missing_docs)]

mod exercise;

use std::alloc::System;

use argon_gguf::Writer;
use cap::Cap;
use exercise::exercise;

/// No small file makes the loader allocate more than this; most of it are the tables of the patterns' automata.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, 256 << 20);

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }
}

#[test]
fn no_recipe_breaks_a_tokenizer() {
    const EXECUTIONS: usize = 3000;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0;
    for _ in 0..EXECUTIONS {
        let mut bytes: Vec<u8> = (0..10 + random.below(200)).map(|_| random.next() as u8).collect();
        if random.below(4) > 0 {
            bytes[1] = 10; // all bytes first, which nearly every tokenizer has
        }
        accepted += usize::from(exercise(&bytes));
    }
    // Or else the recipes would not get beyond the first checks.
    assert!((EXECUTIONS / 20..EXECUTIONS).contains(&accepted), "{accepted} of {EXECUTIONS} accepted");
}

fn small_file() -> Vec<u8> {
    let mut bytes = Vec::new();
    let writer = Writer::new()
        .metadata("general.name", "Hello, hello  hell\u{f6}<s> a\u{301}")
        .metadata("tokenizer.ggml.model", "llama")
        .metadata("tokenizer.ggml.tokens", ["<unk>", "<s>", "h", "e", "l", "lo", "he", "\u{2581}", "\u{2581}he"])
        .metadata("tokenizer.ggml.scores", [0f32, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0].as_slice())
        .metadata("tokenizer.ggml.token_type", [2i32, 3, 1, 1, 1, 1, 1, 1, 1].as_slice())
        .metadata("tokenizer.ggml.unknown_token_id", 0u32)
        .metadata("tokenizer.ggml.bos_token_id", 1u32);
    writer.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn no_spoilt_file_breaks_a_tokenizer() {
    let file = small_file();
    assert!(exercise(&file));
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for at in 0..file.len() {
        for change in [1, 0x80, 0xFF, random.next() as u8] {
            let mut spoilt = file.clone();
            spoilt[at] ^= change;
            exercise(&spoilt);
        }
    }
}

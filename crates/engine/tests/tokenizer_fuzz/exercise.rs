//! What must hold for any tokenizer whatever: the body of the fuzz target `fuzz/fuzz_targets/tokenizer.rs` and of the test
//! beside this file.

use argon_engine::tokenizer::{Special, TokenKind, Tokenizer};
use argon_gguf::{Gguf, Metadata, Writer};

/// Loads a tokenizer and has it encode and decode a text. `bytes` are a GGUF file, whose `general.name` is the text; or
/// else the steps of a [`Recipe`]. Returns whether the tokenizer was accepted.
pub fn exercise(bytes: &[u8]) -> bool {
    if bytes.starts_with(b"GGUF") {
        let Ok(model) = Gguf::from_bytes(bytes.to_vec()) else { return false };
        let text = model.metadata().str("general.name").ok().flatten().unwrap_or("a b");
        load_and_use(model.metadata(), text)
    } else {
        let recipe = Recipe::follow(bytes);
        let model = Gguf::from_bytes(recipe.file()).expect("what was written can be read");
        load_and_use(model.metadata(), &recipe.text)
    }
}

/// Refused, a tokenizer gives a short message of one line. Accepted, it does what any tokenizer does.
fn load_and_use(metadata: &Metadata, text: &str) -> bool {
    match Tokenizer::from_gguf(metadata) {
        Ok(tokenizer) => {
            use_on(&tokenizer, text);
            true
        }
        Err(error) => {
            check_message(&error.to_string());
            false
        }
    }
}

fn check_message(message: &str) {
    assert!(!message.is_empty() && message.len() < 2000 && !message.contains('\n'), "{message}");
}

fn use_on(tokenizer: &Tokenizer, text: &str) {
    for special in [Special::AsText, Special::Parse, Special::ParseShown] {
        match tokenizer.encode(text, special) {
            Ok(ids) => decode(tokenizer, &ids),
            Err(error) => check_message(&error.to_string()),
        }
    }
    let _ = tokenizer.encode_prompt(text, Special::Parse);
    // A text whose control tokens are hidden is text. (A user-defined token that overlaps one is hidden with it.)
    let user_defined = |id| tokenizer.token_kind(id) == Ok(TokenKind::UserDefined);
    if !(0..tokenizer.vocab_size() as u32).any(user_defined) {
        let hidden = tokenizer.encode(&tokenizer.hide_control(text), Special::ParseShown);
        assert_eq!(hidden, tokenizer.encode(text, Special::AsText));
    }
}

/// At once and one by one, the ids give the same text, up to the one space that SentencePiece puts in front.
fn decode(tokenizer: &Tokenizer, ids: &[u32]) {
    assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
    let decoded = tokenizer.decode(ids).expect("ids of the vocabulary");
    let mut stream = tokenizer.stream_decoder();
    let mut pieces: String = ids.iter().map(|&id| stream.push(id).expect("an id of the vocabulary")).collect();
    pieces += &stream.finish();
    let without_spaces = |text: &str| text.replace(' ', "");
    assert_eq!(without_spaces(&pieces), without_spaces(&decoded));
}

/// A tokenizer's keys, put together step by step, so that most of what a fuzzer makes up gets beyond the first checks.
#[derive(Default)]
struct Recipe {
    sentence_piece: bool,
    pre: u8,
    tokens: Vec<String>,
    token_types: Vec<i32>,
    scores: Vec<f32>,
    merges: Vec<String>,
    /// `bos`, `eos`, `eot`, `eom` and `unknown`.
    ids: [Option<u32>; 5],
    /// `add_bos_token`, `add_eos_token` and `add_space_prefix`.
    flags: [Option<bool>; 3],
    text: String,
}

/// One name of each family of pre-tokenizers, and one of none.
const PRE: [&str; 17] = [
    "gpt-2",
    "olmo",
    "qwen2",
    "qwen35",
    "hunyuan",
    "llama-bpe",
    "glm4",
    "dbrx",
    "gpt-4o",
    "tekken",
    "kimi-k2",
    "bailingmoe",
    "deepseek-v3",
    "deepseek-llm",
    "starcoder",
    "default",
    "none",
];

impl Recipe {
    /// The first byte chooses the kind, each step is a byte and what it asks for; what follows the last one is the text.
    fn follow(bytes: &[u8]) -> Self {
        let mut rest = Bytes(bytes);
        let kind = rest.byte();
        let mut recipe = Self { sentence_piece: kind & 1 == 1, pre: kind >> 1, ..Self::default() };
        // A vocabulary larger than these makes each execution slow and nothing different.
        while recipe.tokens.len() < 400 && recipe.merges.len() < 400 {
            match rest.byte() % 12 {
                0..=2 => recipe.token(rest.text()),
                3 | 4 => recipe.join(rest.byte(), rest.byte()),
                5 => recipe.change_type(rest.byte(), rest.byte()),
                6 => recipe.change_score(rest.byte(), rest.word()),
                7 => recipe.merges.push(rest.text()),
                8 => recipe.ids[usize::from(rest.byte()) % 5] = Some(rest.word() % 700),
                9 => recipe.flags[usize::from(rest.byte()) % 3] = Some(rest.byte() & 1 == 1),
                10 => recipe.all_bytes(),
                _ => break,
            }
        }
        recipe.text = String::from_utf8_lossy(rest.0).into_owned();
        recipe
    }

    fn token(&mut self, text: String) {
        self.tokens.push(text);
        self.token_types.push(1);
        self.scores.push(-(self.tokens.len() as f32));
    }

    /// A token of two others, and the merge that leads to it.
    fn join(&mut self, left: u8, right: u8) {
        let Some(last) = self.tokens.len().checked_sub(1) else { return };
        let [left, right] = [left, right].map(|index| self.tokens[usize::from(index).min(last)].clone());
        // Or else a few dozen steps would double it beyond any memory.
        if left.len() + right.len() <= 300 {
            self.token([left.as_str(), &right].concat());
            self.merges.push([left.as_str(), &right].join(" "));
        }
    }

    fn change_type(&mut self, index: u8, kind: u8) {
        let count = self.tokens.len().max(1);
        if let Some(of_token) = self.token_types.get_mut(usize::from(index) % count) {
            *of_token = i32::from(kind % 8);
        }
    }

    fn change_score(&mut self, index: u8, bits: u32) {
        let count = self.tokens.len().max(1);
        if let Some(score) = self.scores.get_mut(usize::from(index) % count) {
            *score = f32::from_bits(bits);
        }
    }

    /// Tokens for single bytes, as each kind spells them.
    fn all_bytes(&mut self) {
        let mut spare = '\u{100}'..;
        for byte in 0..=u8::MAX {
            if self.sentence_piece {
                self.token(format!("<0x{byte:02X}>"));
                *self.token_types.last_mut().expect("just added") = 6;
            } else {
                let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
                let spelled = if printable { char::from(byte) } else { spare.next().expect("an open range") };
                self.token(spelled.into());
            }
        }
    }

    fn file(&self) -> Vec<u8> {
        let mut writer = Writer::new()
            .metadata("tokenizer.ggml.model", if self.sentence_piece { "llama" } else { "gpt2" })
            .metadata("tokenizer.ggml.pre", PRE[usize::from(self.pre) % PRE.len()])
            .metadata("tokenizer.ggml.tokens", &self.tokens)
            .metadata("tokenizer.ggml.token_type", &self.token_types)
            .metadata("tokenizer.ggml.scores", &self.scores)
            .metadata("tokenizer.ggml.merges", &self.merges);
        for (name, id) in ["bos", "eos", "eot", "eom", "unknown"].into_iter().zip(self.ids) {
            if let Some(id) = id {
                writer = writer.metadata(format!("tokenizer.ggml.{name}_token_id"), id);
            }
        }
        for (name, flag) in ["add_bos_token", "add_eos_token", "add_space_prefix"].into_iter().zip(self.flags) {
            if let Some(flag) = flag {
                writer = writer.metadata(format!("tokenizer.ggml.{name}"), flag);
            }
        }
        let mut file = Vec::new();
        writer.write(&mut file).expect("keys of any kind can be written");
        file
    }
}

/// What is left of the input; behind its end come the bytes that end the steps.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                byte
            }
            None => 11,
        }
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn text(&mut self) -> String {
        let len = usize::from(self.byte() % 32).min(self.0.len());
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}

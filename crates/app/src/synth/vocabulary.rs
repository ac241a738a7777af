//! The tokenizer of a synthetic file: as many tokens as asked for, of which text really makes use.
//!
//! The embedded model's tokens come first. They are continued by pairs of tokens, those of frequent ones first, so that a
//! large vocabulary has large tables to load and search, as a real one.

use std::collections::HashMap;

use argon_engine::tokenizer::{Tokenizer, TokenizerData};
use argon_gguf::Writer;

use super::shape::{Vocabulary, VocabularyKind};
use crate::failure::{Failure, OrFail};
use crate::model;

/// Tokens that every vocabulary needs: bytes, ASCII characters, control tokens, and a few to spare.
pub const SMALLEST: usize = 400;

/// Kinds of tokens, as GGUF numbers them.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Control tokens of the byte-level vocabularies, in the order of their ids.
const CONTROLS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

const CHATML: &str = "{%- for message in messages -%}\n{{- '<|im_start|>' + message.role + '\\n' + message.content + \
                      '<|im_end|>\\n' -}}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n\
                      {{- '<|im_start|>assistant\\n' -}}\n{%- endif -%}";

const INST: &str = "{{- bos_token -}}\n{%- for message in messages -%}\n{%- if message.role == 'user' -%}\n\
                    {{- '[INST] ' + message.content + ' [/INST]' -}}\n{%- else -%}\n\
                    {{- message.content + eos_token -}}\n{%- endif -%}\n{%- endfor -%}";

/// A tokenizer's tables.
pub struct Tokens {
    /// The token that ends a text.
    pub end_of_text: u32,
    data: TokenizerData,
    /// For padding, where the vocabulary has such a token.
    padding: Option<u32>,
    chat_template: &'static str,
}

/// A token on its way into one of the tables.
struct Piece {
    /// Byte-level spelling.
    text: String,
    bytes: Vec<u8>,
    /// The pieces that it is made of.
    parts: Option<(usize, usize)>,
}

impl Tokens {
    /// The tables of a vocabulary.
    ///
    /// # Errors
    /// An input failure if so many tokens cannot be made.
    pub fn new(vocabulary: &Vocabulary) -> Result<Self, Failure> {
        match vocabulary.kind {
            VocabularyKind::ByteLevel { pre, first_control } => {
                let first_control = first_control.min(vocabulary.size - CONTROLS.len());
                Ok(byte_level(&pieces(first_control, |_| true)?, pre, vocabulary.size))
            }
            VocabularyKind::SentencePiece => {
                let text = |piece: &Piece| sentence_piece(piece).is_some();
                Ok(sentence_pieces(&pieces(vocabulary.size - NOT_TEXT, text)?))
            }
        }
    }

    /// Adds the tokenizer's keys to `writer`.
    pub fn write<'a>(&self, writer: Writer<'a>) -> Writer<'a> {
        let data = &self.data;
        let mut writer = writer
            .metadata("tokenizer.ggml.model", data.model.as_str())
            .metadata("tokenizer.ggml.tokens", &data.tokens)
            .metadata("tokenizer.ggml.token_type", &data.token_types)
            .metadata("tokenizer.ggml.add_bos_token", data.add_bos == Some(true))
            .metadata("tokenizer.chat_template", self.chat_template);
        if let Some(pre) = &data.pre {
            writer = writer.metadata("tokenizer.ggml.pre", pre.as_str());
        }
        if !data.merges.is_empty() {
            writer = writer.metadata("tokenizer.ggml.merges", &data.merges);
        }
        if !data.scores.is_empty() {
            writer = writer.metadata("tokenizer.ggml.scores", &data.scores);
        }
        for (key, id) in [("bos", data.bos), ("eos", data.eos), ("unknown", data.unknown), ("padding", self.padding)] {
            if let Some(id) = id {
                writer = writer.metadata(format!("tokenizer.ggml.{key}_token_id"), id);
            }
        }
        writer
    }
}

/// Byte-level BPE: pieces, control tokens, and unused ones up to `size`.
fn byte_level(pieces: &[Piece], pre: &str, size: usize) -> Tokens {
    let controls = pieces.len()..pieces.len() + CONTROLS.len();
    let (mut tokens, mut token_types) = (Vec::with_capacity(size), Vec::with_capacity(size));
    for id in 0..size {
        let (token, kind) = match pieces.get(id) {
            Some(piece) => (piece.text.clone(), NORMAL),
            None if controls.contains(&id) => (CONTROLS[id - controls.start].to_owned(), CONTROL),
            None => (format!("[PAD{id}]"), UNUSED),
        };
        tokens.push(token);
        token_types.push(kind);
    }
    let merge = |piece: &Piece| piece.parts.map(|(l, r)| format!("{} {}", pieces[l].text, pieces[r].text));
    let end_of_text = controls.start as u32;
    Tokens {
        end_of_text,
        data: TokenizerData {
            model: "gpt2".into(),
            pre: Some(pre.into()),
            tokens,
            token_types,
            merges: pieces.iter().filter_map(merge).collect(),
            eos: Some(end_of_text + 2),
            add_bos: Some(false),
            ..TokenizerData::default()
        },
        padding: Some(end_of_text),
        chat_template: CHATML,
    }
}

/// SentencePiece: three control tokens, all bytes, and the pieces that are text, scored by their order.
fn sentence_pieces(pieces: &[Piece]) -> Tokens {
    let mut tokens = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut token_types = vec![UNKNOWN, CONTROL, CONTROL];
    tokens.extend((0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>")));
    token_types.resize(tokens.len(), BYTE);
    let mut scores = vec![0.0; tokens.len()];
    tokens.extend(pieces.iter().filter_map(sentence_piece));
    token_types.resize(tokens.len(), NORMAL);
    scores.extend((0..tokens.len() - scores.len()).map(|rank| -(rank as f32)));
    Tokens {
        end_of_text: 2,
        data: TokenizerData {
            model: "llama".into(),
            tokens,
            scores,
            token_types,
            bos: Some(1),
            eos: Some(2),
            unknown: Some(0),
            add_bos: Some(true),
            ..TokenizerData::default()
        },
        padding: None,
        chat_template: INST,
    }
}

/// Tokens of [`sentence_pieces`] that are no text.
const NOT_TEXT: usize = 3 + 256;

/// How SentencePiece spells a piece; `None` if it is no text of its own.
fn sentence_piece(piece: &Piece) -> Option<String> {
    const SPACE: char = '\u{2581}';
    let text = str::from_utf8(&piece.bytes).ok()?;
    (!text.contains(|c: char| c == SPACE || c.is_control())).then(|| text.replace(' ', &SPACE.to_string()))
}

/// Pieces in the order of their frequency, until `wanted` of them are `useful`: the embedded model's, then pairs of these.
fn pieces(wanted: usize, useful: impl Fn(&Piece) -> bool) -> Result<Vec<Piece>, Failure> {
    const WHOSE: &str = "the embedded tokenizer";
    let gguf = model::open(None)?;
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).or_work(WHOSE)?;
    let mut list = Pieces { wanted, useful, found: 0, pieces: Vec::new(), known: HashMap::new() };
    for id in 0..tokenizer.vocab_size() as u32 {
        let bytes = tokenizer.token_bytes(id).or_work(WHOSE)?;
        if bytes.len() == 1 {
            let text = tokenizer.token_text(id).or_work(WHOSE)?.to_owned();
            list.push(Piece { text, bytes: bytes.to_vec(), parts: None });
        }
    }
    for merge in gguf.metadata().require_str_array("tokenizer.ggml.merges").or_work(WHOSE)? {
        let part = |text: &str| list.known.get(text).copied();
        if let Some((left, right)) = merge.split_once(' ').and_then(|(left, right)| Some((part(left)?, part(right)?))) {
            list.join(left, right);
        }
    }
    // Along the diagonals: two frequent pieces before a frequent and a rare one. Pieces are added faster than used.
    for sum in 0.. {
        if list.full() {
            break;
        }
        for left in 0..=sum {
            list.join(left, sum - left);
        }
    }
    Ok(list.pieces)
}

struct Pieces<F> {
    wanted: usize,
    useful: F,
    /// Useful ones so far.
    found: usize,
    pieces: Vec<Piece>,
    /// Where each is, by its spelling.
    known: HashMap<String, usize>,
}

impl<F: Fn(&Piece) -> bool> Pieces<F> {
    fn full(&self) -> bool {
        self.found >= self.wanted
    }

    /// Adds a piece that is not there yet.
    fn push(&mut self, piece: Piece) {
        if !self.full() && !self.known.contains_key(&piece.text) {
            self.found += usize::from((self.useful)(&piece));
            self.known.insert(piece.text.clone(), self.pieces.len());
            self.pieces.push(piece);
        }
    }

    fn join(&mut self, left: usize, right: usize) {
        if !self.full() {
            let [a, b] = [&self.pieces[left], &self.pieces[right]];
            let (text, bytes) = (a.text.clone() + &b.text, [&a.bytes[..], &b.bytes].concat());
            self.push(Piece { text, bytes, parts: Some((left, right)) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon_engine::tokenizer::Special;

    fn tokenizer(size: usize, kind: VocabularyKind) -> (Tokens, Tokenizer) {
        let tokens = Tokens::new(&Vocabulary { size, kind }).unwrap_or_else(|_| panic!("{size} tokens"));
        let tokenizer = Tokenizer::new(&tokens.data).unwrap();
        assert_eq!(tokenizer.vocab_size(), size);
        (tokens, tokenizer)
    }

    const BYTES: VocabularyKind = VocabularyKind::ByteLevel { pre: "qwen2", first_control: 40_000 };

    #[test]
    fn text_comes_back_from_any_vocabulary() {
        for (size, kind) in [
            (SMALLEST, BYTES),
            (5000, BYTES),
            (50_000, BYTES),
            (SMALLEST, VocabularyKind::SentencePiece),
            (32_000, VocabularyKind::SentencePiece),
        ] {
            let (_, tokenizer) = tokenizer(size, kind);
            for text in ["The quick brown fox.", "fn main() {\n\tprintln!(\"ä → 世\");\n}", "  two  spaces"] {
                let ids = tokenizer.encode(text, Special::Parse).unwrap();
                let decoded = tokenizer.decode(&ids).unwrap();
                assert_eq!(decoded.trim_start(), text.trim_start(), "{size} {kind:?}");
            }
        }
    }

    #[test]
    fn a_larger_vocabulary_needs_fewer_tokens() {
        let text = include_str!("vocabulary.rs");
        let count = |size| tokenizer(size, BYTES).1.encode(text, Special::Parse).unwrap().len();
        let (small, large) = (count(SMALLEST), count(40_003));
        assert!(3 * large < 2 * small, "{small} tokens of {SMALLEST}, {large} of 40,003");
    }

    #[test]
    fn control_tokens_keep_their_published_ids() {
        let (tokens, tokenizer) = tokenizer(40_100, BYTES);
        assert_eq!((tokens.end_of_text, tokenizer.eos()), (40_000, Some(40_002)));
        assert_eq!(tokenizer.token_text(40_002), Ok("<|im_end|>"));
        assert_eq!(tokenizer.token_text(40_099), Ok("[PAD40099]"));
        let (tokens, _) = self::tokenizer(1000, BYTES);
        assert_eq!(tokens.end_of_text, 997);
    }
}

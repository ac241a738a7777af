//! Ids against those that Hugging Face's tokenizers wrote for the same vocabulary (see fixtures/tokenizer/README.md).

use std::collections::BTreeMap;

use argon_engine::tokenizer::{Special, TokenKind, Tokenizer, TokenizerData};
use serde::Deserialize;

/// The parts of a `tokenizer.json` that end up in a GGUF file.
#[derive(Deserialize)]
struct TokenizerJson {
    added_tokens: Vec<AddedToken>,
    model: Model,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    special: bool,
}

#[derive(Deserialize)]
struct Model {
    vocab: BTreeMap<String, u32>,
    merges: Vec<(String, String)>,
}

/// A text and its ids.
#[derive(Deserialize)]
struct Case {
    text: String,
    hf: Vec<u32>,
    llama_cpp: Vec<u32>,
}

fn byte_level(json: &str, pre: &str) -> TokenizerData {
    let json: TokenizerJson = serde_json::from_str(json).unwrap();
    let mut tokens: BTreeMap<u32, (String, TokenKind)> = BTreeMap::new();
    tokens.extend(json.model.vocab.into_iter().map(|(text, id)| (id, (text, TokenKind::Normal))));
    for token in json.added_tokens {
        let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
        tokens.insert(token.id, (token.content, kind));
    }
    let (tokens, kinds): (Vec<_>, Vec<_>) = tokens.into_values().unzip();
    TokenizerData {
        model: "gpt2".into(),
        pre: Some(pre.into()),
        tokens,
        token_types: kinds.into_iter().map(|kind| kind as i32).collect(),
        merges: json.model.merges.into_iter().map(|(left, right)| format!("{left} {right}")).collect(),
        ..TokenizerData::default()
    }
}

fn tok512() -> Tokenizer {
    Tokenizer::new(&byte_level(include_str!("fixtures/tokenizer/tok512.json"), "qwen2")).unwrap()
}

fn tok512_cases() -> Vec<Case> {
    serde_json::from_str(include_str!("fixtures/tokenizer/tok512_ids.json")).unwrap()
}

#[test]
fn ids_of_hard_texts_are_hugging_faces() {
    let tokenizer = tok512();
    let cases = tok512_cases();
    assert_eq!(cases.len(), 12);
    for case in cases {
        assert_eq!(tokenizer.encode(&case.text, Special::Parse).unwrap(), case.hf, "{:?}", case.text);
    }
}

#[test]
fn llama_cpp_differs_only_where_normalisation_does() {
    for case in tok512_cases() {
        assert_eq!(case.hf == case.llama_cpp, unicode_normalization::is_nfc(&case.text), "{:?}", case.text);
    }
}

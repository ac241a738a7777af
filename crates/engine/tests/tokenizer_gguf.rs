//! Tokenizers from the keys of GGUF files.

use argon_engine::tokenizer::{Special, Tokenizer, TokenizerData, TokenizerError};
use argon_gguf::{Error, Gguf, Metadata, Writer};

fn metadata(file: Writer<'_>) -> Metadata {
    let mut bytes = Vec::new();
    file.write(&mut bytes).unwrap();
    Gguf::from_bytes(bytes).unwrap().metadata().clone()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

#[test]
fn every_key_arrives_in_its_place() {
    let metadata = metadata(
        Writer::new()
            .metadata("tokenizer.ggml.model", "gpt2")
            .metadata("tokenizer.ggml.pre", "qwen2")
            .metadata("tokenizer.ggml.tokens", strings(&["a", "b", "ab"]))
            .metadata("tokenizer.ggml.scores", vec![0.5f32, 1.5, 2.5])
            .metadata("tokenizer.ggml.token_type", vec![1i32, 3, 4])
            .metadata("tokenizer.ggml.merges", strings(&["a b"]))
            .metadata("tokenizer.ggml.bos_token_id", 10u32)
            .metadata("tokenizer.ggml.eos_token_id", 11u32)
            .metadata("tokenizer.ggml.eot_token_id", 12u32)
            .metadata("tokenizer.ggml.eom_token_id", 13u32)
            .metadata("tokenizer.ggml.unknown_token_id", 14u32)
            .metadata("tokenizer.ggml.add_bos_token", true)
            .metadata("tokenizer.ggml.add_eos_token", false)
            .metadata("tokenizer.ggml.add_space_prefix", true),
    );
    let expected = TokenizerData {
        model: "gpt2".into(),
        pre: Some("qwen2".into()),
        tokens: strings(&["a", "b", "ab"]),
        scores: vec![0.5, 1.5, 2.5],
        token_types: vec![1, 3, 4],
        merges: strings(&["a b"]),
        bos: Some(10),
        eos: Some(11),
        eot: Some(12),
        eom: Some(13),
        unknown: Some(14),
        add_bos: Some(true),
        add_eos: Some(false),
        add_space_prefix: Some(true),
    };
    assert_eq!(TokenizerData::from_gguf(&metadata), Ok(expected));
}

#[test]
fn keys_that_are_absent_are_absent() {
    let file =
        Writer::new().metadata("tokenizer.ggml.model", "llama").metadata("tokenizer.ggml.tokens", strings(&["a"]));
    let expected = TokenizerData { model: "llama".into(), tokens: strings(&["a"]), ..TokenizerData::default() };
    assert_eq!(TokenizerData::from_gguf(&metadata(file)), Ok(expected));
}

#[test]
fn a_key_that_is_missing_or_of_another_type_is_named() {
    let file = Writer::new().metadata("tokenizer.ggml.model", "gpt2");
    let missing = Error::MissingKey { key: "tokenizer.ggml.tokens".into() };
    assert_eq!(Tokenizer::from_gguf(&metadata(file)).unwrap_err(), TokenizerError::Gguf(missing));
    let file = Writer::new().metadata("tokenizer.ggml.model", "gpt2").metadata("tokenizer.ggml.tokens", vec![1u32]);
    let error = Tokenizer::from_gguf(&metadata(file)).unwrap_err();
    assert!(matches!(&error, TokenizerError::Gguf(Error::ValueType { key, .. }) if key == "tokenizer.ggml.tokens"));
}

/// What it is trained on is not fixed here: its vocabulary may change with the next training.
#[test]
fn the_embedded_model_has_a_tokenizer() {
    let model = Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/argon-tiny.gguf")).unwrap();
    let tokenizer = Tokenizer::from_gguf(model.metadata()).unwrap();
    let code = "fn main() {\n    println!(\"Hello, world! \u{e9} \u{4e16}\u{754c} \u{1f680}\");\r\n}\n";
    let ids = tokenizer.encode_prompt(code, Special::AsText).unwrap();
    assert!(ids.len() < code.len() * 2 / 3, "{} ids", ids.len());
    assert_eq!(tokenizer.decode(&ids).unwrap(), code);
    let eos = tokenizer.eos().unwrap();
    assert!(tokenizer.is_end_of_generation(eos));
    assert_eq!(tokenizer.encode(tokenizer.token_text(eos).unwrap(), Special::Parse).unwrap(), [eos]);
}

//! Broken tokenizers in files: one error that names the key, never a panic.

use std::sync::LazyLock;

use argon_engine::tokenizer::{Special, TokenKind, Tokenizer, TokenizerData, TokenizerError};
use proptest::prelude::*;

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

/// Bytes `a`, `b` and `c`, and one merge.
fn bpe() -> TokenizerData {
    TokenizerData {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: strings(&["a", "b", "c", "ab", "<s>"]),
        token_types: vec![1, 1, 1, 1, 3],
        merges: strings(&["a b"]),
        ..TokenizerData::default()
    }
}

/// `\u{2581}`, `a`, `b` and `ab`, with an unknown token.
fn sentencepiece() -> TokenizerData {
    TokenizerData {
        model: "llama".into(),
        tokens: strings(&["<unk>", "\u{2581}", "a", "b", "ab"]),
        token_types: vec![2, 1, 1, 1, 1],
        scores: vec![0.0, -1.0, -2.0, -3.0, -4.0],
        unknown: Some(0),
        ..TokenizerData::default()
    }
}

fn error(data: &TokenizerData) -> TokenizerError {
    Tokenizer::new(data).unwrap_err()
}

#[test]
fn the_examples_are_sound() {
    assert_eq!(Tokenizer::new(&bpe()).unwrap().encode("abc", Special::AsText).unwrap(), [3, 2]);
    assert_eq!(Tokenizer::new(&sentencepiece()).unwrap().encode("abz", Special::AsText).unwrap(), [1, 4, 0]);
}

#[test]
fn names_that_are_not_known() {
    let data = TokenizerData { model: "rwkv".into(), ..bpe() };
    assert_eq!(error(&data), TokenizerError::UnknownModel { model: "rwkv".into() });
    let data = TokenizerData { pre: Some("x".repeat(1000)), ..bpe() };
    let message = error(&data).to_string();
    assert!(message.starts_with("tokenizer.ggml.pre: \"xxx") && message.contains("qwen35"), "{message}");
    assert!(message.len() < 500, "{message}");
    let data = TokenizerData { pre: None, ..bpe() };
    assert_eq!(error(&data), TokenizerError::MissingKey { key: "tokenizer.ggml.pre" });
}

#[test]
fn arrays_of_other_lengths() {
    let data = TokenizerData { tokens: vec![], ..bpe() };
    assert_eq!(error(&data), TokenizerError::EmptyVocabulary);
    let data = TokenizerData { token_types: vec![1; 4], ..bpe() };
    assert_eq!(error(&data), TokenizerError::Length { key: "tokenizer.ggml.token_type", expected: 5, found: 4 });
    let data = TokenizerData { scores: vec![0.0; 6], ..sentencepiece() };
    assert_eq!(error(&data), TokenizerError::Length { key: "tokenizer.ggml.scores", expected: 5, found: 6 });
    let data = TokenizerData { scores: vec![], ..sentencepiece() };
    assert_eq!(error(&data), TokenizerError::MissingKey { key: "tokenizer.ggml.scores" });
}

#[test]
fn tokens_that_are_wrong() {
    let data = TokenizerData { tokens: strings(&["a", "b", "c", "a", "<s>"]), ..bpe() };
    assert_eq!(error(&data), TokenizerError::DuplicateToken { first: 0, second: 3, text: "a".into() });
    let data = TokenizerData { token_types: vec![1, 1, 7, 1, 3], ..bpe() };
    assert_eq!(error(&data), TokenizerError::TokenType { id: 2, value: 7 });
    for text in ["<0xG0>", "<0x1>", "<0x+1>", "0x01", "<0x001>", ""] {
        let mut data = sentencepiece();
        data.tokens[4] = text.into();
        data.token_types[4] = TokenKind::Byte as i32;
        assert_eq!(error(&data), TokenizerError::ByteToken { id: 4, text: text.into() });
    }
    let data = TokenizerData { scores: vec![0.0, 0.0, f32::NAN, 0.0, 0.0], ..sentencepiece() };
    assert_eq!(error(&data), TokenizerError::Score { id: 2 });
}

#[test]
fn a_special_token_too_long_to_be_searched_for() {
    let mut data = bpe();
    data.tokens[4] = "<".repeat(1024);
    assert!(Tokenizer::new(&data).is_ok());
    data.tokens[4].push('>');
    let reason = "id 4 has 1025 bytes, more than 1024".into();
    assert_eq!(error(&data), TokenizerError::SpecialTokens { reason });
}

#[test]
fn empty_tokens_are_padding() {
    let data =
        TokenizerData { tokens: strings(&["a", "", "", "b", "ab", "c"]), token_types: vec![1, 1, 3, 1, 1, 1], ..bpe() };
    assert_eq!(Tokenizer::new(&data).unwrap().encode("abc", Special::Parse).unwrap(), [4, 5]);
}

#[test]
fn merges_that_are_wrong() {
    for (entry, reason) in [
        ("ab", "it has no space between two tokens"),
        ("x b", "its left side is no token"),
        ("a x", "its right side is no token"),
        ("a  b", "its right side is no token"),
        ("b a", "its result is no token"),
        ("a b", "the same pair is merged by an earlier entry"),
        ("", "it has no space between two tokens"),
        (" ", "its left side is no token"),
    ] {
        let data = TokenizerData { merges: strings(&["a b", entry]), ..bpe() };
        assert_eq!(error(&data), TokenizerError::Merge { index: 1, merge: entry.into(), reason });
    }
}

#[test]
fn a_byte_level_vocabulary_without_merges() {
    let data = TokenizerData { merges: vec![], ..bpe() };
    assert_eq!(error(&data), TokenizerError::MissingKey { key: "tokenizer.ggml.merges" });
}

#[test]
fn ids_outside_the_vocabulary() {
    type Field = fn(&mut TokenizerData) -> &mut Option<u32>;
    let cases: [(&str, Field); 5] = [
        ("tokenizer.ggml.bos_token_id", |data| &mut data.bos),
        ("tokenizer.ggml.eos_token_id", |data| &mut data.eos),
        ("tokenizer.ggml.eot_token_id", |data| &mut data.eot),
        ("tokenizer.ggml.eom_token_id", |data| &mut data.eom),
        ("tokenizer.ggml.unknown_token_id", |data| &mut data.unknown),
    ];
    for (key, field) in cases {
        for (mut data, id) in [(bpe(), 5), (sentencepiece(), u32::MAX)] {
            *field(&mut data) = Some(id);
            assert_eq!(error(&data), TokenizerError::IdOutOfRange { key, id, vocabulary: 5 });
        }
    }
}

#[test]
fn bos_or_eos_wanted_but_not_named() {
    let data = TokenizerData { add_bos: Some(true), ..bpe() };
    assert_eq!(error(&data), TokenizerError::MissingKey { key: "tokenizer.ggml.bos_token_id" });
    let data = TokenizerData { add_eos: Some(true), ..bpe() };
    assert_eq!(error(&data), TokenizerError::MissingKey { key: "tokenizer.ggml.eos_token_id" });
}

#[test]
fn a_text_that_the_vocabulary_cannot_spell() {
    let encode = |data: &TokenizerData, text| Tokenizer::new(data).unwrap().encode(text, Special::AsText);
    assert_eq!(encode(&bpe(), "abd"), Err(TokenizerError::NoTokenForByte { byte: b'd' }));
    let data = TokenizerData { unknown: None, ..sentencepiece() };
    assert_eq!(encode(&data, "\u{e9}"), Err(TokenizerError::NoTokenForByte { byte: 0xC3 }));
}

/// Vocabularies with all that can be wrong, from few letters so that some are sound.
fn any_data() -> impl Strategy<Value = TokenizerData> {
    let token = prop_oneof!["[ab\u{120}\u{2581}]{0,3}", "<0x[0-9A-F]{2}>", "<[/|]?s[|]?>", ".{0,3}"];
    let id = || prop::option::weighted(0.5, 0u32..12);
    let flag = || prop::option::of(any::<bool>());
    let texts = (
        prop_oneof![4 => Just("gpt2"), 4 => Just("llama"), 1 => Just("")],
        prop::option::weighted(0.9, prop_oneof![Just("qwen2"), Just("llama-bpe"), Just("deepseek-v3"), Just("?")]),
        prop::collection::vec(token, 0..10),
        prop::collection::vec("[ab\u{120} ]{0,4}", 0..3),
    );
    let numbers = (
        prop::collection::vec(prop_oneof![9 => -9f32..9.0, 1 => any::<f32>()], 0..10),
        prop::collection::vec(prop_oneof![9 => 1..7, 1 => any::<i32>()], 0..10),
        any::<bool>(),
    );
    let keys = (id(), id(), id(), id(), id(), flag(), flag(), flag());
    (texts, numbers, keys).prop_map(|((model, pre, tokens, merges), (mut scores, mut token_types, fitting), keys)| {
        if fitting {
            scores.resize(tokens.len(), 0.5);
            token_types.resize(tokens.len(), 1);
        }
        TokenizerData {
            model: model.into(),
            pre: pre.map(String::from),
            tokens,
            scores,
            token_types,
            merges,
            bos: keys.0,
            eos: keys.1,
            eot: keys.2,
            eom: keys.3,
            unknown: keys.4,
            add_bos: keys.5,
            add_eos: keys.6,
            add_space_prefix: keys.7,
        }
    })
}

/// Tokenizers of both kinds that spell every byte, and merges that build on one another.
static ALL_BYTES: LazyLock<[Tokenizer; 3]> = LazyLock::new(|| {
    let [sentencepiece, prefixing] = [false, true].map(sentencepiece_bytes);
    [bpe_bytes(), sentencepiece, prefixing].map(|data| Tokenizer::new(&data).unwrap())
});

fn bpe_bytes() -> TokenizerData {
    let printable = |byte: u32| {
        let spare = (0..byte).filter(|&b| !matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)).count() as u32;
        char::from_u32(if matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) { byte } else { 0x100 + spare })
    };
    let mut tokens: Vec<String> = (0..256).map(|byte| printable(byte).unwrap().to_string()).collect();
    tokens.extend(strings(&["ab", "abab", "\u{120}a", "\u{120}\u{120}"]));
    let merges = strings(&["a b", "ab ab", "\u{120} a", "\u{120} \u{120}"]);
    TokenizerData { model: "gpt2".into(), pre: Some("gpt-4o".into()), tokens, merges, ..TokenizerData::default() }
}

fn sentencepiece_bytes(add_space_prefix: bool) -> TokenizerData {
    let mut tokens: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    tokens.extend(strings(&["a", "b", "ab", "abab", "\u{2581}", "\u{2581}a", "\u{2581}\u{2581}"]));
    let token_types = (0..tokens.len()).map(|id| if id < 256 { 6 } else { 1 }).collect();
    let scores = (0..tokens.len()).map(|id| -(id as f32)).collect();
    TokenizerData {
        model: "llama".into(),
        tokens,
        scores,
        token_types,
        add_space_prefix: Some(add_space_prefix),
        ..TokenizerData::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_data_gives_a_tokenizer_or_an_error(data in any_data(), text in "[ab <>s|/\u{2581}\u{e9}]{0,12}") {
        if let Ok(tokenizer) = Tokenizer::new(&data) {
            for special in [Special::AsText, Special::Parse] {
                if let Ok(ids) = tokenizer.encode_prompt(&text, special) {
                    prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
                    prop_assert!(tokenizer.decode(&ids).is_ok());
                }
            }
        }
    }

    #[test]
    fn a_text_comes_back(text in "(.|[ab \n]){0,40}", special in any::<bool>()) {
        let special = if special { Special::Parse } else { Special::AsText };
        for tokenizer in &*ALL_BYTES {
            let ids = tokenizer.encode(&text, special).unwrap();
            // SentencePiece cannot tell the character that it spells a space with from a space.
            let expected = text.replace('\u{2581}', " ");
            prop_assert_eq!(tokenizer.decode(&ids).unwrap().replace('\u{2581}', " "), expected);
        }
    }

    #[test]
    fn a_stream_agrees_with_decode(ids in prop::collection::vec(0u32..260, 0..12)) {
        let tokenizer = &ALL_BYTES[0];
        let mut stream = tokenizer.stream_decoder();
        let mut text: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        text.push_str(&stream.finish());
        prop_assert_eq!(text, tokenizer.decode(&ids).unwrap());
    }
}

//! Ids against those that Hugging Face's tokenizers wrote for the same vocabulary (see fixtures/tokenizer/README.md).

use std::collections::BTreeMap;

use argon_engine::tokenizer::{Special, TokenKind, Tokenizer, TokenizerData, TokenizerError};
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

/// One vocabulary, and its ids under every family's rules.
#[derive(Deserialize)]
struct ByteLevel {
    tokens: Vec<String>,
    merges: Vec<String>,
    texts: Vec<String>,
    families: Vec<FamilyIds>,
}

#[derive(Deserialize)]
struct FamilyIds {
    pre: String,
    /// For each text.
    ids: Vec<Vec<u32>>,
}

impl ByteLevel {
    fn tokenizer(&self, pre: &str) -> Tokenizer {
        Tokenizer::new(&TokenizerData {
            model: "gpt2".into(),
            pre: Some(pre.into()),
            tokens: self.tokens.clone(),
            merges: self.merges.clone(),
            ..TokenizerData::default()
        })
        .unwrap()
    }
}

#[test]
fn every_family_splits_as_its_own_tokenizer_does() {
    let fixture: ByteLevel = serde_json::from_str(include_str!("fixtures/tokenizer/byte_level.json")).unwrap();
    assert_eq!(fixture.families.len(), 15);
    for family in &fixture.families {
        let tokenizer = fixture.tokenizer(&family.pre);
        assert_eq!(family.ids.len(), fixture.texts.len());
        for (text, ids) in fixture.texts.iter().zip(&family.ids) {
            assert_eq!(&tokenizer.encode(text, Special::AsText).unwrap(), ids, "{}: {text:?}", family.pre);
        }
    }
}

/// A model of Google's sentencepiece, and what it makes of some texts.
#[derive(Deserialize)]
struct SentencePiece {
    add_space_prefix: bool,
    unknown: u32,
    bos: u32,
    eos: u32,
    tokens: Vec<String>,
    scores: Vec<f32>,
    token_types: Vec<i32>,
    texts: Vec<String>,
    ids: Vec<Vec<u32>>,
    decoded: Vec<String>,
}

fn sentencepiece() -> Vec<SentencePiece> {
    serde_json::from_str(include_str!("fixtures/tokenizer/sentencepiece.json")).unwrap()
}

impl SentencePiece {
    fn data(&self) -> TokenizerData {
        TokenizerData {
            model: "llama".into(),
            tokens: self.tokens.clone(),
            scores: self.scores.clone(),
            token_types: self.token_types.clone(),
            bos: Some(self.bos),
            eos: Some(self.eos),
            unknown: Some(self.unknown),
            add_space_prefix: Some(self.add_space_prefix),
            ..TokenizerData::default()
        }
    }

    fn has_byte_tokens(&self) -> bool {
        self.token_types.contains(&(TokenKind::Byte as i32))
    }
}

#[test]
fn sentencepiece_ids_are_googles() {
    let models = sentencepiece();
    assert_eq!(models.len(), 3);
    for model in models {
        let tokenizer = Tokenizer::new(&model.data()).unwrap();
        for ((text, ids), decoded) in model.texts.iter().zip(&model.ids).zip(&model.decoded) {
            assert_eq!(&tokenizer.encode(text, Special::AsText).unwrap(), ids, "{text:?}");
            if model.has_byte_tokens() {
                assert_eq!(&tokenizer.decode(ids).unwrap(), decoded, "{text:?}");
                assert_eq!(decoded, text);
            }
        }
    }
}

#[test]
fn control_tokens_in_a_text_are_text_unless_asked_for() {
    let tokenizer = tok512();
    let text = "a<|im_end|>b";
    assert_eq!(tokenizer.encode(text, Special::Parse).unwrap(), [64, 509, 65]);
    let spelled = tokenizer.encode(text, Special::AsText).unwrap();
    assert!(!spelled.contains(&509) && spelled.len() > 3, "{spelled:?}");
    assert_eq!(tokenizer.decode(&spelled).unwrap(), text);
    assert_eq!(tokenizer.decode(&[64, 509, 65]).unwrap(), text);
}

#[test]
fn user_defined_tokens_are_found_in_any_text_the_longest_first() {
    let mut data = byte_level(include_str!("fixtures/tokenizer/tok512.json"), "qwen2");
    for text in ["<think", "<think>", "hi  there"] {
        data.tokens.push(text.into());
        data.token_types.push(TokenKind::UserDefined as i32);
    }
    let tokenizer = Tokenizer::new(&data).unwrap();
    for special in [Special::AsText, Special::Parse] {
        assert_eq!(tokenizer.encode("<think>a<think", special).unwrap(), [513, 64, 512]);
        assert_eq!(tokenizer.encode("hi  there", special).unwrap(), [514]);
    }
    assert_eq!(tokenizer.decode(&[514, 513]).unwrap(), "hi  there<think>");
}

/// Found by the fuzz target: a control token spelled as the character that hides control tokens was found in hidden ones.
#[test]
fn a_control_token_that_spells_hidden_ones_is_text() {
    let mut data = byte_level(include_str!("fixtures/tokenizer/tok512.json"), "qwen2");
    data.tokens.push("\u{fdd0}".into());
    data.token_types.push(TokenKind::Control as i32);
    let tokenizer = Tokenizer::new(&data).unwrap();
    for text in ["a<|im_end|>b", "\u{fdd0}"] {
        let hidden = tokenizer.encode(&tokenizer.hide_control(text), Special::ParseShown).unwrap();
        assert_eq!(hidden, tokenizer.encode(text, Special::AsText).unwrap());
        assert_eq!(tokenizer.decode(&hidden).unwrap(), text);
    }
}

#[test]
fn a_prompt_gets_bos_and_eos_where_the_file_says_and_never_twice() {
    let data = TokenizerData {
        bos: Some(510),
        eos: Some(509),
        ..byte_level(include_str!("fixtures/tokenizer/tok512.json"), "qwen2")
    };
    let prompt =
        |data: &TokenizerData, text| Tokenizer::new(data).unwrap().encode_prompt(text, Special::Parse).unwrap();
    // Without the keys add_bos_token and add_eos_token, nothing is added.
    assert_eq!(prompt(&data, "a"), [64]);
    let both = TokenizerData { add_bos: Some(true), add_eos: Some(true), ..data.clone() };
    assert_eq!(prompt(&both, "a"), [510, 64, 509]);
    assert_eq!(prompt(&both, "<|bos|>a<|im_end|>"), [510, 64, 509]);
    assert_eq!(prompt(&both, ""), [510, 509]);
    // A user's text that spells BOS is no BOS.
    let ids = Tokenizer::new(&both).unwrap().encode_prompt("<|bos|>", Special::AsText).unwrap();
    assert_eq!(ids[0], 510);
    assert!(ids.len() > 3 && !ids[1..].contains(&510), "{ids:?}");
    // Llama 3's tokenizer adds BOS although its files do not say so.
    let llama = TokenizerData { pre: Some("llama-bpe".into()), ..data.clone() };
    assert_eq!(prompt(&llama, "a"), [510, 64]);
    assert_eq!(prompt(&TokenizerData { add_bos: Some(false), ..llama.clone() }, "a"), [64]);
    assert_eq!(prompt(&TokenizerData { bos: None, ..llama }, "a"), [64]);
}

#[test]
fn a_sentencepiece_prompt_begins_with_bos_unless_the_file_says_no() {
    let data = sentencepiece()[0].data();
    let prompt = |data: &TokenizerData| Tokenizer::new(data).unwrap().encode_prompt("", Special::AsText).unwrap();
    assert_eq!(prompt(&data), [1]);
    assert_eq!(prompt(&TokenizerData { add_bos: Some(false), ..data.clone() }), [0u32; 0]);
    assert_eq!(prompt(&TokenizerData { bos: None, ..data }), [0u32; 0]);
}

#[test]
fn sentencepiece_text_behind_a_special_token_gets_its_space_too() {
    let tokenizer = Tokenizer::new(&sentencepiece()[0].data()).unwrap();
    let text = tokenizer.encode("hello", Special::AsText).unwrap();
    let ids = tokenizer.encode("hello</s>hello", Special::Parse).unwrap();
    assert_eq!(ids, [&text[..], &[2], &text[..]].concat());
    assert_eq!(tokenizer.decode(&ids).unwrap(), "hello</s>hello");
    // llama.cpp's ids.
    assert_eq!(tokenizer.encode("hello</s>hello <s> x", Special::Parse).unwrap(), [309, 2, 309, 459, 1, 259, 478]);
    assert_eq!(tokenizer.encode("hello</s>", Special::AsText).unwrap(), [309, 507, 466, 464, 491]);
}

#[test]
fn an_answer_ends_at_eos_and_at_known_control_tokens() {
    let data = byte_level(include_str!("fixtures/tokenizer/tok512.json"), "qwen2");
    let ends = |data: &TokenizerData| {
        let tokenizer = Tokenizer::new(data).unwrap();
        (0..512).filter(|&id| tokenizer.is_end_of_generation(id)).collect::<Vec<_>>()
    };
    assert_eq!(ends(&data), [507, 509]);
    assert_eq!(ends(&TokenizerData { eos: Some(511), eot: Some(5), eom: Some(6), ..data }), [5, 6, 507, 509, 511]);
}

#[test]
fn a_stream_gives_whole_characters_and_what_decode_gives() {
    let tokenizer = tok512();
    let text = "a\u{e9}\u{4f60}\u{1f680}<|im_end|>";
    let ids = tokenizer.encode(text, Special::Parse).unwrap();
    let mut stream = tokenizer.stream_decoder();
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    assert_eq!(stream.finish(), "");
    assert_eq!(pieces.concat(), text);
    assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')));
    assert_eq!(pieces.iter().filter(|piece| piece.is_empty()).count(), 1 + 2 + 3);

    let mut stream = tokenizer.stream_decoder();
    let broken = &ids[..ids.len() - 2];
    let pieces: Vec<String> = broken.iter().map(|&id| stream.push(id).unwrap()).collect();
    assert_eq!(pieces.concat() + &stream.finish(), tokenizer.decode(broken).unwrap());
    assert!(tokenizer.decode(broken).unwrap().ends_with('\u{fffd}'));
}

#[test]
fn an_id_outside_the_vocabulary_is_an_error() {
    let tokenizer = tok512();
    let error = TokenizerError::UnknownId { id: 512, vocabulary: 512 };
    assert_eq!(tokenizer.decode(&[0, 512]), Err(error.clone()));
    assert_eq!(tokenizer.stream_decoder().push(512), Err(error.clone()));
    assert_eq!(tokenizer.token_bytes(512), Err(error));
    assert_eq!(tokenizer.token_bytes(511), Ok(&b"<|pad|>"[..]));
}

/// Were any step quadratic, this would run for hours: a million characters are one word, or a million words.
fn no_trap(tokenizer: &Tokenizer) {
    for unit in ["a", " ", "\n", "7", "\u{4e16}", "\u{301}", "\u{1f680}", " \n"] {
        let text = unit.repeat(1_000_000 / unit.len()) + "x";
        let ids = tokenizer.encode(&text, Special::AsText).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
}

#[test]
fn a_megabyte_of_one_character_is_no_trap_for_byte_level_bpe() {
    let fixture: ByteLevel = serde_json::from_str(include_str!("fixtures/tokenizer/byte_level.json")).unwrap();
    no_trap(&fixture.tokenizer("qwen2"));
    no_trap(&fixture.tokenizer("deepseek-llm"));
}

#[test]
fn a_megabyte_of_one_character_is_no_trap_for_sentencepiece() {
    no_trap(&Tokenizer::new(&sentencepiece()[0].data()).unwrap());
}

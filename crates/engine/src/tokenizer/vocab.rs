//! The vocabulary: each id's text, bytes and kind.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::byte_level;
use super::data::{TokenKind, TokenizerData};
use super::error::{TokenizerError, excerpt};

/// How the tokens of a vocabulary spell their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// One character for each byte, see [`byte_level`].
    ByteLevel,
    /// UTF-8 with `▁` for a space.
    SentencePiece,
}

/// Stands for a space in a SentencePiece vocabulary.
pub(super) const SPACE: &str = "▁";

#[derive(Debug, Clone)]
struct Token {
    text: String,
    bytes: Box<[u8]>,
    kind: TokenKind,
}

/// Checked tokens, by id and by text.
#[derive(Debug, Clone)]
pub(super) struct Vocab {
    tokens: Vec<Token>,
    ids: HashMap<String, u32>,
}

impl Vocab {
    /// Checks the vocabulary of `data`: not empty, one kind for each token, no text twice.
    ///
    /// Empty texts may repeat: converters pad with them, and no text can ask for one.
    pub(super) fn new(data: &TokenizerData, spelling: Spelling) -> Result<Self, TokenizerError> {
        let count = data.tokens.len();
        if count == 0 {
            return Err(TokenizerError::EmptyVocabulary);
        }
        if count >= u32::MAX as usize {
            return Err(TokenizerError::VocabularyTooLarge { count });
        }
        for (key, found) in
            [("tokenizer.ggml.token_type", data.token_types.len()), ("tokenizer.ggml.scores", data.scores.len())]
        {
            if found != 0 && found != count {
                return Err(TokenizerError::Length { key, expected: count, found });
            }
        }
        let mut vocab = Self { tokens: Vec::with_capacity(count), ids: HashMap::with_capacity(count) };
        for (id, text) in (0..).zip(&data.tokens) {
            let value = data.token_types.get(id as usize).copied().unwrap_or(TokenKind::Normal as i32);
            let kind = TokenKind::from_gguf(value).ok_or(TokenizerError::TokenType { id, value })?;
            vocab.push(id, text, kind, spelling)?;
        }
        Ok(vocab)
    }

    fn push(&mut self, id: u32, text: &str, kind: TokenKind, spelling: Spelling) -> Result<(), TokenizerError> {
        if !text.is_empty() {
            match self.ids.entry(text.to_owned()) {
                Entry::Vacant(vacant) => vacant.insert(id),
                Entry::Occupied(first) => {
                    let first = *first.get();
                    return Err(TokenizerError::DuplicateToken { first, second: id, text: excerpt(text) });
                }
            };
        }
        let bytes = match kind {
            TokenKind::Normal | TokenKind::Unused => spelled_bytes(text, spelling),
            TokenKind::Unknown | TokenKind::Control | TokenKind::UserDefined => text.as_bytes().to_vec(),
            TokenKind::Byte => match byte_token(text) {
                Some(byte) => vec![byte],
                None => return Err(TokenizerError::ByteToken { id, text: excerpt(text) }),
            },
        };
        self.tokens.push(Token { text: text.to_owned(), bytes: bytes.into(), kind });
        Ok(())
    }

    /// The number of tokens.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The id whose text in the file is `text`.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The text of `id` in the file.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(|token| token.text.as_str())
    }

    /// The bytes that `id` stands for.
    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.tokens.get(id as usize).map(|token| &*token.bytes)
    }

    /// What `id` is for.
    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.tokens.get(id as usize).map(|token| token.kind)
    }

    /// All tokens in the order of their ids: (id, text in the file, kind).
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        (0..).zip(&self.tokens).map(|(id, token)| (id, token.text.as_str(), token.kind))
    }

    /// Checks that the id under `key`, if there is one, is in the vocabulary.
    pub(super) fn check_id(&self, key: &'static str, id: Option<u32>) -> Result<(), TokenizerError> {
        match id {
            Some(id) if id as usize >= self.len() => {
                Err(TokenizerError::IdOutOfRange { key, id, vocabulary: self.len() })
            }
            _ => Ok(()),
        }
    }
}

/// The bytes of an ordinary token; a byte-level one that uses other characters stands for its own UTF-8.
fn spelled_bytes(text: &str, spelling: Spelling) -> Vec<u8> {
    match spelling {
        Spelling::ByteLevel => byte_level::bytes_of(text).unwrap_or_else(|| text.as_bytes().to_vec()),
        Spelling::SentencePiece => text.replace(SPACE, " ").into_bytes(),
    }
}

/// The byte of a token spelled `<0xHH>`.
fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let hexadecimal = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    hexadecimal.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

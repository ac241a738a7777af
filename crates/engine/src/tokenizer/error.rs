//! What can be wrong with a file's tokenizer, or with a text for it.

use thiserror::Error;

/// A tokenizer that cannot be built, or a text or id that it cannot handle.
///
/// Every variant names the metadata key, token or byte at fault.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TokenizerError {
    /// A key is missing, or holds what it must not.
    #[error(transparent)]
    Gguf(#[from] argon_gguf::Error),
    /// A key that this kind of tokenizer needs is not in the file.
    #[error("{key} is missing")]
    MissingKey {
        /// The metadata key.
        key: &'static str,
    },
    /// `tokenizer.ggml.model` names a kind of tokenizer that Argon has not got.
    #[error("tokenizer.ggml.model: {model:?} is not supported (supported: gpt2, llama)")]
    UnknownModel {
        /// The name in the file, cut to a readable length.
        model: String,
    },
    /// `tokenizer.ggml.pre` names a pre-tokenizer that Argon has not got.
    #[error("tokenizer.ggml.pre: {pre:?} is not supported (supported: {supported})")]
    UnknownPre {
        /// The name in the file, cut to a readable length.
        pre: String,
        /// All names that are known, separated by commas.
        supported: String,
    },
    /// The vocabulary has no entry.
    #[error("tokenizer.ggml.tokens is empty")]
    EmptyVocabulary,
    /// The vocabulary has more entries than an id can count.
    #[error("tokenizer.ggml.tokens has {count} entries, more than {max}", max = u32::MAX - 1)]
    VocabularyTooLarge {
        /// The number of entries.
        count: usize,
    },
    /// An array that runs parallel to the vocabulary has another length.
    #[error("{key} has {found} entries, tokenizer.ggml.tokens has {expected}")]
    Length {
        /// The key of the array.
        key: &'static str,
        /// The vocabulary's length.
        expected: usize,
        /// The array's length.
        found: usize,
    },
    /// Two ids have the same text, so a text has no single id.
    #[error("tokenizer.ggml.tokens: ids {first} and {second} are both {text:?}")]
    DuplicateToken {
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
        /// Their text, cut to a readable length.
        text: String,
    },
    /// A token type outside 1..=6.
    #[error("tokenizer.ggml.token_type: id {id} has the unknown type {value}")]
    TokenType {
        /// The token.
        id: u32,
        /// The value in the file.
        value: i32,
    },
    /// A token of type byte whose text is not `<0xHH>`.
    #[error("tokenizer.ggml.tokens: id {id} is of type byte, but its text is {text:?}")]
    ByteToken {
        /// The token.
        id: u32,
        /// Its text, cut to a readable length.
        text: String,
    },
    /// A score that is not a number cannot be ordered.
    #[error("tokenizer.ggml.scores: id {id} has the score NaN")]
    Score {
        /// The token.
        id: u32,
    },
    /// A merge that is not two tokens of the vocabulary whose concatenation is a third.
    #[error("tokenizer.ggml.merges: entry {index}, {merge:?}: {reason}")]
    Merge {
        /// Index into the array of merges.
        index: usize,
        /// The entry, cut to a readable length.
        merge: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A key names a token id outside the vocabulary.
    #[error("{key} is {id}, but the vocabulary has {vocabulary} tokens")]
    IdOutOfRange {
        /// The metadata key.
        key: &'static str,
        /// The id in the file.
        id: u32,
        /// The vocabulary's length.
        vocabulary: usize,
    },
    /// The special tokens together are too many or too long to be searched for.
    #[error("tokenizer.ggml.tokens: the special tokens cannot be searched for: {reason}")]
    SpecialTokens {
        /// The matcher's own reason.
        reason: String,
    },
    /// The text holds a byte (of a character's UTF-8) that no token stands for.
    #[error("the vocabulary has no token for the byte 0x{byte:02X}")]
    NoTokenForByte {
        /// The byte.
        byte: u8,
    },
    /// The text is longer than the tokenizer can index.
    #[error("the text has {bytes} bytes, more than {max}", max = u32::MAX - 1)]
    TextTooLong {
        /// The text's length.
        bytes: usize,
    },
    /// An id outside the vocabulary was to be decoded.
    #[error("token id {id} is outside the vocabulary of {vocabulary} tokens")]
    UnknownId {
        /// The id.
        id: u32,
        /// The vocabulary's length.
        vocabulary: usize,
    },
}

/// The first characters of a text from a file, short enough for a message.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

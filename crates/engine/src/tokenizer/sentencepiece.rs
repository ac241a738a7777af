//! SentencePiece with scores, GGUF's `llama`.
//!
//! A text is one word: spaces are written `▁`, every character is a symbol, and the neighbours whose concatenation is
//! the token of the highest score merge first. The space in front of a text stands in front of each stretch between special
//! tokens, as in llama.cpp and in Hugging Face's tokenizers of Llama and Mixtral. What remains unknown is
//! spelled byte by byte (`<0xE4>`), or is the unknown token in a vocabulary without byte tokens.

use std::collections::HashMap;

use super::data::{TokenKind, TokenizerData};
use super::error::TokenizerError;
use super::merge::{Rules, merge_all};
use super::vocab::{SPACE, Vocab};

/// Merges the characters of a text by score.
#[derive(Debug, Clone)]
pub(super) struct SentencePiece {
    pieces: HashMap<String, Piece>,
    /// Bytes of the longest piece: nothing longer is looked up.
    longest: usize,
    byte_ids: [Option<u32>; 256],
    unknown: Option<u32>,
    add_space_prefix: bool,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    id: u32,
    /// Orders merges: low for a high score.
    rank: u32,
}

impl SentencePiece {
    /// Reads `tokenizer.ggml.scores`, `unknown_token_id` and `add_space_prefix` of `data`.
    ///
    /// Control, unknown and byte tokens are no pieces: text never becomes one of them by merging. Without the key
    /// `add_space_prefix` a space is put in front, as Llama's and Mixtral's tokenizers do.
    pub(super) fn new(data: &TokenizerData, vocab: &Vocab) -> Result<Self, TokenizerError> {
        if data.scores.is_empty() {
            return Err(TokenizerError::MissingKey { key: "tokenizer.ggml.scores" });
        }
        let mut pieces = HashMap::with_capacity(vocab.len());
        let mut byte_ids = [None; 256];
        for ((id, text, kind), &score) in vocab.iter().zip(&data.scores) {
            if score.is_nan() {
                return Err(TokenizerError::Score { id });
            }
            match kind {
                TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused if !text.is_empty() => {
                    pieces.insert(text.to_owned(), Piece { id, rank: rank(score) });
                }
                TokenKind::Byte => {
                    if let Some(&[byte]) = vocab.bytes(id) {
                        byte_ids[usize::from(byte)] = Some(id);
                    }
                }
                _ => {}
            }
        }
        let longest = pieces.keys().map(String::len).max().unwrap_or(0);
        let add_space_prefix = data.add_space_prefix.unwrap_or(true);
        Ok(Self { pieces, longest, byte_ids, unknown: data.unknown, add_space_prefix })
    }

    /// Whether a text is read as if a space stood before it.
    pub(super) fn adds_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    /// Appends the ids of `text`, which holds no special token, to `ids`; the space prefix goes before it.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut spelled = String::with_capacity(text.len() + SPACE.len());
        if self.add_space_prefix {
            spelled.push_str(SPACE);
        }
        spelled.push_str(&text.replace(' ', SPACE));
        if spelled.len() >= u32::MAX as usize {
            return Err(TokenizerError::TextTooLong { bytes: spelled.len() });
        }
        let characters =
            spelled.char_indices().map(|(start, character)| Span { start, end: start + character.len_utf8() });
        let before = ids.len();
        for span in merge_all(&Scores { model: self, text: &spelled }, characters) {
            match self.pieces.get(&spelled[span.start..span.end]) {
                Some(piece) => ids.push(piece.id),
                None => self.spell(&spelled.as_bytes()[span.start..span.end], before, ids)?,
            }
        }
        Ok(())
    }

    /// Appends `bytes`, one unknown character, as byte tokens. Lacking those, it is the unknown token, which a row of
    /// unknown characters since `before` shares.
    fn spell(&self, bytes: &[u8], before: usize, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let spelled: Result<Vec<u32>, u8> =
            bytes.iter().map(|&byte| self.byte_ids[usize::from(byte)].ok_or(byte)).collect();
        match (spelled, self.unknown) {
            (Ok(spelled), _) => ids.extend(spelled),
            (Err(_), Some(unknown)) if ids[before..].last() == Some(&unknown) => {}
            (Err(_), Some(unknown)) => ids.push(unknown),
            (Err(byte), None) => return Err(TokenizerError::NoTokenForByte { byte }),
        }
        Ok(())
    }
}

/// A stretch of the text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    start: usize,
    end: usize,
}

/// The merges inside one text.
struct Scores<'t> {
    model: &'t SentencePiece,
    text: &'t str,
}

impl Rules for Scores<'_> {
    type Symbol = Span;

    fn merge(&self, left: Span, right: Span) -> Option<(u32, Span)> {
        let merged = Span { start: left.start, end: right.end };
        if merged.end - merged.start > self.model.longest {
            return None;
        }
        let piece = self.model.pieces.get(&self.text[merged.start..merged.end])?;
        Some((piece.rank, merged))
    }
}

/// A number that falls as the score rises.
fn rank(score: f32) -> u32 {
    // Adding zero turns -0.0 into 0.0. For the rest, the bits of floats of one sign are ordered as their magnitudes.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 0 { !bits & 0x7FFF_FFFF } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_fall_as_scores_rise() {
        let scores = [f32::NEG_INFINITY, -1e9, -2.0, -1.0, -f32::MIN_POSITIVE, 0.0, 1e-45, 3.5, f32::INFINITY];
        assert!(scores.windows(2).all(|pair| rank(pair[0]) > rank(pair[1])));
        assert_eq!(rank(0.0), rank(-0.0));
    }
}

//! Decoding token by token.

use super::Tokenizer;
use super::error::TokenizerError;

/// Turns ids into text as they come, holding back a character until its last byte is there.
///
/// The pieces together are what [`Tokenizer::decode`] makes of all ids, but for the one space that it takes off the
/// front of a SentencePiece text.
#[derive(Debug, Clone)]
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer,
    /// The first bytes of a character, at most three.
    pending: Vec<u8>,
}

impl<'t> StreamDecoder<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new() }
    }

    /// The text that is complete once `id` is there; bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        self.pending.extend_from_slice(self.tokenizer.token_bytes(id)?);
        let mut text = String::new();
        let mut at = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            at += chunk.valid().len();
            let last = at + chunk.invalid().len() == self.pending.len();
            if last && is_incomplete(chunk.invalid()) {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            at += chunk.invalid().len();
        }
        self.pending.drain(..at);
        Ok(text)
    }

    /// What is left when no more ids come: U+FFFD for a character that was never completed, else nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Whether `bytes` is the beginning of a character, and not an error whatever follows.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

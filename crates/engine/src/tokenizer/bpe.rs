//! Byte-level byte pair encoding, GGUF's `gpt2`.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;

use super::byte_level;
use super::data::TokenizerData;
use super::error::{TokenizerError, excerpt};
use super::merge::{Rules, merge_all};
use super::pretokenizer::{Family, PreTokenizer};
use super::vocab::Vocab;

/// Splits text into words and merges the bytes of each.
#[derive(Debug, Clone)]
pub(super) struct Bpe {
    family: &'static Family,
    pre_tokenizer: &'static PreTokenizer,
    byte_ids: [Option<u32>; 256],
    merges: Merges,
}

/// (left, right) -> (rank, result).
#[derive(Debug, Clone)]
struct Merges(HashMap<(u32, u32), (u32, u32)>);

impl Rules for Merges {
    type Symbol = u32;

    fn merge(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        self.0.get(&(left, right)).copied()
    }
}

impl Bpe {
    /// Reads `tokenizer.ggml.pre` and `tokenizer.ggml.merges` of `data`.
    pub(super) fn new(data: &TokenizerData, vocab: &Vocab) -> Result<Self, TokenizerError> {
        let pre = data.pre.as_deref().ok_or(TokenizerError::MissingKey { key: "tokenizer.ggml.pre" })?;
        let family = Family::named(pre)?;
        let byte_ids = std::array::from_fn(|byte| {
            let mut spelled = [0; 4];
            vocab.id(byte_level::char_of(byte as u8).encode_utf8(&mut spelled))
        });
        if data.merges.is_empty() {
            return Err(TokenizerError::MissingKey { key: "tokenizer.ggml.merges" });
        }
        let merges = Merges::new(&data.merges, vocab)?;
        Ok(Self { family, pre_tokenizer: family.pre_tokenizer(), byte_ids, merges })
    }

    /// Whether prompts begin with BOS when the file does not say.
    pub(super) fn adds_bos(&self) -> bool {
        self.family.adds_bos
    }

    /// Appends the ids of `text`, which holds no special token, to `ids`.
    pub(super) fn encode(&self, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if self.family.nfc && !unicode_normalization::is_nfc(text) {
            let normalised: String = text.nfc().collect();
            return self.pre_tokenizer.split(&normalised, |word| self.encode_word(vocab, word, ids));
        }
        self.pre_tokenizer.split(text, |word| self.encode_word(vocab, word, ids))
    }

    fn encode_word(&self, vocab: &Vocab, word: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if self.family.whole_words {
            let spelled: String = word.bytes().map(byte_level::char_of).collect();
            if let Some(id) = vocab.id(&spelled) {
                ids.push(id);
                return Ok(());
            }
        }
        let bytes =
            word.bytes().map(|byte| self.byte_ids[usize::from(byte)].ok_or(TokenizerError::NoTokenForByte { byte }));
        let symbols = bytes.collect::<Result<Vec<_>, _>>()?;
        ids.extend(merge_all(&self.merges, symbols.into_iter()));
        Ok(())
    }
}

impl Merges {
    /// Each entry is `left right`; its index is its rank. Both sides and their concatenation must be tokens.
    fn new(entries: &[String], vocab: &Vocab) -> Result<Self, TokenizerError> {
        let mut merges = HashMap::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let error = |reason| TokenizerError::Merge { index, merge: excerpt(entry), reason };
            let rank = u32::try_from(index).map_err(|_| error("there are more merges than ranks"))?;
            let (left, right) = entry.split_once(' ').ok_or_else(|| error("it has no space between two tokens"))?;
            let left_id = vocab.id(left).ok_or_else(|| error("its left side is no token"))?;
            let right_id = vocab.id(right).ok_or_else(|| error("its right side is no token"))?;
            let merged = vocab.id(&[left, right].concat()).ok_or_else(|| error("its result is no token"))?;
            if merges.insert((left_id, right_id), (rank, merged)).is_some() {
                return Err(error("the same pair is merged by an earlier entry"));
            }
        }
        Ok(Self(merges))
    }
}

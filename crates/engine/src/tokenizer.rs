//! Text to token ids and back, as the tokenizer inside a GGUF file says.
//!
//! Two kinds exist in the files of MoE models: byte-level BPE (`tokenizer.ggml.model` = `gpt2`) and SentencePiece
//! (`llama`). Ids are those of the tokenizer that the model was trained with, that is of Hugging Face's `tokenizers`
//! and of Google's `sentencepiece`. llama.cpp's differ on a few texts: it never applies Unicode's normalisation form C, which
//! the tokenizers of Qwen and OLMo do and GGUF does not record; and its patterns for `gpt-4o`, `tekken`, `kimi-k2` and
//! `deepseek-llm` treat some combining marks and rare spaces otherwise.
//!
//! Why not the `tokenizers` crate: its version 0.23 brings 73 crates and takes 99 s of processor time to compile, what is
//! used here 19 s, and it reads a `tokenizer.json`, which would have to be put together from a GGUF file's keys first.
//!
//! Every step is linear in the text but for the heap of merges, which is O(n log n).

mod bpe;
mod byte_level;
mod data;
mod error;
mod escape;
mod gguf;
mod merge;
mod pretokenizer;
mod sentencepiece;
mod special;
mod stream;
mod vocab;

pub use data::{TokenKind, TokenizerData};
pub use error::TokenizerError;
pub use special::Special;
pub use stream::StreamDecoder;

use std::borrow::Cow;

use bpe::Bpe;
use sentencepiece::SentencePiece;
use special::{Fragment, SpecialTokens};
use vocab::{Spelling, Vocab};

/// A model's tokenizer.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    model: Model,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    end_of_generation: Vec<u32>,
}

#[derive(Debug, Clone)]
enum Model {
    Bpe(Bpe),
    SentencePiece(SentencePiece),
}

/// Control tokens that end an answer, whether or not a key of the file says so.
const END_OF_GENERATION: &[&str] = &[
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
    "[EOT]",
    "[e~[",
    "</s>",
];

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file.
    ///
    /// # Errors
    /// [`TokenizerError`] with the key that is wrong.
    pub fn from_gguf(metadata: &argon_gguf::Metadata) -> Result<Self, TokenizerError> {
        Self::new(&TokenizerData::from_gguf(metadata)?)
    }

    /// Builds the tokenizer that `data` describes, or says which key is wrong.
    ///
    /// # Errors
    /// [`TokenizerError`] with the key that is wrong.
    pub fn new(data: &TokenizerData) -> Result<Self, TokenizerError> {
        let spelling = match data.model.as_str() {
            "gpt2" => Spelling::ByteLevel,
            "llama" => Spelling::SentencePiece,
            other => return Err(TokenizerError::UnknownModel { model: error::excerpt(other) }),
        };
        let vocab = Vocab::new(data, spelling)?;
        let special = SpecialTokens::new(&vocab)?;
        let model = match spelling {
            Spelling::ByteLevel => Model::Bpe(Bpe::new(data, &vocab)?),
            Spelling::SentencePiece => Model::SentencePiece(SentencePiece::new(data, &vocab)?),
        };
        for (key, id) in [
            ("tokenizer.ggml.bos_token_id", data.bos),
            ("tokenizer.ggml.eos_token_id", data.eos),
            ("tokenizer.ggml.eot_token_id", data.eot),
            ("tokenizer.ggml.eom_token_id", data.eom),
            ("tokenizer.ggml.unknown_token_id", data.unknown),
        ] {
            vocab.check_id(key, id)?;
        }
        let adds_bos = match &model {
            Model::Bpe(bpe) => bpe.adds_bos(),
            Model::SentencePiece(_) => true,
        };
        let add_bos = adds(data.add_bos, data.bos, adds_bos, "tokenizer.ggml.bos_token_id")?;
        let add_eos = adds(data.add_eos, data.eos, false, "tokenizer.ggml.eos_token_id")?;
        let end_of_generation = end_of_generation(data, &vocab);
        Ok(Self { vocab, special, model, bos: data.bos, eos: data.eos, add_bos, add_eos, end_of_generation })
    }

    /// The ids of `text` alone, without BOS or EOS.
    ///
    /// # Errors
    /// [`TokenizerError::TextTooLong`] and [`TokenizerError::NoTokenForByte`].
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        for fragment in self.special.split(text, special) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) if special == Special::ParseShown => {
                    self.encode_text(&escape::reveal(text), &mut ids)?;
                }
                Fragment::Text(text) => self.encode_text(text, &mut ids)?,
            }
        }
        Ok(ids)
    }

    /// Appends the ids of a stretch of text without special tokens.
    ///
    /// No two stretches follow one another, so each one begins the prompt or follows a special token.
    fn encode_text(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if text.len() >= u32::MAX as usize {
            return Err(TokenizerError::TextTooLong { bytes: text.len() });
        }
        match &self.model {
            Model::Bpe(bpe) => bpe.encode(&self.vocab, text, ids),
            Model::SentencePiece(model) => model.encode(text, ids),
        }
    }

    /// `text` with its control tokens disguised until it is encoded as [`Special::ParseShown`]. For a user's part of a
    /// chat, before a template joins it with control tokens that are meant.
    pub fn hide_control<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.special.hide(text)
    }

    /// The ids of a whole prompt: `text`, with BOS before and EOS behind it where the file asks for them.
    ///
    /// A text that already begins with BOS (a chat template wrote it) or ends with EOS does not get a second one.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode_with_bos(text, special)?;
        if let Some(eos) = self.eos.filter(|eos| self.add_eos && ids.last() != Some(eos)) {
            ids.push(eos);
        }
        Ok(ids)
    }

    /// The ids of `text`, with BOS before it where the file asks for it and `text` does not begin with it. For a chat,
    /// whose end the template decides.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_with_bos(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode(text, special)?;
        if let Some(bos) = self.bos.filter(|bos| self.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The text of `ids`, control tokens included; bytes that are not UTF-8 become U+FFFD.
    ///
    /// Where SentencePiece put a space in front of a text, it is taken away again.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let prefixes = matches!(&self.model, Model::SentencePiece(model) if model.adds_space_prefix());
        let mut bytes = Vec::new();
        let mut begins = true;
        for &id in ids {
            let token = self.token_bytes(id)?;
            let special = self.token_kind(id)?.is_special();
            let prefix = prefixes && begins && !special && token.first() == Some(&b' ');
            bytes.extend_from_slice(&token[usize::from(prefix)..]);
            begins = special;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A decoder for ids that come one at a time.
    pub fn stream_decoder(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self)
    }

    /// The bytes that `id` stands for; of a control token, its name.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn token_bytes(&self, id: u32) -> Result<&[u8], TokenizerError> {
        self.vocab.bytes(id).ok_or_else(|| self.unknown_id(id))
    }

    /// What `id` is for.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn token_kind(&self, id: u32) -> Result<TokenKind, TokenizerError> {
        self.vocab.kind(id).ok_or_else(|| self.unknown_id(id))
    }

    /// The text of `id` as the file spells it.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn token_text(&self, id: u32) -> Result<&str, TokenizerError> {
        self.vocab.text(id).ok_or_else(|| self.unknown_id(id))
    }

    /// The id whose text in the file is `text`.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocab.id(text)
    }

    /// The number of tokens; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The token that begins a sequence, if the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a sequence, if the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether a prompt gets BOS in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether `id` ends an answer: EOS, end of turn or message, or a control token known for it.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    fn unknown_id(&self, id: u32) -> TokenizerError {
        TokenizerError::UnknownId { id, vocabulary: self.vocab.len() }
    }
}

/// Whether prompts get the token `id`, named by `key`: what the file says, else `default`. Without an id never, and it is
/// an error of the file to ask for it.
fn adds(said: Option<bool>, id: Option<u32>, default: bool, key: &'static str) -> Result<bool, TokenizerError> {
    match (said, id) {
        (Some(true), None) => Err(TokenizerError::MissingKey { key }),
        (Some(said), _) => Ok(said),
        (None, id) => Ok(default && id.is_some()),
    }
}

/// The ids that end an answer, ascending.
fn end_of_generation(data: &TokenizerData, vocab: &Vocab) -> Vec<u32> {
    let known = END_OF_GENERATION.iter().filter_map(|text| vocab.id(text));
    let control = known.filter(|&id| vocab.kind(id) == Some(TokenKind::Control));
    let mut ids: Vec<u32> = [data.eos, data.eot, data.eom].into_iter().flatten().chain(control).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

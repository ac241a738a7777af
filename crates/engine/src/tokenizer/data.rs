//! The tokenizer's part of a GGUF file, as plain values.

/// What the keys `tokenizer.ggml.*` of a file say, unchecked.
///
/// This is the seam between the file and [`Tokenizer`](super::Tokenizer): `Tokenizer::new` accepts any value of it and
/// either builds a tokenizer or says which key is wrong. An array that the file lacks is empty here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenizerData {
    /// `tokenizer.ggml.model`: `gpt2` for byte-level BPE, `llama` for SentencePiece.
    pub model: String,
    /// `tokenizer.ggml.pre`: the pre-tokenizer of a byte-level BPE.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: text of each id; byte-level BPE spells each byte as one printable character.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: priority of each id as the result of a merge; SentencePiece only.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`: see [`TokenKind`]; absent means that all tokens are normal.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.merges`: `left right`, best first; byte-level BPE only.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`: begins a sequence.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`: ends a sequence.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`: ends a turn.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.eom_token_id`: ends a message.
    pub eom: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`: stands for what no other token can spell.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`: whether a prompt begins with `bos`. Where the key is absent, the model's own
    /// tokenizer decides, as in llama.cpp: yes for SentencePiece and for `llama-bpe` and `tekken`, whose files often lack
    /// the key; no for all others. Without `bos` it is never added.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`: whether a prompt ends with `eos`.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`: whether a text is read as if a space stood before it; SentencePiece only.
    pub add_space_prefix: Option<bool>,
}

/// What a token is for; the discriminants are GGUF's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A piece of ordinary text.
    Normal = 1,
    /// Stands for text that the vocabulary cannot spell.
    Unknown = 2,
    /// Structure that never comes from ordinary text: BOS, EOS, chat roles.
    Control = 3,
    /// A text that is always one token, found before anything else.
    UserDefined = 4,
    /// A reserved entry.
    Unused = 5,
    /// One byte, spelled `<0xHH>`.
    Byte = 6,
}

impl TokenKind {
    /// Whether a text is searched for such tokens as a whole, before it is split and merged.
    pub fn is_special(self) -> bool {
        matches!(self, Self::Unknown | Self::Control | Self::UserDefined)
    }

    /// The kind that GGUF encodes as `value`.
    pub(super) fn from_gguf(value: i32) -> Option<Self> {
        Some(match value {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

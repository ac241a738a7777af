//! The keys `tokenizer.ggml.*` of a file.

use argon_gguf::{Error, Metadata};

use super::data::TokenizerData;

impl TokenizerData {
    /// Reads the keys as they are; [`Tokenizer::new`](super::Tokenizer::new) judges them.
    ///
    /// # Errors
    /// [`Error::MissingKey`] without a model name or tokens, [`Error::ValueType`] and [`Error::Value`] for a key that
    /// holds another type or, for instance, a text that is not UTF-8.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, Error> {
        let strings = |texts: Vec<&str>| texts.into_iter().map(String::from).collect();
        Ok(Self {
            model: metadata.require_str("tokenizer.ggml.model")?.to_owned(),
            pre: metadata.str("tokenizer.ggml.pre")?.map(String::from),
            tokens: strings(metadata.require_str_array("tokenizer.ggml.tokens")?),
            scores: metadata.f32_array("tokenizer.ggml.scores")?.unwrap_or_default(),
            token_types: metadata.i32_array("tokenizer.ggml.token_type")?.unwrap_or_default(),
            merges: strings(metadata.str_array("tokenizer.ggml.merges")?.unwrap_or_default()),
            bos: metadata.u32("tokenizer.ggml.bos_token_id")?,
            eos: metadata.u32("tokenizer.ggml.eos_token_id")?,
            eot: metadata.u32("tokenizer.ggml.eot_token_id")?,
            eom: metadata.u32("tokenizer.ggml.eom_token_id")?,
            unknown: metadata.u32("tokenizer.ggml.unknown_token_id")?,
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?,
            add_eos: metadata.bool("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: metadata.bool("tokenizer.ggml.add_space_prefix")?,
        })
    }
}

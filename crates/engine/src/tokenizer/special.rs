//! Finds the tokens that are recognised in text as a whole, before any splitting and merging.

use aho_corasick::{AhoCorasick, MatchKind};

use super::data::TokenKind;
use super::error::TokenizerError;
use super::vocab::Vocab;

/// What to do with the text of a control token (`<|im_start|>`, `</s>`) inside a text to encode.
///
/// Tokens that the file calls user-defined are recognised in both cases; they are ordinary text by intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// It is text, and is spelled out with ordinary tokens. For what a user typed.
    AsText,
    /// It is the token. For what a chat template rendered.
    Parse,
}

/// A stretch of text, or a special token found between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    /// Ordinary text, not empty.
    Text(&'t str),
    /// The id of a special token.
    Token(u32),
}

/// The special tokens of a vocabulary, ready to be searched for.
#[derive(Debug, Clone)]
pub(super) struct SpecialTokens {
    user_defined: Matcher,
    all: Matcher,
}

impl SpecialTokens {
    /// Collects the user-defined, control and unknown tokens of `vocab`.
    pub(super) fn new(vocab: &Vocab) -> Result<Self, TokenizerError> {
        let user_defined = |kind| kind == TokenKind::UserDefined;
        Ok(Self { user_defined: Matcher::new(vocab, user_defined)?, all: Matcher::new(vocab, TokenKind::is_special)? })
    }

    /// Cuts `text` at its special tokens. Of several that begin at one place, the longest counts.
    pub(super) fn split<'t>(&self, text: &'t str, special: Special) -> Vec<Fragment<'t>> {
        match special {
            Special::AsText => self.user_defined.split(text),
            Special::Parse => self.all.split(text),
        }
    }
}

#[derive(Debug, Clone)]
struct Matcher {
    automaton: AhoCorasick,
    /// The id of each pattern.
    ids: Vec<u32>,
}

impl Matcher {
    fn new(vocab: &Vocab, wanted: impl Fn(TokenKind) -> bool) -> Result<Self, TokenizerError> {
        let tokens = vocab.iter().filter(|(_, text, kind)| wanted(*kind) && !text.is_empty());
        let (ids, texts): (Vec<_>, Vec<_>) = tokens.map(|(id, text, _)| (id, text)).unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|error| TokenizerError::SpecialTokens { reason: error.to_string() })?;
        Ok(Self { automaton, ids })
    }

    fn split<'t>(&self, text: &'t str) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::new();
        let mut at = 0;
        for found in self.automaton.find_iter(text) {
            if at < found.start() {
                fragments.push(Fragment::Text(&text[at..found.start()]));
            }
            fragments.push(Fragment::Token(self.ids[found.pattern().as_usize()]));
            at = found.end();
        }
        if at < text.len() {
            fragments.push(Fragment::Text(&text[at..]));
        }
        fragments
    }
}

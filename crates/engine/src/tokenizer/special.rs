//! Finds the tokens that are recognised in text as a whole, before any splitting and merging.

use std::borrow::Cow;
use std::collections::HashSet;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::data::TokenKind;
use super::error::TokenizerError;
use super::escape;
use super::vocab::Vocab;

/// What to do with the text of a control token (`<|im_start|>`, `</s>`) inside a text to encode.
///
/// Tokens that the file calls user-defined are recognised in both cases; they are ordinary text by intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// It is text, and is spelled out with ordinary tokens. For what a user typed.
    AsText,
    /// It is the token. For a prompt that somebody wrote with them in it.
    Parse,
    /// It is the token, unless [`Tokenizer::hide_control`](super::Tokenizer::hide_control) disguised it; then it is text
    /// again. For what a chat template rendered.
    ParseShown,
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
    control: Matcher,
    all: Matcher,
}

impl SpecialTokens {
    /// Collects the user-defined, control and unknown tokens of `vocab`, but for those spelled with the characters that
    /// [`escape`] hides others with: they would be found where something is hidden.
    pub(super) fn new(vocab: &Vocab) -> Result<Self, TokenizerError> {
        let user_defined = |kind| kind == TokenKind::UserDefined;
        let control = |kind: TokenKind| kind.is_special() && !user_defined(kind);
        Ok(Self {
            user_defined: Matcher::new(vocab, user_defined)?,
            control: Matcher::new(vocab, control)?,
            all: Matcher::new(vocab, TokenKind::is_special)?,
        })
    }

    /// Cuts `text` at its special tokens. Of several that begin at one place, the longest counts.
    pub(super) fn split<'t>(&self, text: &'t str, special: Special) -> Vec<Fragment<'t>> {
        match special {
            Special::AsText => self.user_defined.split(text),
            Special::Parse | Special::ParseShown => self.all.split(text),
        }
    }

    /// `text` with its control tokens hidden from [`split`](Self::split), see [`escape`].
    pub(super) fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let begins = self.control.begins(text);
        escape::hide(text, |at| begins.contains(&at))
    }
}

/// Bytes of a special token. A search may look so far ahead at every byte of a text.
const LONGEST: usize = 1024;

#[derive(Debug, Clone)]
struct Matcher {
    automaton: AhoCorasick,
    /// The id of each pattern.
    ids: Vec<u32>,
}

impl Matcher {
    fn new(vocab: &Vocab, wanted: impl Fn(TokenKind) -> bool) -> Result<Self, TokenizerError> {
        let tokens = vocab
            .iter()
            .filter(|(_, text, kind)| wanted(*kind) && !text.is_empty() && !text.contains(escape::is_reserved));
        let (ids, texts): (Vec<_>, Vec<_>) = tokens.map(|(id, text, _)| (id, text)).unzip();
        if let Some(index) = texts.iter().position(|text| text.len() > LONGEST) {
            let reason = format!("id {} has {} bytes, more than {LONGEST}", ids[index], texts[index].len());
            return Err(TokenizerError::SpecialTokens { reason });
        }
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

    /// The byte offsets of `text` at which one of the tokens begins.
    fn begins(&self, text: &str) -> HashSet<usize> {
        let mut begins = HashSet::new();
        let mut at = 0;
        while let Some(found) = self.automaton.find(Input::new(text).range(at..)) {
            begins.insert(found.start());
            // Another one may begin inside this one.
            at = found.start() + 1;
        }
        begins
    }
}

//! Splits text into the words inside which byte-level BPE merges.
//!
//! Each name that `tokenizer.ggml.pre` may hold stands for one or more patterns, applied one after the other as
//! Hugging Face's `Sequence` of isolated `Split`s does: every match becomes a piece, every gap between matches too,
//! and the next pattern is applied within each piece.
//!
//! The patterns are those of each family's tokenizer. Almost all of them end in `\s+(?!\S)|\s+`: a run of spaces
//! leaves its last one to the word behind it. A finite automaton cannot look ahead, and only an automaton is linear
//! whatever the pattern and the text; so the run is a pattern of its own ([`Split::spaces`]), and [`Splitter::next`] gives the
//! last space back. What remains is a regular language, matched in linear time.

use std::sync::OnceLock;

use regex_automata::Input;
use regex_automata::meta::Regex;

use super::error::{TokenizerError, excerpt};

/// How one family of models splits and normalises text.
#[derive(Debug)]
pub(super) struct Family {
    /// The names that select it.
    names: &'static [&'static str],
    splits: &'static [Split],
    /// Whether the text is brought into Unicode's normalisation form C first, as the family's own tokenizer does.
    /// GGUF does not record it, and llama.cpp never does it.
    pub(super) nfc: bool,
    /// Whether a word that is a token is taken whole, without asking the merges.
    pub(super) whole_words: bool,
    /// Whether prompts begin with BOS when the file does not say.
    pub(super) adds_bos: bool,
}

/// One pattern of a family.
#[derive(Debug)]
struct Split {
    pattern: &'static str,
    /// Whether `|\s+(?!\S)|\s+` follows.
    spaces: bool,
}

/// A pattern followed by `|\s+(?!\S)|\s+`.
const fn then_spaces(pattern: &'static str) -> Split {
    Split { pattern, spaces: true }
}

/// A pattern as it stands.
const fn plain(pattern: &'static str) -> Split {
    Split { pattern, spaces: false }
}

const GPT2: Split = then_spaces(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+");

const QWEN2: Split =
    then_spaces(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+");

const QWEN35: Split = then_spaces(concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+",
));

const LLAMA3: Split = then_spaces(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
);

const GPT4O: Split = then_spaces(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
));

const TEKKEN: Split = then_spaces(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
));

const KIMI: Split = then_spaces(concat!(
    r"\p{Han}+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+",
));

const BAILING: Split =
    then_spaces(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]");

const DEEPSEEK_V3: Split = then_spaces(concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+",
));

/// Letters of the alphabets that DeepSeek's first tokenizer lists one by one.
const DEEPSEEK_LETTERS: Split = plain(concat!(
    r"\s?[",
    r"A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-\u{2AF}",
    r"\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}",
    r"\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}",
    r"\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}",
    r"\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}",
    r"\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}",
    r"\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}",
    r"\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}",
    r"\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}",
    r"\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}",
    r"\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}",
    r"\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}",
    r"\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}",
    r"\u{1E900}-\u{1E943}",
    r"]+",
));

/// A family that neither normalises, nor takes whole words, nor adds BOS.
const PLAIN: Family = Family { names: &[], splits: &[], nfc: false, whole_words: false, adds_bos: false };

/// All known families. `nfc` is set where the family's own tokenizer is known to normalise.
static FAMILIES: &[Family] = &[
    Family { names: &["gpt-2"], splits: &[GPT2], ..PLAIN },
    Family { names: &["olmo"], splits: &[GPT2], nfc: true, ..PLAIN },
    Family { names: &["qwen2"], splits: &[QWEN2], nfc: true, ..PLAIN },
    Family { names: &["qwen35"], splits: &[QWEN35], nfc: true, ..PLAIN },
    Family { names: &["hunyuan", "grok-2", "solar-open"], splits: &[QWEN2], ..PLAIN },
    Family {
        names: &["llama-bpe", "llama3", "llama-v3", "lfm2"],
        splits: &[LLAMA3],
        whole_words: true,
        adds_bos: true,
        ..PLAIN
    },
    Family { names: &["glm4", "glm5"], splits: &[LLAMA3], whole_words: true, ..PLAIN },
    Family { names: &["chatglm-bpe", "dbrx", "smaug-bpe"], splits: &[LLAMA3], ..PLAIN },
    Family { names: &["gpt-4o", "llama4", "minimax-m2"], splits: &[GPT4O], ..PLAIN },
    Family { names: &["tekken"], splits: &[TEKKEN], whole_words: true, adds_bos: true, ..PLAIN },
    Family { names: &["kimi-k2"], splits: &[KIMI], ..PLAIN },
    Family { names: &["bailingmoe", "bailingmoe2", "llada-moe"], splits: &[BAILING], ..PLAIN },
    Family {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        splits: &[plain(r"\p{N}{1,3}"), plain(r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+"), DEEPSEEK_V3],
        ..PLAIN
    },
    Family {
        names: &["deepseek-llm"],
        splits: &[
            plain(r"[\r\n]"),
            DEEPSEEK_LETTERS,
            plain(r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+"),
            plain(r"\s+$"),
            plain(r"[\u{800}-\u{9FA5}\u{AC00}-\u{D7FF}]+"),
            plain(r"\p{N}+"),
        ],
        ..PLAIN
    },
    Family { names: &["starcoder", "refact", "smollm"], splits: &[plain(r"\p{N}"), GPT2], ..PLAIN },
    Family {
        names: &["default"],
        splits: &[plain(r"[\p{P}\$\+<=>\^~\|]+"), GPT2, plain(r"\p{N}+"), plain("[0-9][0-9][0-9]")],
        ..PLAIN
    },
];

impl Family {
    /// The family that `tokenizer.ggml.pre` names.
    pub(super) fn named(pre: &str) -> Result<&'static Self, TokenizerError> {
        FAMILIES.iter().find(|family| family.names.contains(&pre)).ok_or_else(|| {
            let supported = FAMILIES.iter().flat_map(|family| family.names).copied().collect::<Vec<_>>().join(", ");
            TokenizerError::UnknownPre { pre: excerpt(pre), supported }
        })
    }

    /// Its patterns, compiled when they are first asked for: that takes 1 to 4 ms, ten times as long as the rest of a small
    /// tokenizer.
    pub(super) fn pre_tokenizer(&'static self) -> &'static PreTokenizer {
        static COMPILED: [OnceLock<PreTokenizer>; FAMILIES.len()] = [const { OnceLock::new() }; FAMILIES.len()];
        let index = FAMILIES.iter().position(|family| std::ptr::eq(family, self)).expect("one of the table");
        COMPILED[index].get_or_init(|| PreTokenizer { splitters: self.splits.iter().map(Splitter::new).collect() })
    }
}

/// A family's patterns, ready to run.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    splitters: Vec<Splitter>,
}

impl PreTokenizer {
    /// Calls `word` with each piece of `text`, in order; together they are `text`.
    pub(super) fn split<E>(&self, text: &str, mut word: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        split_by(&self.splitters, text, &mut word)
    }
}

/// Applies the first splitter to `text`, and the others within each piece.
fn split_by<E>(splitters: &[Splitter], text: &str, word: &mut impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    let Some((splitter, rest)) = splitters.split_first() else {
        return word(text);
    };
    let mut at = 0;
    while at < text.len() {
        let found = splitter.next(text, at).unwrap_or(text.len()..text.len());
        for piece in [at..found.start, found.start..found.end] {
            if !piece.is_empty() {
                split_by(rest, &text[piece], word)?;
            }
        }
        at = found.end;
    }
    Ok(())
}

/// One compiled pattern.
#[derive(Debug)]
struct Splitter {
    /// Pattern 0 is the family's, pattern 1 a run of white space.
    regex: Regex,
}

impl Splitter {
    fn new(split: &Split) -> Self {
        let patterns = if split.spaces { vec![split.pattern, r"\s+"] } else { vec![split.pattern] };
        Self { regex: Regex::new_many(&patterns).expect("a pattern of the table, compiled by its tests") }
    }

    /// The first match in `text` at or after `at`.
    fn next(&self, text: &str, at: usize) -> Option<std::ops::Range<usize>> {
        let found = self.regex.search(&Input::new(text).range(at..))?;
        let mut range = found.range();
        if found.pattern().as_usize() == 1 && range.end < text.len() {
            // The run ends before something that is no space: all but its last character match `\s+(?!\S)`; a single
            // character does not, and matches `\s+`.
            let last = text[range.clone()].char_indices().next_back().map_or(0, |(index, _)| index);
            if last > 0 {
                range.end = range.start + last;
            }
        }
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(pre: &str, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        let family = Family::named(pre).unwrap();
        let all: Result<(), ()> = family.pre_tokenizer().split(text, |piece| {
            pieces.push(piece.to_owned());
            Ok(())
        });
        assert_eq!(all, Ok(()));
        pieces
    }

    #[test]
    fn every_family_compiles_and_loses_nothing() {
        let text = " It's\t 12345  x\r\n\n  y\u{301}\u{7} 世界ひ ½—!\u{85} \u{2028}'LL 's ";
        for name in FAMILIES.iter().flat_map(|family| family.names) {
            let pieces = pieces(name, text);
            assert_eq!(pieces.concat(), text, "{name}");
            assert!(pieces.iter().all(|piece| !piece.is_empty()), "{name}");
        }
    }

    /// Were any pattern's search quadratic, this would run for hours.
    #[test]
    fn a_megabyte_of_one_character_is_no_trap_for_any_family() {
        for family in FAMILIES {
            for unit in
                ["a", "A", " ", "\n", "\r", "\t", "7", "'", "\"", "\u{4e16}", "\u{301}", "\u{1f680}", " \n", "a "]
            {
                let text = unit.repeat(1_000_000 / unit.len()) + "x";
                let mut bytes = 0;
                let all: Result<(), ()> = family.pre_tokenizer().split(&text, |piece| {
                    bytes += piece.len();
                    Ok(())
                });
                assert_eq!((all, bytes), (Ok(()), text.len()), "{:?} {unit:?}", family.names);
            }
        }
    }

    #[test]
    fn a_name_selects_one_family() {
        let mut names: Vec<_> = FAMILIES.iter().flat_map(|family| family.names).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_run_of_spaces_leaves_its_last_one_to_the_word() {
        assert_eq!(pieces("qwen2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(pieces("qwen2", "a b"), ["a", " b"]);
        assert_eq!(pieces("qwen2", "a   "), ["a", "   "]);
        assert_eq!(pieces("qwen2", "a \u{3000}7"), ["a", " ", "\u{3000}", "7"]);
        assert_eq!(pieces("gpt-2", "a\n\nb"), ["a", "\n", "\n", "b"]);
        assert_eq!(pieces("qwen2", "a\n\n  b"), ["a", "\n\n", " ", " b"]);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Family::named("qwen99").unwrap_err();
        let TokenizerError::UnknownPre { pre, supported } = &error else { panic!("{error:?}") };
        assert_eq!(pre, "qwen99");
        assert!(supported.contains("qwen2, qwen35"), "{supported}");
    }
}

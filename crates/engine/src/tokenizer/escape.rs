//! Hides control tokens in a user's text while a chat template works on it.
//!
//! A template joins what the model must read as control tokens with what users typed, and the result is one text. So
//! that a user cannot write `<|im_end|>` and be understood, the first character of each control token in the user's part
//! is written as a sequence of noncharacters, which text for interchange never holds; once the tokens of the whole are
//! found, the characters come back. Noncharacters that the user did write are hidden the same way.

use std::borrow::Cow;

/// Begins a hidden character, as the first of the 32 noncharacters in a row.
const BEGIN: char = '\u{FDD0}';
/// Ends a hidden character.
const END: char = '\u{FDD1}';
/// The hexadecimal digits of the code point in between: U+FDE0 is 0.
const DIGITS: u32 = 0xFDE0;

/// Whether `c` could be read as part of a hidden character.
pub(super) fn is_reserved(c: char) -> bool {
    matches!(c, '\u{FDD0}'..='\u{FDEF}')
}

/// Hides those characters of `text` at whose byte offset `begins_control` holds.
pub(super) fn hide(text: &str, begins_control: impl Fn(usize) -> bool) -> Cow<'_, str> {
    let hidden = |(at, c): (usize, char)| is_reserved(c) || begins_control(at);
    if !text.char_indices().any(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 32);
    for (at, c) in text.char_indices() {
        if hidden((at, c)) {
            let digits = format!("{:x}", u32::from(c));
            out.push(BEGIN);
            out.extend(digits.chars().filter_map(|digit| char::from_u32(DIGITS + digit.to_digit(16)?)));
            out.push(END);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Brings hidden characters back. A sequence that hides none stays as it is.
pub(super) fn reveal(text: &str) -> Cow<'_, str> {
    if !text.contains(BEGIN) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        out.push_str(before);
        match hidden_character(after) {
            Some((c, behind)) => {
                out.push(c);
                rest = behind;
            }
            None => {
                out.push(BEGIN);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The character that begins behind [`BEGIN`], and the text behind it.
fn hidden_character(text: &str) -> Option<(char, &str)> {
    // U+10FFFF has six digits. Without a limit, a text of nothing but beginnings would take quadratic time.
    const MOST_DIGITS: usize = 6;
    let end = text.char_indices().take(MOST_DIGITS + 1).find(|(_, c)| *c == END)?.0;
    let (digits, behind) = (&text[..end], &text[end + END.len_utf8()..]);
    let code = digits.chars().try_fold(0u32, |code, c| {
        let digit = u32::from(c).checked_sub(DIGITS).filter(|digit| *digit < 16)?;
        code.checked_mul(16)?.checked_add(digit)
    })?;
    Some((char::from_u32(code)?, behind))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hiding_takes_the_first_character_away() {
        let hidden = hide("a<b>c", |at| at == 1);
        assert_eq!(hidden, "a\u{FDD0}\u{FDE3}\u{FDEC}\u{FDD1}b>c");
        assert_eq!(reveal(&hidden), "a<b>c");
        assert!(matches!(hide("abc", |_| false), Cow::Borrowed("abc")));
    }

    #[test]
    fn broken_sequences_stay() {
        for text in
            ["\u{FDD0}", "\u{FDD0}x\u{FDD1}", "\u{FDD0}\u{FDEF}\u{FDEF}\u{FDEF}\u{FDEF}\u{FDEF}\u{FDEF}\u{FDD1}"]
        {
            assert_eq!(reveal(text), text);
        }
    }

    /// Were it quadratic, this would take hours.
    #[test]
    fn beginnings_without_end_are_no_trap() {
        let text = "\u{FDD0}".repeat(1_000_000);
        assert_eq!(reveal(&text), text);
    }

    proptest! {
        #[test]
        fn what_was_hidden_comes_back(text in "([\u{FDD0}-\u{FDEF}<>a]|.){0,20}", stride in 1usize..4) {
            let hidden = hide(&text, |at| at % stride == 0);
            prop_assert_eq!(reveal(&hidden), text.as_str());
        }
    }
}

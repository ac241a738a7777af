//! GPT-2's spelling of bytes: a byte-level vocabulary writes each byte as one printable character.
//!
//! The printable bytes of Latin-1 stand for themselves; the other 68 take the characters from U+0100 on, in order
//! (so a space is `Ġ`, U+0120).

use std::sync::LazyLock;

/// The character for each byte.
static CHARS: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut spare = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        printable @ (b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) => char::from(printable),
        _ => spare.next().expect("an open range of characters"),
    })
});

/// The byte for each character that stands for one; the characters are all below U+0144.
static BYTES: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
    let mut bytes = [None; 0x144];
    for byte in 0..=u8::MAX {
        bytes[char_of(byte) as usize] = Some(byte);
    }
    bytes
});

/// The character that spells `byte`.
pub(super) fn char_of(byte: u8) -> char {
    CHARS[usize::from(byte)]
}

/// The bytes that `spelled` stands for, or `None` if one of its characters stands for none.
pub(super) fn bytes_of(spelled: &str) -> Option<Vec<u8>> {
    spelled.chars().map(|c| BYTES.get(c as usize).copied().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spelling_is_gpt2s() {
        for (byte, spelled) in [(0, 'Ā'), (b'\n', 'Ċ'), (b' ', 'Ġ'), (b'a', 'a'), (0x7F, 'ġ'), (0xA0, 'ł'), (0xAD, 'Ń')]
        {
            assert_eq!(char_of(byte), spelled);
        }
    }

    #[test]
    fn every_byte_comes_back() {
        let spelled: String = (0..=u8::MAX).map(char_of).collect();
        assert_eq!(spelled.chars().count(), 256);
        assert_eq!(bytes_of(&spelled), Some((0..=u8::MAX).collect()));
    }

    #[test]
    fn other_characters_stand_for_no_byte() {
        for text in [" ", "\n", "ń", "▁", "aĠ世"] {
            assert_eq!(bytes_of(text), None, "{text:?}");
        }
    }
}

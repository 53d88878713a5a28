//! GPT-2's byte alphabet: every byte as one printable character, so that any bytes are text without spaces.
//! Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF are the Latin-1 characters of their number; the other 68 are U+0100
//! onward, in byte order (a space is U+0120 `Ġ`). Source: `bytes_to_unicode` of GPT-2's encoder.

/// Characters below this may be in the alphabet: 0x100 + 68.
pub(super) const END: usize = 0x144;

const CHARS: [char; 256] = chars();
const BYTES: [Option<u8>; END] = bytes();

const fn chars() -> [char; 256] {
    let mut table = ['\0'; 256];
    let mut byte = 0u32;
    let mut moved = 0x100;
    while byte < 256 {
        let printable = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if printable { byte } else { moved };
        if !printable {
            moved += 1;
        }
        table[byte as usize] = char::from_u32(code).expect("codes end at U+0143");
        byte += 1;
    }
    table
}

const fn bytes() -> [Option<u8>; END] {
    let mut table = [None; END];
    let mut byte = 0;
    while byte < 256 {
        table[CHARS[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
}

/// The character that stands for `byte`.
pub(super) fn char_of(byte: u8) -> char {
    CHARS[usize::from(byte)]
}

/// The byte that `char` stands for, if it is in the alphabet.
pub(super) fn byte_of(char: char) -> Option<u8> {
    BYTES.get(char as usize).copied().flatten()
}

/// `bytes` in the alphabet.
pub(super) fn spell(bytes: &[u8], out: &mut String) {
    out.extend(bytes.iter().map(|&byte| char_of(byte)));
}

/// The bytes that `text` stands for; text with a character outside the alphabet stands for its own UTF-8.
pub(super) fn read(text: &str) -> Vec<u8> {
    text.chars().map(byte_of).collect::<Option<Vec<u8>>>().unwrap_or_else(|| text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        for byte in 0..=255 {
            assert_eq!(byte_of(char_of(byte)), Some(byte), "{byte:#04X}");
            assert!(!char_of(byte).is_whitespace() && !char_of(byte).is_control(), "{byte:#04X}");
        }
        assert_eq!((char_of(b' '), char_of(b'\n'), char_of(0xE6), char_of(0xAD)), ('Ġ', 'Ċ', 'æ', 'Ń'));
        assert_eq!(byte_of(' '), None);
        assert_eq!(read("Ġé"), [b' ', 0xE9]);
        assert_eq!(read("<｜>"), "<｜>".as_bytes());
    }
}

//! SentencePiece's precompiled table of rewritten characters: `u32 size`, `size` bytes of a double-array trie over UTF-8
//! (32-bit units), then the replacements, each ended by a zero byte. The longest key at each position is replaced.
//!
//! A unit of the trie (Darts-clone): bits 0-7 and 31 the label, bit 8 "a value follows", bits 10-30 the offset, shifted
//! by 8 more if bit 9 is set; a value unit is bits 0-30, an index into the replacements. All numbers are little-endian.
//! Source: `normalizer.cc` and `darts.h` of SentencePiece. Nothing here is trusted: an index that points outside
//! ends the search.

use crate::error::{Error, Result};

/// The table.
#[derive(Debug)]
pub(super) struct Charsmap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl Charsmap {
    /// Reads the table.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the size does not fit.
    pub fn new(bytes: &[u8]) -> Result<Charsmap> {
        let wrong =
            || Error::Tokenizer(format!("precompiled charsmap of {} bytes is cut short", bytes.len()));
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(wrong)?;
        let size = u32::from_le_bytes(*size) as usize;
        let (trie, replacements) = rest.split_at_checked(size).ok_or_else(wrong)?;
        let units = trie.chunks_exact(4).map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]));
        Ok(Charsmap { units: units.collect(), replacements: replacements.to_vec() })
    }

    /// Reads the table from base64, as tokenizer.json has it.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if it is not base64, or as [`Charsmap::new`].
    pub fn from_base64(text: &str) -> Result<Charsmap> {
        let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
        let (mut bits, mut count) = (0u32, 0);
        for char in text.trim_end_matches('=').bytes() {
            let digit = match char {
                b'A'..=b'Z' => char - b'A',
                b'a'..=b'z' => char - b'a' + 26,
                b'0'..=b'9' => char - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return Err(Error::Tokenizer("precompiled charsmap is not base64".into())),
            };
            bits = bits << 6 | u32::from(digit);
            count += 6;
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count) as u8);
            }
        }
        Charsmap::new(&bytes)
    }

    /// `text` with everything replaced that the table knows.
    pub fn apply(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let length = match self.longest(rest.as_bytes()) {
                Some((length, value)) if rest.is_char_boundary(length) => {
                    let replacement = self.replacements.get(value..).unwrap_or_default();
                    let end = replacement.iter().position(|&byte| byte == 0).unwrap_or(replacement.len());
                    out.push_str(&String::from_utf8_lossy(&replacement[..end]));
                    length
                }
                _ => {
                    out.push(first);
                    first.len_utf8()
                }
            };
            rest = &rest[length..];
        }
        out
    }

    /// The length of the longest key at the beginning of `text`, in bytes, and where its replacement is.
    fn longest(&self, text: &[u8]) -> Option<(usize, usize)> {
        let unit = |at: u32| self.units.get(at as usize).copied();
        let offset = |unit: u32| (unit >> 10) << ((unit & 1 << 9) >> 6);
        let mut found = None;
        let mut at = offset(unit(0)?);
        for (index, &byte) in text.iter().enumerate() {
            at ^= u32::from(byte);
            let Some(node) = unit(at) else { break };
            if byte == 0 || node & (1 << 31 | 0xFF) != u32::from(byte) {
                break;
            }
            at ^= offset(node);
            if node & 1 << 8 != 0 {
                let Some(value) = unit(at) else { break };
                found = Some((index + 1, (value & !(1 << 31)) as usize));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trie with the keys "a" -> "xy" and "ab" -> "" made by hand: the root's children are at 256 ^ label.
    fn table() -> Vec<u8> {
        let (a, b) = (u32::from(b'a'), u32::from(b'b'));
        let mut units = vec![0u32; 1024];
        units[0] = 256 << 10;
        // Node "a" at 256 ^ a, its children at 512 ^ label, its value at 512.
        units[(256 ^ a) as usize] = a | 1 << 8 | ((256 ^ a) ^ 512) << 10;
        units[512] = 1 << 31;
        // Node "ab" at 512 ^ b, its value at 768.
        units[(512 ^ b) as usize] = b | 1 << 8 | ((512 ^ b) ^ 768) << 10;
        units[768] = 1 << 31 | 3;
        let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(b"xy\0\0");
        bytes
    }

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in bytes.chunks(3) {
            let bits =
                group.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - group.len()));
            for digit in 0..=group.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
            }
            text.push_str(&"=="[..(3 - group.len())]);
        }
        text
    }

    #[test]
    fn the_longest_key_is_replaced() {
        let table = table();
        for map in [Charsmap::new(&table).unwrap(), Charsmap::from_base64(&base64(&table)).unwrap()] {
            assert_eq!(map.apply("a-ab-é\0aa"), "xy--é\0xyxy");
        }
    }

    #[test]
    fn damaged_tables_do_not_panic() {
        let table = table();
        for length in [0, 3, 4, 100, table.len() - 5] {
            assert!(Charsmap::new(&table[..length]).is_err(), "{length}");
        }
        assert!(Charsmap::from_base64("A*").is_err());
        for at in 4..table.len() {
            let mut damaged = table.clone();
            damaged[at] ^= 0xFF;
            Charsmap::new(&damaged).unwrap().apply("abcé歪\0 ab");
        }
    }
}

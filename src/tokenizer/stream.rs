//! Tokens back to text: every token is a piece of bytes, a text is their concatenation, and what is no UTF-8 in it becomes
//! U+FFFD. The stream gives the same text piece by piece and holds back a character until its last byte is there.

use super::Tokenizer;
use super::alphabet;
use super::vocabulary::{Kind, Vocabulary, byte_token};

/// What each token stands for.
#[derive(Debug)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// Where the piece of each id ends in `bytes`.
    ends: Vec<usize>,
    /// Whether one space at the very beginning of a text is not part of it.
    pub strips_space: bool,
}

/// How the text of a token becomes its piece.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Spelling {
    /// GPT-2's byte alphabet.
    Bytes,
    /// Text in which the first of each pair stands for the second, e.g. `▁` for a space, and `<0x41>` for a byte.
    Replaced {
        /// Applied in order.
        replacements: Vec<(String, String)>,
        /// Whether `<0x41>` stands for a byte.
        byte_tokens: bool,
    },
}

impl Pieces {
    /// The pieces of all tokens.
    pub fn new(vocabulary: &Vocabulary, spelling: &Spelling, strips_space: bool) -> Pieces {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(vocabulary.len());
        for (_, text, kind) in vocabulary.iter() {
            match (spelling, kind) {
                // Tokens added by hand are spelled as they are.
                (_, Kind::Control | Kind::Unknown | Kind::Unused | Kind::User)
                    if spelling == &Spelling::Bytes =>
                {
                    bytes.extend_from_slice(text.as_bytes());
                }
                (Spelling::Bytes, _) => bytes.extend(alphabet::read(text)),
                (Spelling::Replaced { replacements, byte_tokens }, _) => {
                    if let Some(byte) = byte_token(text).filter(|_| *byte_tokens) {
                        bytes.push(byte);
                    } else {
                        let mut text = text.to_owned();
                        for (from, to) in replacements {
                            text = text.replace(from, to);
                        }
                        bytes.extend_from_slice(text.as_bytes());
                    }
                }
            }
            ends.push(bytes.len());
        }
        bytes.shrink_to_fit();
        Pieces { bytes, ends, strips_space }
    }

    /// The piece of `id`; empty if there is no such token.
    pub fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = id.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(id).map_or(&[], |&end| &self.bytes[start..end])
    }
}

/// Decodes ids one by one. What it has given out and what [`Stream::finish`] adds is exactly what
/// [`Tokenizer::decode`] makes of all ids together, whatever they are.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The beginning of a character: at most three bytes.
    held: Vec<u8>,
    /// Whether the text has begun, so that a space is part of it.
    started: bool,
    show_control: bool,
}

impl Stream {
    pub(super) fn new(started: bool, show_control: bool) -> Stream {
        Stream { held: Vec::new(), started, show_control }
    }

    /// The text that is certain now that `id` came: often one word, sometimes nothing.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        let mut piece = tokenizer.piece(id, self.show_control);
        if !self.started && !piece.is_empty() {
            self.started = true;
            if tokenizer.pieces.strips_space {
                piece = piece.strip_prefix(b" ").unwrap_or(piece);
            }
        }
        self.held.extend_from_slice(piece);
        let mut text = String::new();
        let mut rest = self.held.as_slice();
        while let Err(error) = std::str::from_utf8(rest) {
            let (valid, wrong) = rest.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(valid));
            // No length: the text ends within a character that may still become valid.
            let Some(length) = error.error_len() else {
                rest = wrong;
                self.held = rest.to_vec();
                return text;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            rest = &wrong[length..];
        }
        text.push_str(&String::from_utf8_lossy(rest));
        self.held.clear();
        text
    }

    /// What is left when no more ids come: U+FFFD for a character that was cut short, else nothing.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

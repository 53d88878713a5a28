//! The list of tokens: text, kind and id. A text that occurs twice belongs to its first id.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Result};

/// What a token is for. The numbers are GGUF's `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// 1: text.
    Normal,
    /// 2: stands for text that no token covers.
    Unknown,
    /// 3: structure, such as the end of a turn; not text that a user could write.
    Control,
    /// 4: added to the vocabulary by hand: always taken out of a text before anything else.
    User,
    /// 5 (and 0, undefined): a place without use; an id that the file leaves out is one too.
    Unused,
    /// 6: one byte, spelled `<0x41>`.
    Byte,
}

impl Kind {
    /// The kind that GGUF numbers `number`.
    pub fn from_gguf(number: i64) -> Option<Kind> {
        Some(match number {
            1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::User,
            0 | 5 => Kind::Unused,
            6 => Kind::Byte,
            _ => return None,
        })
    }
}

/// Tokens by id and ids by text.
#[derive(Debug)]
pub(super) struct Vocabulary {
    tokens: Vec<(Arc<str>, Kind)>,
    ids: HashMap<Arc<str>, u32>,
}

impl Vocabulary {
    /// A vocabulary of `tokens`, of which the index is the id.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if there are none, or more than ids.
    pub fn new(tokens: impl IntoIterator<Item = (Arc<str>, Kind)>) -> Result<Vocabulary> {
        let tokens: Vec<_> = tokens.into_iter().collect();
        if tokens.is_empty() {
            return Err(Error::Tokenizer("the vocabulary is empty".into()));
        }
        if u32::try_from(tokens.len()).is_err() {
            return Err(Error::Tokenizer(format!("{} tokens are more than 32-bit ids", tokens.len())));
        }
        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, (text, _)) in tokens.iter().enumerate() {
            if !text.is_empty() {
                ids.entry(Arc::clone(text)).or_insert(id as u32);
            }
        }
        Ok(Vocabulary { tokens, ids })
    }

    /// Ids run from 0 to this, exclusive.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The text of `id` as the file spells it.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(|(text, _)| &**text).filter(|text| !text.is_empty())
    }

    /// What `id` is for; [`Kind::Unused`] if it is out of range.
    pub fn kind(&self, id: u32) -> Kind {
        self.tokens.get(id as usize).map_or(Kind::Unused, |&(_, kind)| kind)
    }

    /// The id of the token spelled `text`.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// The id of the token that `text` may become when it is split.
    pub fn text_id(&self, text: &str) -> Option<u32> {
        self.id(text).filter(|&id| self.is_text(id))
    }

    /// Whether text may become `id`: never a control, unknown or byte token, however the text is spelled.
    pub fn is_text(&self, id: u32) -> bool {
        matches!(self.kind(id), Kind::Normal | Kind::User | Kind::Unused)
    }

    /// Id, text and kind of each token.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str, Kind)> {
        self.tokens.iter().enumerate().map(|(id, (text, kind))| (id as u32, &**text, *kind))
    }

    /// Whether `id` is left out when tokens become text again.
    pub fn is_hidden(&self, id: u32) -> bool {
        matches!(self.kind(id), Kind::Control | Kind::Unknown | Kind::Unused)
    }

    /// The ids of `<0x00>` to `<0xFF>`, if all are there.
    pub fn byte_ids(&self) -> Option<Box<[u32; 256]>> {
        let mut ids = Box::new([0; 256]);
        for (byte, slot) in ids.iter_mut().enumerate() {
            *slot = self.id(&format!("<0x{byte:02X}>"))?;
        }
        Some(ids)
    }
}

/// The byte that a token spelled `<0x41>` stands for.
pub(super) fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let all_hex = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// Whether a token is spelled like structure, whatever its kind in the file: GGUF's converters make such added tokens
/// control tokens, and so do we for the other files. Without it a user could write DeepSeek's `<｜Assistant｜>`.
pub(super) fn looks_like_control(text: &str) -> bool {
    let between = |start, end| text.starts_with(start) && text.ends_with(end) && text.len() > 4;
    between("<|", "|>")
        || between("<｜", "｜>")
        || (text.starts_with("<unused") && text.ends_with('>'))
        || matches!(text, "<pad>" | "<mask>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_equal_texts_keeps_its_id() {
        let tokens = [("a", Kind::Normal), ("a", Kind::Control), ("", Kind::Unused)];
        let vocabulary = Vocabulary::new(tokens.map(|(text, kind)| (Arc::from(text), kind))).unwrap();
        assert_eq!(vocabulary.id("a"), Some(0));
        assert_eq!((vocabulary.token(1), vocabulary.token(2), vocabulary.token(3)), (Some("a"), None, None));
        assert_eq!(vocabulary.kind(9), Kind::Unused);
        assert!(Vocabulary::new([]).is_err());
    }

    #[test]
    fn spellings() {
        assert_eq!(byte_token("<0xE6>"), Some(0xE6));
        for text in ["<0x+1>", "<0x123>", "<0xé>", "0x12", "<0x>"] {
            assert_eq!(byte_token(text), None, "{text}");
        }
        for text in ["<|im_end|>", "<｜User｜>", "<unused7>"] {
            assert!(looks_like_control(text), "{text}");
        }
        for text in ["<|>", "</think>", "<tool_call>", "|>"] {
            assert!(!looks_like_control(text), "{text}");
        }
    }
}

//! The list of tokens: text, kind and id. A text that occurs twice belongs to its first id.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::error::{Error, Result};
use crate::file::Texts;

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
    texts: Texts,
    kinds: Vec<Kind>,
    /// The first id of each text, found by the text.
    ids: HashTable<u32>,
    hasher: RandomState,
}

impl Vocabulary {
    /// A vocabulary of `tokens`, of which the index is the id.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if there are none, or more than ids.
    pub fn new<'a>(tokens: impl IntoIterator<Item = (&'a str, Kind)>) -> Result<Vocabulary> {
        let (mut texts, kinds): (Texts, Vec<Kind>) = tokens.into_iter().unzip();
        texts.shrink_to_fit();
        if texts.is_empty() {
            return Err(Error::Tokenizer("the vocabulary is empty".into()));
        }
        if u32::try_from(texts.len()).is_err() {
            return Err(Error::Tokenizer(format!("{} tokens are more than 32-bit ids", texts.len())));
        }
        let hasher = RandomState::new();
        let text_of = |id: u32| texts.get(id as usize).unwrap_or_default();
        let mut ids = HashTable::with_capacity(texts.len());
        for (id, text) in (0..).zip(texts.iter()).filter(|(_, text)| !text.is_empty()) {
            let hash = |&id: &u32| hasher.hash_one(text_of(id));
            if let Entry::Vacant(place) = ids.entry(hash(&id), |&other| text_of(other) == text, hash) {
                place.insert(id);
            }
        }
        Ok(Vocabulary { texts, kinds, ids, hasher })
    }

    /// Ids run from 0 to this, exclusive.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// The text of `id` as the file spells it.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).filter(|text| !text.is_empty())
    }

    /// What `id` is for; [`Kind::Unused`] if it is out of range.
    pub fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unused)
    }

    /// The id of the token spelled `text`.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.ids.find(self.hasher.hash_one(text), |&id| self.token(id) == Some(text)).copied()
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
        (0..).zip(self.texts.iter()).zip(&self.kinds).map(|((id, text), &kind)| (id, text, kind))
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
        let vocabulary = Vocabulary::new(tokens).unwrap();
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

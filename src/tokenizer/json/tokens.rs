//! The vocabulary and the merges, each of which is written in two ways.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A vocabulary.
#[derive(Debug)]
pub(super) enum Tokens {
    /// `{"token": id, …}`
    Listed(Vec<(String, u32)>),
    /// `[["token", score], …]`, the index is the id.
    Scored(Vec<(String, f64)>),
}

impl Tokens {
    pub fn len(&self) -> usize {
        match self {
            Tokens::Listed(tokens) => tokens.len(),
            Tokens::Scored(tokens) => tokens.len(),
        }
    }

    /// Text and id of each token.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (&str, u32)> + '_> {
        match self {
            Tokens::Listed(tokens) => Box::new(tokens.iter().map(|(text, id)| (text.as_str(), *id))),
            Tokens::Scored(tokens) => Box::new((0..).zip(tokens).map(|(id, (text, _))| (text.as_str(), id))),
        }
    }

    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.iter().map(|(_, id)| id)
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokensVisitor;

        impl<'de> Visitor<'de> for TokensVisitor {
            type Value = Tokens;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("tokens with ids, or a list of tokens with scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tokens, A::Error> {
                let mut tokens = Vec::new();
                while let Some(token) = map.next_entry()? {
                    tokens.push(token);
                }
                Ok(Tokens::Listed(tokens))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tokens, A::Error> {
                let mut tokens = Vec::new();
                while let Some(token) = list.next_element()? {
                    tokens.push(token);
                }
                Ok(Tokens::Scored(tokens))
            }
        }

        deserializer.deserialize_any(TokensVisitor)
    }
}

/// Two texts that become one: `"a b"` or `["a", "b"]`.
#[derive(Debug)]
pub(super) struct Merge(pub String, pub String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;

        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a merge of two texts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Merge, E> {
                let pair = super::super::gguf::split_merge(text);
                let (left, right) = pair.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))?;
                Ok(Merge(left.to_owned(), right.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merge, A::Error> {
                let left = list.next_element()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
                let right = list.next_element()?.ok_or_else(|| de::Error::invalid_length(1, &self))?;
                Ok(Merge(left, right))
            }
        }

        deserializer.deserialize_any(MergeVisitor)
    }
}

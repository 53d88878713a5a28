//! `normalizer`.

use serde::Deserialize;

use super::super::charsmap::Charsmap;
use super::super::normal::Normal;
use super::super::pattern::Pattern;
use crate::error::{Error, Result};

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum Normalizer {
    Sequence {
        normalizers: Vec<Normalizer>,
    },
    #[serde(rename = "NFC")]
    Nfc,
    #[serde(rename = "NFD")]
    Nfd,
    #[serde(rename = "NFKC")]
    Nfkc,
    #[serde(rename = "NFKD")]
    Nfkd,
    Lowercase,
    Strip {
        strip_left: bool,
        strip_right: bool,
    },
    Replace {
        pattern: PatternFile,
        content: String,
    },
    Prepend {
        prepend: String,
    },
    Precompiled {
        precompiled_charsmap: String,
    },
    #[serde(untagged)]
    Other {
        #[serde(rename = "type")]
        name: String,
    },
}

/// What a step looks for.
#[derive(Deserialize)]
pub(super) enum PatternFile {
    String(String),
    Regex(String),
}

impl PatternFile {
    /// Compiles the pattern.
    ///
    /// # Errors
    /// As [`Pattern::new`]; an empty text is an error as well.
    pub fn compile(self) -> Result<Pattern> {
        match self {
            PatternFile::String(text) if text.is_empty() => {
                Err(Error::Tokenizer("an empty text to look for".into()))
            }
            PatternFile::String(text) => Ok(Pattern::Literal(text)),
            PatternFile::Regex(source) => Pattern::new(&source),
        }
    }
}

impl Normalizer {
    /// The steps in order.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a step that is not known, [`Error::Tokenizer`] for one that makes no sense.
    pub fn steps(self) -> Result<Vec<Normal>> {
        Ok(vec![match self {
            Normalizer::Sequence { normalizers } => {
                let mut steps = Vec::new();
                for normalizer in normalizers {
                    steps.extend(normalizer.steps()?);
                }
                return Ok(steps);
            }
            Normalizer::Nfc => Normal::Nfc,
            Normalizer::Nfd => Normal::Nfd,
            Normalizer::Nfkc => Normal::Nfkc,
            Normalizer::Nfkd => Normal::Nfkd,
            Normalizer::Lowercase => Normal::Lowercase,
            Normalizer::Strip { strip_left, strip_right } => {
                Normal::Strip { left: strip_left, right: strip_right }
            }
            Normalizer::Replace { pattern, content } => {
                Normal::Replace { pattern: pattern.compile()?, content }
            }
            Normalizer::Prepend { prepend } => Normal::Prepend(prepend),
            Normalizer::Precompiled { precompiled_charsmap } => {
                Normal::Charsmap(Charsmap::from_base64(&precompiled_charsmap)?)
            }
            Normalizer::Other { name } => return Err(Error::unsupported("normalizer", name, "")),
        }])
    }
}

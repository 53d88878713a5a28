//! `decoder`.

use serde::Deserialize;

use super::super::split::{Prefix, Step};
use super::super::stream::Spelling;
use super::normalizer::PatternFile;
use crate::error::{Error, Result};

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum Decoder {
    Sequence {
        decoders: Vec<Decoder>,
    },
    ByteLevel,
    ByteFallback,
    Fuse,
    Replace {
        pattern: PatternFile,
        content: String,
    },
    Strip {
        content: String,
        start: usize,
        stop: usize,
    },
    Metaspace {
        replacement: char,
        prepend_scheme: Option<Prefix>,
        add_prefix_space: Option<bool>,
    },
    #[serde(untagged)]
    Other {
        #[serde(rename = "type")]
        name: String,
    },
}

/// How tokens are spelled, and whether a text loses one space at its beginning. A file without a decoder says it by the
/// way in which it cuts words.
///
/// # Errors
/// [`Error::Unsupported`] for a decoder that can't be applied token by token.
pub(super) fn spelling(
    decoder: Option<Decoder>,
    steps: &[Step],
    byte_fallback: bool,
) -> Result<(Spelling, bool)> {
    let Some(decoder) = decoder else {
        let by_bytes = steps.iter().any(|step| matches!(step, Step::Bytes));
        let plain = Spelling::Replaced { replacements: Vec::new(), byte_tokens: byte_fallback };
        return Ok((if by_bytes { Spelling::Bytes } else { plain }, false));
    };
    let mut all = Vec::new();
    decoder.flatten(&mut all);
    let mut replacements = Vec::new();
    let (mut byte_tokens, mut strips_space) = (false, false);
    for decoder in all {
        match decoder {
            Decoder::ByteLevel => return Ok((Spelling::Bytes, false)),
            Decoder::ByteFallback => byte_tokens = true,
            // Pieces are joined in any case; a sequence is flat by now.
            Decoder::Fuse | Decoder::Sequence { .. } => {}
            Decoder::Replace { pattern: PatternFile::String(from), content } if !from.is_empty() => {
                replacements.push((from, content));
            }
            Decoder::Strip { start: 0, stop: 0, .. } => {}
            Decoder::Strip { content, start: 1, stop: 0 } if content == " " => strips_space = true,
            Decoder::Metaspace { replacement, prepend_scheme, add_prefix_space } => {
                replacements.push((replacement.to_string(), " ".to_owned()));
                let never = add_prefix_space == Some(false) || prepend_scheme == Some(Prefix::Never);
                strips_space |= !never;
            }
            Decoder::Replace { .. } => {
                return Err(Error::unsupported("decoder", "Replace", "with a pattern"));
            }
            Decoder::Strip { .. } => {
                return Err(Error::unsupported("decoder", "Strip", "of more than one space"));
            }
            Decoder::Other { name } => return Err(Error::unsupported("decoder", name, "")),
        }
    }
    Ok((Spelling::Replaced { replacements, byte_tokens }, strips_space))
}

impl Decoder {
    fn flatten(self, all: &mut Vec<Decoder>) {
        match self {
            Decoder::Sequence { decoders } => decoders.into_iter().for_each(|decoder| decoder.flatten(all)),
            other => all.push(other),
        }
    }
}

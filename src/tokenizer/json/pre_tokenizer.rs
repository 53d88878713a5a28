//! `pre_tokenizer`.

use serde::Deserialize;

use super::super::pattern::Pattern;
use super::super::pre;
use super::super::split::{Behavior, Prefix, Step};
use super::normalizer::PatternFile;
use crate::error::{Error, Result};

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum PreTokenizer {
    Sequence {
        pretokenizers: Vec<PreTokenizer>,
    },
    ByteLevel {
        #[serde(default = "yes")]
        add_prefix_space: bool,
        #[serde(default = "yes")]
        use_regex: bool,
    },
    Split {
        pattern: PatternFile,
        behavior: Behavior,
        #[serde(default)]
        invert: bool,
    },
    Digits {
        #[serde(default)]
        individual_digits: bool,
    },
    Punctuation {
        #[serde(default = "isolated")]
        behavior: Behavior,
    },
    Whitespace,
    WhitespaceSplit,
    CharDelimiterSplit {
        delimiter: char,
    },
    Metaspace {
        replacement: char,
        prepend_scheme: Option<Prefix>,
        /// How older files say it.
        add_prefix_space: Option<bool>,
        #[serde(default = "yes")]
        split: bool,
    },
    #[serde(untagged)]
    Other {
        #[serde(rename = "type")]
        name: String,
    },
}

fn yes() -> bool {
    true
}

fn isolated() -> Behavior {
    Behavior::Isolated
}

impl PreTokenizer {
    /// The steps in order.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a step that is not known, [`Error::Tokenizer`] for one that makes no sense.
    pub fn steps(self) -> Result<Vec<Step>> {
        let split = |pattern: &str, behavior, invert| {
            Pattern::new(pattern).map(|pattern| vec![Step::Split { pattern, behavior, invert }])
        };
        match self {
            PreTokenizer::Sequence { pretokenizers } => {
                let mut steps = Vec::new();
                for pre_tokenizer in pretokenizers {
                    steps.extend(pre_tokenizer.steps()?);
                }
                Ok(steps)
            }
            PreTokenizer::ByteLevel { add_prefix_space, use_regex } => {
                let mut steps = Vec::new();
                if add_prefix_space {
                    steps.push(Step::PrefixSpace);
                }
                if use_regex {
                    steps.push(Step::isolate(pre::GPT2)?);
                }
                steps.push(Step::Bytes);
                Ok(steps)
            }
            PreTokenizer::Split { pattern, behavior, invert } => {
                Ok(vec![Step::Split { pattern: pattern.compile()?, behavior, invert }])
            }
            PreTokenizer::Digits { individual_digits: true } => split(r"\p{N}", Behavior::Isolated, false),
            PreTokenizer::Digits { individual_digits: false } => split(r"\p{N}", Behavior::Contiguous, false),
            PreTokenizer::Punctuation { behavior } => split(pre::PUNCTUATION, behavior, false),
            PreTokenizer::Whitespace => split(r"\w+|[^\w\s]+", Behavior::Removed, true),
            PreTokenizer::WhitespaceSplit => split(r"\s", Behavior::Removed, false),
            PreTokenizer::CharDelimiterSplit { delimiter } => {
                let pattern = Pattern::Literal(delimiter.to_string());
                Ok(vec![Step::Split { pattern, behavior: Behavior::Removed, invert: false }])
            }
            PreTokenizer::Metaspace { replacement, prepend_scheme, add_prefix_space, split } => {
                let prefix = match add_prefix_space {
                    Some(false) => Prefix::Never,
                    _ => prepend_scheme.unwrap_or_default(),
                };
                Ok(vec![Step::Metaspace { replacement, prefix, split }])
            }
            PreTokenizer::Other { name } => Err(Error::unsupported("pre-tokenizer", name, "")),
        }
    }
}

//! Cutting a text into the words that merging does not cross, in the steps that a tokenizer lists.

use std::ops::Range;

use serde::Deserialize;

use super::alphabet;
use super::pattern::Pattern;
use crate::error::Result;

/// A text, and the parts of it that are still words: in order, disjoint, none empty.
#[derive(Debug)]
pub(super) struct Words {
    text: String,
    ranges: Vec<Range<usize>>,
}

/// What a stretch of text comes after. Vocabularies that write a space in front of words do so at the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum After {
    /// Nothing: the text begins.
    Nothing,
    /// A token that was found as a whole.
    Token,
    /// Other text.
    Text,
}

/// One step, applied to each word by itself.
#[derive(Debug)]
pub(super) enum Step {
    /// Cut at the matches of a pattern.
    Split {
        /// What to look for.
        pattern: Pattern,
        /// What becomes of a match.
        behavior: Behavior,
        /// Swap matches and the text between them.
        invert: bool,
    },
    /// Put a space before a word that does not begin with one.
    PrefixSpace,
    /// Spell the bytes in [`alphabet`].
    Bytes,
    /// Replace spaces by a visible character, and cut before each.
    Metaspace {
        /// The character, `▁`.
        replacement: char,
        /// Where to put one more in front.
        prefix: Prefix,
        /// Whether to cut.
        split: bool,
    },
}

/// What becomes of the matches of a pattern. The names are those of tokenizer.json.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(super) enum Behavior {
    /// Dropped.
    Removed,
    /// A word each.
    Isolated,
    /// The end of the word before.
    MergedWithPrevious,
    /// The beginning of the word after.
    MergedWithNext,
    /// Adjacent matches are one word.
    Contiguous,
}

/// Which words get a space in front.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Prefix {
    /// The one that begins the text.
    First,
    /// None.
    Never,
    /// All.
    #[default]
    Always,
}

impl Words {
    /// `text` as one word.
    pub fn new(text: String) -> Words {
        let mut words = Words { ranges: Vec::new(), text };
        words.keep(0..words.text.len());
        words
    }

    /// The words in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.ranges.iter().map(|range| &self.text[range.clone()])
    }

    fn keep(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.ranges.push(range);
        }
    }

    /// Rewrites every word.
    fn rewrite(&mut self, mut each: impl FnMut(&str, bool, &mut String)) {
        let mut text = String::with_capacity(self.text.len());
        for range in &mut self.ranges {
            let start = text.len();
            each(&self.text[range.clone()], range.start == 0, &mut text);
            *range = start..text.len();
        }
        self.text = text;
    }

    /// Cuts every word at the matches of `pattern`.
    fn split(&mut self, pattern: &Pattern, behavior: Behavior, invert: bool) -> Result<()> {
        let mut pieces = Vec::new();
        for word in std::mem::take(&mut self.ranges) {
            pieces.clear();
            let mut end = 0;
            pattern.each_match(&self.text[word.clone()], |found| {
                if end < found.start {
                    pieces.push((end..found.start, invert));
                }
                end = found.end;
                pieces.push((found, !invert));
            })?;
            if end < word.len() {
                pieces.push((end..word.len(), invert));
            }
            behavior.arrange(&mut pieces);
            self.ranges
                .extend(pieces.iter().map(|(piece, _)| word.start + piece.start..word.start + piece.end));
        }
        Ok(())
    }
}

impl Behavior {
    /// Drops or joins adjacent `pieces`, each marked with whether it is a match.
    fn arrange(self, pieces: &mut Vec<(Range<usize>, bool)>) {
        match self {
            Behavior::Isolated => {}
            Behavior::Removed => pieces.retain(|(_, found)| !found),
            Behavior::Contiguous => pieces.dedup_by(|next, kept| {
                let join = next.1 == kept.1;
                if join {
                    kept.0.end = next.0.end;
                }
                join
            }),
            Behavior::MergedWithPrevious => absorb(pieces, |kept, found| kept.end = found.end),
            Behavior::MergedWithNext => {
                pieces.reverse();
                absorb(pieces, |kept, found| kept.start = found.start);
                pieces.reverse();
            }
        }
    }
}

/// Joins each match to the piece before it, unless that was a match too.
fn absorb(pieces: &mut Vec<(Range<usize>, bool)>, extend: impl Fn(&mut Range<usize>, &Range<usize>)) {
    let mut after_match = pieces.first().is_some_and(|&(_, found)| found);
    pieces.dedup_by(|next, kept| {
        let join = next.1 && !after_match;
        after_match = next.1;
        if join {
            extend(&mut kept.0, &next.0);
        }
        join
    });
}

impl Step {
    /// A step that cuts at `pattern`, each match a word.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub fn isolate(pattern: &str) -> Result<Step> {
        Ok(Step::Split { pattern: Pattern::new(pattern)?, behavior: Behavior::Isolated, invert: false })
    }

    /// Applies the step to the words of a stretch of text.
    ///
    /// # Errors
    /// As [`Pattern::each_match`].
    pub fn apply(&self, words: &mut Words, after: After) -> Result<()> {
        match self {
            Step::Split { pattern, behavior, invert } => words.split(pattern, *behavior, *invert)?,
            Step::PrefixSpace => words.rewrite(|word, at_start, out| {
                let continues = at_start && after == After::Text;
                if !(continues || word.starts_with(' ')) {
                    out.push(' ');
                }
                out.push_str(word);
            }),
            Step::Bytes => words.rewrite(|word, _, out| alphabet::spell(word.as_bytes(), out)),
            Step::Metaspace { replacement, prefix, split } => {
                words.rewrite(|word, at_start, out| {
                    let wanted = match prefix {
                        Prefix::Always => !(at_start && after == After::Text),
                        Prefix::Never => false,
                        Prefix::First => at_start && after == After::Nothing,
                    };
                    if wanted && !word.starts_with([' ', *replacement]) {
                        out.push(*replacement);
                    }
                    out.extend(word.chars().map(|char| if char == ' ' { *replacement } else { char }));
                });
                if *split {
                    let pattern = Pattern::Literal(replacement.to_string());
                    words.split(&pattern, Behavior::MergedWithNext, false)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    use super::*;

    const TEXTS: [&str; 8] =
        ["", "a-b", "--a--b--", "-", "a--", " lead  and trail ", "x ▁y", "grüße 歪\u{1F600} - -"];

    /// What the reference makes of `text`.
    fn reference(step: &impl PreTokenizer, text: &str) -> Vec<String> {
        let mut words = PreTokenizedString::from(text);
        step.pre_tokenize(&mut words).unwrap();
        let splits = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(word, ..)| word.to_owned()).collect()
    }

    fn ours(steps: &[Step], text: &str) -> Vec<String> {
        let mut words = Words::new(text.to_owned());
        for step in steps {
            step.apply(&mut words, After::Nothing).unwrap();
        }
        words.iter().map(str::to_owned).collect()
    }

    #[test]
    fn every_behavior_cuts_like_the_reference() {
        use Behavior::*;
        use SplitDelimiterBehavior as Theirs;
        let behaviors = [
            (Removed, Theirs::Removed),
            (Isolated, Theirs::Isolated),
            (MergedWithPrevious, Theirs::MergedWithPrevious),
            (MergedWithNext, Theirs::MergedWithNext),
            (Contiguous, Theirs::Contiguous),
        ];
        let mut failures = Vec::new();
        for (behavior, theirs) in behaviors {
            for invert in [false, true] {
                for source in ["-", "[- ]+", r"\p{L}"] {
                    let pattern = Pattern::new(source).unwrap();
                    let step = [Step::Split { pattern, behavior, invert }];
                    let their_pattern = SplitPattern::Regex(source.to_owned());
                    let their_step = Split::new(their_pattern, theirs, invert).unwrap();
                    for text in TEXTS {
                        let (found, expected) = (ours(&step, text), reference(&their_step, text));
                        if found != expected {
                            failures.push(format!(
                                "{behavior:?} invert {invert} {source} on {text:?}: {found:?}, not {expected:?}"
                            ));
                        }
                    }
                }
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    }

    #[test]
    fn spaces_and_bytes_are_spelled_like_the_reference() {
        for text in TEXTS {
            assert_eq!(ours(&[Step::Bytes], text), reference(&ByteLevel::new(false, true, false), text));
            let steps = [Step::PrefixSpace, Step::Bytes];
            assert_eq!(ours(&steps, text), reference(&ByteLevel::new(true, true, false), text), "{text:?}");
            for (prefix, scheme) in [
                (Prefix::First, PrependScheme::First),
                (Prefix::Never, PrependScheme::Never),
                (Prefix::Always, PrependScheme::Always),
            ] {
                for split in [false, true] {
                    let step = [Step::Metaspace { replacement: '▁', prefix, split }];
                    let theirs = Metaspace::new('▁', scheme, split);
                    assert_eq!(ours(&step, text), reference(&theirs, text), "{step:?} {text:?}");
                }
            }
        }
    }
}

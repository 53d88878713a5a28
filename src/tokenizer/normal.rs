//! What a text goes through before it is cut into words.

use std::borrow::Cow;

use tokenizers::NormalizedString;

use super::charsmap::Charsmap;
use super::pattern::Pattern;
use crate::error::Result;

/// One step.
#[derive(Debug)]
pub(super) enum Normal {
    /// Unicode's canonical composition.
    Nfc,
    /// Unicode's canonical decomposition.
    Nfd,
    /// Unicode's compatibility composition.
    Nfkc,
    /// Unicode's compatibility decomposition.
    Nfkd,
    /// Small letters.
    Lowercase,
    /// White space at the ends goes.
    Strip {
        /// At the beginning.
        left: bool,
        /// At the end.
        right: bool,
    },
    /// Matches become another text.
    Replace {
        /// What to look for.
        pattern: Pattern,
        /// What to put there.
        content: String,
    },
    /// A text in front of one that is not empty.
    Prepend(String),
    /// SentencePiece's table of rewritten characters.
    Charsmap(Charsmap),
}

impl Normal {
    /// Applies the step.
    ///
    /// # Errors
    /// As [`Pattern::each_match`].
    pub fn apply<'a>(&self, text: Cow<'a, str>) -> Result<Cow<'a, str>> {
        Ok(match self {
            // Plain ASCII is all of Unicode's forms already.
            Normal::Nfc | Normal::Nfd | Normal::Nfkc | Normal::Nfkd if text.is_ascii() => text,
            Normal::Nfc => form(&text, NormalizedString::nfc),
            Normal::Nfd => form(&text, NormalizedString::nfd),
            Normal::Nfkc => form(&text, NormalizedString::nfkc),
            Normal::Nfkd => form(&text, NormalizedString::nfkd),
            // Letter by letter, as the reference does: `str::to_lowercase` knows of the final sigma.
            Normal::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Normal::Strip { left, right } => {
                let mut rest = &*text;
                rest = if *left { rest.trim_start() } else { rest };
                rest = if *right { rest.trim_end() } else { rest };
                Cow::Owned(rest.to_owned())
            }
            Normal::Replace { pattern, content } => {
                let mut out = String::with_capacity(text.len());
                let mut end = 0;
                pattern.each_match(&text, |found| {
                    out.push_str(&text[end..found.start]);
                    out.push_str(content);
                    end = found.end;
                })?;
                if end == 0 {
                    return Ok(text);
                }
                out.push_str(&text[end..]);
                Cow::Owned(out)
            }
            Normal::Prepend(prefix) if !text.is_empty() => Cow::Owned(format!("{prefix}{text}")),
            Normal::Prepend(_) => text,
            Normal::Charsmap(map) => Cow::Owned(map.apply(&text)),
        })
    }
}

fn form<'a>(text: &str, normalize: impl Fn(&mut NormalizedString) -> &mut NormalizedString) -> Cow<'a, str> {
    let mut string = NormalizedString::from(text);
    Cow::Owned(normalize(&mut string).get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_does_what_its_name_says() {
        let space = || Pattern::Literal(" ".into());
        let cases = [
            (Normal::Nfc, "e\u{301}x", "éx"),
            (Normal::Nfd, "é", "e\u{301}"),
            (Normal::Nfkc, "ﬁ①", "fi1"),
            (Normal::Nfkd, "ﬁé", "fie\u{301}"),
            (Normal::Lowercase, "ΑΣ İ", "ας i\u{307}".replace('ς', "σ").leak()),
            (Normal::Strip { left: true, right: false }, " \u{3000}a ", "a "),
            (Normal::Strip { left: false, right: true }, " a\n", " a"),
            (Normal::Replace { pattern: space(), content: "▁".into() }, " a  b", "▁a▁▁b"),
            (Normal::Replace { pattern: space(), content: "▁".into() }, "ab", "ab"),
            (
                Normal::Replace { pattern: Pattern::new(" {2,}").unwrap(), content: " ".into() },
                "a   b c",
                "a b c",
            ),
            (Normal::Prepend("▁".into()), "a", "▁a"),
            (Normal::Prepend("▁".into()), "", ""),
        ];
        for (step, text, expected) in cases {
            assert_eq!(step.apply(Cow::Borrowed(text)).unwrap(), expected, "{step:?} {text:?}");
        }
    }
}

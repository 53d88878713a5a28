//! Tokens that are taken out of a text before it is cut into words: control tokens, where the text may hold them, and
//! tokens added by hand. Of several that match, the leftmost counts, and of those the longest.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::error::{Error, Result};

/// A token that is found as a whole.
#[derive(Clone, Debug)]
pub(super) struct Added {
    /// Its id.
    pub id: u32,
    /// How it is spelled in a text.
    pub text: String,
    /// Whether it is structure rather than text.
    pub control: bool,
    /// White space before it belongs to it.
    pub strip_left: bool,
    /// White space after it belongs to it.
    pub strip_right: bool,
    /// It must not touch a letter or digit.
    pub single_word: bool,
}

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// Text between tokens, never empty.
    Text(&'a str),
    /// A token.
    Token(u32),
}

/// Finds a set of tokens.
#[derive(Debug)]
pub(super) struct Finder {
    automaton: Option<AhoCorasick>,
    added: Vec<Added>,
}

impl Finder {
    /// A finder of those of `added` that are spelled at all.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if they are too many.
    pub fn new(added: impl IntoIterator<Item = Added>) -> Result<Finder> {
        let added: Vec<_> = added.into_iter().filter(|token| !token.text.is_empty()).collect();
        let automaton = automaton(MatchKind::LeftmostLongest, added.iter().map(|token| &token.text))?;
        Ok(Finder { automaton, added })
    }

    /// Cuts `text` at the tokens that `wanted` lets pass; the others stay text.
    pub fn cut<'a>(&self, text: &'a str, wanted: impl Fn(&Added) -> bool) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let mut done = 0;
        for found in self.automaton.iter().flat_map(|automaton| automaton.find_iter(text)) {
            let token = &self.added[found.pattern().as_usize()];
            let (before, after) = (&text[..found.start()], &text[found.end()..]);
            let touches = before.ends_with(is_word) || after.starts_with(is_word);
            // A match may lie in the white space that the token before it took.
            if !wanted(token) || (token.single_word && touches) || found.start() < done {
                continue;
            }
            let start = if token.strip_left { before.trim_end().len().max(done) } else { before.len() };
            if done < start {
                parts.push(Part::Text(&text[done..start]));
            }
            parts.push(Part::Token(token.id));
            let rest = if token.strip_right { after.trim_start() } else { after };
            done = text.len() - rest.len();
        }
        if done < text.len() {
            parts.push(Part::Text(&text[done..]));
        }
        parts
    }
}

/// An automaton over `texts`; none if there are no texts.
pub(super) fn automaton<T: AsRef<[u8]>>(
    kind: MatchKind,
    texts: impl ExactSizeIterator<Item = T>,
) -> Result<Option<AhoCorasick>> {
    if texts.len() == 0 {
        return Ok(None);
    }
    // A prefilter looks ahead for a rare byte, each time anew and maybe to the end of the text: quadratic for a
    // megabyte of spaces where runs of spaces are tokens.
    let built = AhoCorasick::builder().match_kind(kind).prefilter(false).build(texts);
    built.map(Some).map_err(|error| Error::Tokenizer(format!("control tokens: {error}")))
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(id: u32, text: &str) -> Added {
        let text = text.to_owned();
        Added { id, text, control: true, strip_left: false, strip_right: false, single_word: false }
    }

    #[test]
    fn texts_are_cut_at_the_leftmost_longest_token() {
        use Part::{Text, Token};
        let finder = Finder::new([
            added(0, "<s>"),
            added(1, "<s>>"),
            Added { strip_left: true, strip_right: true, ..added(2, "<m>") },
            Added { single_word: true, ..added(3, "day") },
            Added { control: false, ..added(4, "  ") },
            added(5, ""),
        ])
        .unwrap();
        let cases: [(&str, Vec<Part>); 9] = [
            ("", vec![]),
            ("a", vec![Text("a")]),
            ("<s>", vec![Token(0)]),
            ("a<s><s>>b", vec![Text("a"), Token(0), Token(1), Text("b")]),
            ("a \u{3000}<m>\n b", vec![Text("a"), Token(2), Text("b")]),
            ("<m>  <m>", vec![Token(2), Token(2)]),
            ("<m>   a", vec![Token(2), Text("a")]),
            ("today day", vec![Text("today "), Token(3)]),
            ("a  b", vec![Text("a"), Token(4), Text("b")]),
        ];
        for (text, expected) in cases {
            assert_eq!(finder.cut(text, |_| true), expected, "{text:?}");
        }
        assert_eq!(finder.cut("a<s>  ", |token| !token.control), [Text("a<s>"), Token(4)]);
        assert_eq!(Finder::new([]).unwrap().cut("<s>", |_| true), [Text("<s>")]);
    }
}

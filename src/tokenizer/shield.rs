//! Shielding: what a user wrote goes through a chat template beside the template's own control tokens, and must come out
//! as the letters it was. So before the template runs, every control token spelled in the user's text is broken by a
//! mark, and after the real control tokens were found in the rendered text, the marks are taken out again.
//!
//! A mark is U+FDD0, a noncharacter that no text should hold, and one more that says what the mark is for:
//! U+FDD0 U+FDD1 breaks a spelling and stands for nothing; U+FDD0 U+FDD2 stands for a U+FDD0 of the user's own;
//! U+FDD0, n+1 times U+FDD3 and U+FDD1 stand for the n-th control token of one character, which no mark can break.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};

use super::special::automaton;
use crate::error::Result;

const MARK: char = '\u{FDD0}';
const BREAK: char = '\u{FDD1}';
const LITERAL: char = '\u{FDD2}';
const SINGLE: char = '\u{FDD3}';

/// The characters of marks: what escapes text that went through here must leave them as they are.
pub(crate) fn is_mark(char: char) -> bool {
    matches!(char, MARK..=SINGLE)
}

/// Finds and breaks the spellings of control tokens.
#[derive(Debug)]
pub(super) struct Shield {
    /// Finds every spelling, also of those that overlap.
    spellings: Option<AhoCorasick>,
    /// The control tokens, sorted; also with their characters in reverse. Empty texts are left out.
    forward: Vec<String>,
    backward: Vec<String>,
    /// The control tokens of one character.
    singles: Vec<char>,
    /// The longest control token, in bytes.
    longest: usize,
}

impl Shield {
    /// A shield against `tokens`.
    ///
    /// # Errors
    /// As [`automaton`].
    pub fn new<'a>(tokens: impl IntoIterator<Item = &'a str>) -> Result<Shield> {
        let mut forward: Vec<String> =
            tokens.into_iter().filter(|text| !text.is_empty()).map(str::to_owned).collect();
        forward.sort_unstable();
        forward.dedup();
        let mut backward: Vec<String> = forward.iter().map(|text| text.chars().rev().collect()).collect();
        backward.sort_unstable();
        let singles = forward.iter().filter_map(|text| single(text)).collect();
        let longest = forward.iter().map(String::len).max().unwrap_or(0);
        let spellings = automaton(MatchKind::Standard, forward.iter())?;
        Ok(Shield { spellings, forward, backward, singles, longest })
    }

    /// `text` in which no control token is spelled, neither within it nor together with what may stand next to it.
    pub fn raise<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(spellings) = &self.spellings else { return self.escape(text, &[]) };
        // Where to put a break: after the first character of every spelling.
        let mut breaks = Vec::new();
        for found in spellings.find_overlapping_iter(text) {
            breaks.push(found.start() + text[found.start()..].chars().next().map_or(0, char::len_utf8));
        }
        breaks.extend(self.open_end(text));
        breaks.extend(self.open_start(text));
        breaks.sort_unstable();
        breaks.dedup();
        self.escape(text, &breaks)
    }

    /// Where the text ends, apart from white space, if it ends like the beginning of a control token or is the middle
    /// of one.
    fn open_end(&self, text: &str) -> Option<usize> {
        let text = text.trim_end();
        let middle = text.trim_start();
        let is_middle = |token: &String| !middle.is_empty() && token.contains(middle);
        if middle.len() < self.longest && self.forward.iter().any(is_middle) {
            return Some(text.len());
        }
        let nearest = text.len().saturating_sub(self.longest);
        let begins_token = |tail: &str| {
            let at = self.forward.partition_point(|token| token.as_str() <= tail);
            self.forward.get(at).is_some_and(|token| token.starts_with(tail))
        };
        let mut tails = text[..].char_indices().map(|(at, _)| at).rev().take_while(|&at| at >= nearest);
        tails.any(|at| begins_token(&text[at..])).then_some(text.len())
    }

    /// Where the text begins, apart from white space, if it begins like the end of a control token.
    fn open_start(&self, text: &str) -> Option<usize> {
        let trimmed = text.trim_start();
        let ends_token = |head: &str| {
            let at = self.backward.partition_point(|token| token.as_str() <= head);
            self.backward.get(at).is_some_and(|token| token.starts_with(head))
        };
        let mut head = String::new();
        let start = text.len() - trimmed.len();
        for char in trimmed.chars() {
            head.insert(0, char);
            if head.len() >= self.longest {
                break;
            }
            if ends_token(&head) {
                return Some(start);
            }
        }
        None
    }

    fn escape<'a>(&self, text: &'a str, breaks: &[usize]) -> Cow<'a, str> {
        if breaks.is_empty() && !text.contains(MARK) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + 6 * (breaks.len() + 1));
        let mut breaks = breaks.iter().peekable();
        for (at, char) in text.char_indices() {
            while breaks.next_if(|&&next| next <= at).is_some() {
                out.extend([MARK, BREAK]);
            }
            if let Some(index) = self.singles.iter().position(|&single| single == char) {
                out.push(MARK);
                out.extend(std::iter::repeat_n(SINGLE, index + 1));
                out.push(BREAK);
            } else {
                out.push(char);
                if char == MARK {
                    out.push(LITERAL);
                }
            }
        }
        if breaks.next().is_some() {
            out.extend([MARK, BREAK]);
        }
        Cow::Owned(out)
    }

    /// The text as it was before [`Shield::raise`]. A template may have cut marks apart: what is left of them goes.
    pub fn lower<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !text.contains(MARK) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            if char != MARK {
                out.push(char);
                continue;
            }
            let mut count = 0;
            while chars.next_if_eq(&SINGLE).is_some() {
                count += 1;
            }
            if count > 0 {
                out.extend(self.singles.get(count - 1));
                chars.next_if_eq(&BREAK);
            } else if chars.next_if_eq(&LITERAL).is_some() {
                out.push(MARK);
            } else {
                chars.next_if_eq(&BREAK);
            }
        }
        Cow::Owned(out)
    }
}

/// The only character of `text`.
fn single(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKENS: [&str; 7] = ["<s>", "</s>", "<|im_end|>", "<|im", "ab", "bc", "$"];

    fn shield() -> Shield {
        Shield::new(TOKENS).unwrap()
    }

    #[test]
    fn plain_text_is_left_alone() {
        for text in ["", "hello", "a < b > c", "x|im_end|", "歪\u{FDD1}\u{FDD2}"] {
            assert!(matches!(shield().raise(text), Cow::Borrowed(_)), "{text:?}");
        }
    }

    #[test]
    fn open_ends_are_closed() {
        for (text, expected) in [
            ("a <|im_", "a <|im_\u{FDD0}\u{FDD1}"),
            ("a < ", "a <\u{FDD0}\u{FDD1} "),
            (" s> x", " \u{FDD0}\u{FDD1}s> x"),
            ("> x", "\u{FDD0}\u{FDD1}> x"),
        ] {
            // The first token of TOKENS that overlaps in "<|im_" is there as a whole: it is broken as well.
            let raised = shield().raise(text).into_owned();
            let without = raised.replacen("<\u{FDD0}\u{FDD1}|im", "<|im", 1);
            assert_eq!(without, expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_spelling_is_left_and_all_comes_back(
            parts in prop::collection::vec(prop::sample::select(vec![
                "<s>", "<", "s", ">", "/", "<|im_end|>", "<|im", "_end", "|>", "abc", "a", "b", "$", " ", "\u{FDD0}", "\u{FDD1}",
                "\u{FDD2}", "\u{FDD3}", "歪", "\n",
            ]), 0..12),
            before in prop::sample::select(vec!["", "x", "<", "<|", "<|im", "a", "</"]),
            after in prop::sample::select(vec!["", "x", ">", "|>", "s>", "c"]),
        ) {
            let text = parts.concat();
            let shield = shield();
            let raised = shield.raise(&text);
            // Neither the text nor the text within what a template writes around it spells a token that the template
            // itself does not spell.
            for token in TOKENS {
                prop_assert!(!raised.contains(token), "{:?} has {}", raised, token);
                let around = format!("{before}{raised}{after}");
                let allowed = before.matches(token).count() + after.matches(token).count();
                let joined = raised.is_empty() && format!("{before}{after}").contains(token);
                prop_assert!(joined || around.matches(token).count() <= allowed, "{:?} has {}", around, token);
            }
            prop_assert_eq!(&*shield.lower(&raised), &*text);
        }
    }
}

//! The regular expressions that cut text into words. Almost all of them need one look-ahead only, the `\s+(?!\S)` at
//! their end ("white space, but leave its last character to the word that follows"). That one is done by hand, so
//! that the rest runs in linear time without a stack and without the backtracking limit at which the general engine
//! gives up (a million steps: reached by a megabyte of spaces). Other look-arounds go to the general engine, and
//! its giving up is an error here, never a text left uncut.

use std::ops::Range;

use regex_automata::{Input, meta, nfa::thompson::WhichCaptures, util::syntax};

use crate::error::{Error, Result};

/// A compiled pattern.
#[derive(Debug)]
pub(super) enum Pattern {
    /// Plain text.
    Literal(String),
    /// No look-around.
    Linear(meta::Regex),
    /// `words`, or else white space of which the last character is left over if something follows. A single
    /// such character is matched where `single` says so (`|\s+` at the end of the pattern), else skipped.
    Words {
        /// Pattern 0: the words. Pattern 1, which is tried second: `\s+`.
        regex: meta::Regex,
        /// See above.
        single: bool,
    },
    /// Everything else.
    Backtracking(Box<fancy_regex::Regex>),
}

/// White space not followed by a word, in the two ways in which patterns end.
const TAILS: [(&str, bool); 2] = [(r"|\s+(?!\S)|\s+", true), (r"|\s+(?!\S)", false)];
const SPACE: usize = 1;

impl Pattern {
    /// Compiles `source`.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if no engine can read it.
    pub fn new(source: &str) -> Result<Pattern> {
        for (tail, single) in TAILS {
            let Some(words) = source.strip_suffix(tail) else { continue };
            if is_plain(words)
                && let Some(regex) = compile(&[words, r"\s+"])
            {
                return Ok(Pattern::Words { regex, single });
            }
        }
        if is_plain(source)
            && let Some(regex) = compile(&[source])
        {
            return Ok(Pattern::Linear(regex));
        }
        let regex = fancy_regex::Regex::new(source)
            // The error shows the pattern again, on lines of their own.
            .map_err(|error| {
                Error::Tokenizer(format!("pattern {source:?}: {}", error.to_string().replace('\n', " ")))
            })?;
        Ok(Pattern::Backtracking(Box::new(regex)))
    }

    /// Calls `each` with every match in `text` that is not empty, in order.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the general engine gives up.
    pub fn each_match(&self, text: &str, mut each: impl FnMut(Range<usize>)) -> Result<()> {
        match self {
            Pattern::Literal(literal) => {
                text.match_indices(literal.as_str()).for_each(|(at, found)| each(at..at + found.len()));
            }
            Pattern::Linear(regex) => {
                regex.find_iter(text).filter(|found| !found.is_empty()).for_each(|found| each(found.range()));
            }
            Pattern::Words { regex, single } => each_word(regex, *single, text, each),
            Pattern::Backtracking(regex) => {
                for found in regex.find_iter(text) {
                    let found = found.map_err(|error| Error::Tokenizer(format!("pattern: {error}")))?;
                    if !found.range().is_empty() {
                        each(found.range());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Matches of [`Pattern::Words`]. `\s+` is greedy, so a match of it that does not reach the end of the text is followed
/// by something else than white space: there `\s+(?!\S)` matches all but its last character.
fn each_word(regex: &meta::Regex, single: bool, text: &str, mut each: impl FnMut(Range<usize>)) {
    let mut at = 0;
    while let Some(found) = regex.find(Input::new(text).span(at..text.len())) {
        let mut range = found.range();
        let mut skip = range.is_empty();
        if found.pattern().as_usize() == SPACE && range.end < text.len() {
            let last = text[range.clone()].chars().next_back().map_or(0, char::len_utf8);
            if last < range.len() {
                range.end -= last;
            } else {
                skip = !single;
            }
        }
        if !skip {
            each(range.clone());
        }
        // An empty match only ever comes from a pattern that can be empty: step over one character.
        at = range.end;
        if range.is_empty() {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
        if at > text.len() {
            break;
        }
    }
}

/// Whether `source` is free of look-around, of groups that do not give back what they matched, and of quantifiers that
/// do not (`++`, which `regex-syntax` reads as a repeated repetition).
fn is_plain(source: &str) -> bool {
    let mut rest = source;
    // Within how many brackets, and whether a quantifier has just ended.
    let (mut depth, mut quantified) = (0usize, false);
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        let was_quantified = std::mem::take(&mut quantified);
        match char {
            '\\' => {
                let escaped = rest.chars().next().map_or(0, char::len_utf8);
                rest = &rest[escaped..];
                // `\p{L}`: these braces are no quantifier.
                if rest.starts_with('{') {
                    rest = rest.split_once('}').map_or("", |(_, after)| after);
                }
            }
            '[' => {
                depth += 1;
                // A bracket right after the opening one is a letter.
                let first = rest.strip_prefix('^').unwrap_or(rest);
                rest = first.strip_prefix(']').unwrap_or(first);
            }
            ']' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            '(' if ["?=", "?!", "?<=", "?<!", "?>"].iter().any(|mark| rest.starts_with(mark)) => {
                return false;
            }
            '+' if was_quantified => return false,
            '?' | '*' | '+' | '}' => quantified = true,
            _ => {}
        }
    }
    true
}

/// The patterns as one automaton; none if they are not what `regex-syntax` reads.
fn compile(patterns: &[&str]) -> Option<meta::Regex> {
    // Matches are enough: without capture groups the automata are half the size.
    let config = meta::Config::new().which_captures(WhichCaptures::Implicit);
    meta::Builder::new().configure(config).syntax(syntax::Config::new()).build_many(patterns).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    fn matches(pattern: &Pattern, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        pattern.each_match(text, |range| found.push(range)).unwrap();
        found
    }

    #[test]
    fn the_linear_form_matches_like_the_general_engine() {
        let texts = [
            "",
            " ",
            "  ",
            "\n",
            "a",
            " a",
            "  a",
            "a ",
            "a  ",
            "   a   b\t\tc",
            "a \n b",
            " \n\n  x",
            "\u{a0}\u{3000} x",
            "I'll  say 'Tis 12 345!!\r\n\r\n ok",
            "tab\t\t\tx",
            "日本  語\u{2003}\u{2003}x",
            "\u{301}\u{301} a",
            "\0\0 \0a",
        ];
        let shorter = GPT2.strip_suffix(r"|\s+").unwrap();
        let mut failures = Vec::new();
        for source in [GPT2, QWEN2, shorter] {
            let fast = Pattern::new(source).unwrap();
            assert!(matches!(fast, Pattern::Words { .. }), "{source}");
            let slow = Pattern::Backtracking(Box::new(fancy_regex::Regex::new(source).unwrap()));
            for text in texts {
                let (found, expected) = (matches(&fast, text), matches(&slow, text));
                if found != expected {
                    failures.push(format!("{source} on {text:?}: {found:?}, expected {expected:?}"));
                }
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    }

    #[test]
    fn each_pattern_goes_to_the_engine_that_can_run_it() {
        assert!(matches!(Pattern::new(r"\p{N}{1,3}"), Ok(Pattern::Linear(_))));
        assert!(matches!(Pattern::new(r"(?=(\d{3})+(?!\d))"), Ok(Pattern::Backtracking(_))));
        for hard in [r"\p{L}++|x", r"a?+b", r"\p{N}{1,3}+", "(?>a+)b", "a(?<=b)", r"[\]](?!a)", "[]](?=a)"] {
            assert!(matches!(Pattern::new(hard), Ok(Pattern::Backtracking(_))), "{hard}");
        }
        for plain in [r"\p{L}+", r"[*+]+", "[^]++]", r"\(?!", "(?i:a)+?", "(a)+|[(?!]"] {
            assert!(matches!(Pattern::new(plain), Ok(Pattern::Linear(_))), "{plain}");
        }
        assert!(matches!(Pattern::new(r"(?!a)b|\s+(?!\S)"), Ok(Pattern::Backtracking(_))));
        assert!(matches!(Pattern::new(r"(a"), Err(Error::Tokenizer(_))));
        assert!(matches!(Pattern::new(r"(a|\s+(?!\S)|\s+"), Err(Error::Tokenizer(_))));
    }

    #[test]
    fn empty_matches_are_passed_over() {
        assert_eq!(matches(&Pattern::new("a*").unwrap(), "baaca"), [1..3, 4..5]);
        assert_eq!(matches(&Pattern::new(r"a*|\s+(?!\S)|\s+").unwrap(), "aé aa"), [0..1, 4..6]);
    }

    /// The general engine stops after a million backtracking steps, as if nothing more matched.
    #[test]
    fn a_megabyte_of_spaces_is_one_match() {
        let text = format!("{}x", " ".repeat(1 << 20));
        assert_eq!(
            matches(&Pattern::new(QWEN2).unwrap(), &text),
            [0..(1 << 20) - 1, (1 << 20) - 1..text.len()]
        );
    }

    #[test]
    fn a_pattern_that_explodes_is_an_error() {
        let pattern = Pattern::new(r"(?:a|a)*(?=b)(?<!c)d").unwrap();
        let result = pattern.each_match(&"a".repeat(64), |_| ());
        assert!(matches!(result, Err(Error::Tokenizer(_))), "{result:?}");
    }
}

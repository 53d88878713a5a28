//! DRY, "don't repeat yourself": a penalty on the token that would lengthen a repetition of earlier text.
//! p-e-w 2024, text-generation-webui pull request 5677.
//!
//! If the last n tokens already occurred, followed by token t, then t loses multiplier * base^(n - allowed_length),
//! for the longest such n, if n >= allowed_length. A repetition ends at a breaker, a token that contains one of
//! the breaker strings; breakers themselves lose nothing. All matches are found in linear time, with the Z
//! function (Gusfield 1997, "Algorithms on Strings, Trees, and Sequences", 1.3) of the reversed text.

use std::collections::HashMap;

use super::{Logits, Sampling};

#[derive(Debug)]
pub(super) struct Dry {
    multiplier: f64,
    base: f64,
    allowed_length: usize,
    last_n: usize,
    /// For each token of the vocabulary.
    is_breaker: Vec<bool>,
    history: Vec<u32>,
    /// Scratch: the history that counts, newest first.
    recent: Vec<u32>,
    /// Scratch of [`prefix_matches`].
    matches: Vec<usize>,
    /// Tokens that would lengthen a repetition, with the length of the longest.
    longest: HashMap<u32, usize>,
    /// Whether `longest` is of this history.
    current: bool,
}

impl Dry {
    /// `None` if the settings make no difference. `text` gives the bytes of a token.
    pub fn new<T: AsRef<[u8]>>(settings: &Sampling, vocab: usize, text: impl Fn(u32) -> T) -> Option<Self> {
        if settings.dry_multiplier == 0.0 || settings.dry_last_n == 0 {
            return None;
        }
        let contains = |text: &[u8], breaker: &str| {
            text.windows(breaker.len()).any(|window| window == breaker.as_bytes())
        };
        let is_breaker = (0..vocab as u32)
            .map(|id| settings.dry_breakers.iter().any(|breaker| contains(text(id).as_ref(), breaker)))
            .collect();
        Some(Dry {
            multiplier: f64::from(settings.dry_multiplier),
            base: f64::from(settings.dry_base),
            allowed_length: settings.dry_allowed_length,
            last_n: settings.dry_last_n,
            is_breaker,
            history: Vec::new(),
            recent: Vec::new(),
            matches: Vec::new(),
            longest: HashMap::new(),
            current: false,
        })
    }

    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
        self.current = false;
    }

    /// Tokens that are penalized.
    pub fn len(&mut self) -> usize {
        self.find_repetitions();
        self.longest.len()
    }

    pub fn apply(&mut self, logits: &mut (impl Logits + ?Sized)) {
        self.find_repetitions();
        for (&token, &length) in &self.longest {
            if let Some(logit) = logits.of(token) {
                let excess = (length - self.allowed_length) as f64;
                let penalty = self.multiplier * libm::pow(self.base, excess);
                // Finite however long the repetition, so that the token stays possible if no other is.
                let lowered = (f64::from(*logit) - penalty).max(f64::from(f32::MIN));
                *logit = logit.min(lowered as f32);
            }
        }
    }

    /// Fills `longest` with the repetitions of `allowed_length` or more.
    fn find_repetitions(&mut self) {
        if std::mem::replace(&mut self.current, true) {
            return;
        }
        let breaks = |token: u32| self.is_breaker.get(token as usize).copied().unwrap_or(false);
        let recent = &mut self.recent;
        recent.clear();
        recent.extend(self.history.iter().rev().take(self.last_n));
        prefix_matches(recent, &mut self.matches);
        // Newest first: a match may reach back to the newest breaker.
        let reach = recent.iter().position(|&token| breaks(token)).unwrap_or(recent.len());
        self.longest.clear();
        for (start, &length) in self.matches.iter().enumerate().skip(1) {
            let length = length.min(reach);
            let next = recent[start - 1];
            if length >= self.allowed_length && !breaks(next) {
                let known = self.longest.entry(next).or_insert(length);
                *known = length.max(*known);
            }
        }
    }
}

/// The Z function: element i becomes the length of the longest common prefix of `text` and `text[i..]`, 0 for i = 0.
fn prefix_matches(text: &[u32], matches: &mut Vec<usize>) {
    matches.clear();
    matches.resize(text.len(), 0);
    // text[left..right] is the match found so far that reaches farthest.
    let (mut left, mut right) = (0, 0);
    for i in 1..text.len() {
        let mut length = if i < right { matches[i - left].min(right - i) } else { 0 };
        while i + length < text.len() && text[length] == text[i + length] {
            length += 1;
        }
        if i + length > right {
            (left, right) = (i, i + length);
        }
        matches[i] = length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tokens are letters; the newline of the default breakers is `|` here, to be readable.
    fn settings() -> Sampling {
        Sampling {
            dry_multiplier: 1.0,
            dry_base: 2.0,
            dry_allowed_length: 2,
            dry_breakers: vec!["|".into()],
            ..Sampling::default()
        }
    }

    fn dry(settings: &Sampling, past: &[u8]) -> Dry {
        let mut dry = Dry::new(settings, 256, |id| [id as u8]).unwrap();
        past.iter().for_each(|&byte| dry.accept(u32::from(byte)));
        dry
    }

    #[test]
    fn penalty_grows_with_the_repetition() {
        let on = settings();
        type Case<'a> = (&'a Sampling, &'a str, &'a [(char, f32)]);
        let cases: [Case<'_>; 11] = [
            (&on, "", &[]),
            (&on, "abca", &[]),                // "a" repeats, 1 < 2
            (&on, "abcab", &[('c', 1.0)]),     // "ab" then c: 2^0
            (&on, "xabcyzxab", &[('c', 2.0)]), // "xab": 2^1
            (&on, "abcabdab", &[('c', 1.0), ('d', 1.0)]),
            (&on, "xabcdxabeab", &[('c', 1.0), ('e', 1.0)]),
            (&on, "aaaa", &[('a', 2.0)]), // "aaa" then a
            (&on, "x|bcx|b", &[]),        // the breaker leaves "b", 1 < 2
            (&on, "ab|cdab", &[]),        // the next token is the breaker
            (&Sampling { dry_last_n: 4, ..settings() }, "abcab", &[]),
            (&Sampling { dry_multiplier: 0.5, dry_allowed_length: 1, ..settings() }, "abca", &[('b', 0.5)]),
        ];
        let mut failures = Vec::new();
        for (settings, past, expected) in cases {
            let mut logits = vec![0.0; 256];
            dry(settings, past.as_bytes()).apply(&mut logits[..]);
            let found: Vec<(char, f32)> = (0..=255u8)
                .filter(|&id| logits[usize::from(id)] != 0.0)
                .map(|id| (char::from(id), -logits[usize::from(id)]))
                .collect();
            if found != expected {
                failures.push(format!("{past:?}: {found:?}, not {expected:?}"));
            }
        }
        assert!(failures.is_empty(), "{failures:#?}");
    }

    #[test]
    fn long_repetitions_stay_finite() {
        let mut logits = vec![-1.0; 256];
        dry(&settings(), &[b'a'; 5000]).apply(&mut logits[..]);
        assert_eq!(logits[usize::from(b'a')], f32::MIN);
        logits.fill(f32::NEG_INFINITY);
        dry(&settings(), &[b'a'; 5000]).apply(&mut logits[..]);
        assert_eq!(logits[usize::from(b'a')], f32::NEG_INFINITY, "a removed token is not raised");
    }

    #[test]
    fn off_when_it_makes_no_difference() {
        let off = [Sampling { dry_multiplier: 0.0, ..settings() }, Sampling { dry_last_n: 0, ..settings() }];
        for settings in off {
            assert!(Dry::new(&settings, 256, |_| "").is_none(), "{settings:?}");
        }
    }

    /// The proposal, word for word: for each earlier occurrence of the last token, walk back while both texts agree.
    fn naive(past: &[u8], allowed_length: usize) -> HashMap<u32, usize> {
        let mut longest = HashMap::new();
        let Some((&last, _)) = past.split_last() else { return longest };
        for i in 0..past.len() - 1 {
            let next = past[i + 1];
            if past[i] != last || last == b'|' || next == b'|' {
                continue;
            }
            let mut length = 1;
            while length <= i && past[i - length] == past[past.len() - 1 - length] && past[i - length] != b'|'
            {
                length += 1;
            }
            if length >= allowed_length {
                let known = longest.entry(u32::from(next)).or_insert(length);
                *known = length.max(*known);
            }
        }
        longest
    }

    proptest! {
        #[test]
        fn linear_search_equals_the_naive_one(past in "[ab|]{0,40}", allowed in 1usize..4) {
            let settings = Sampling { dry_allowed_length: allowed, ..settings() };
            let mut found = dry(&settings, past.as_bytes());
            found.find_repetitions();
            prop_assert_eq!(found.longest, naive(past.as_bytes(), allowed));
        }
    }
}

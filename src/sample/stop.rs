//! Stop strings: ends a stream of text where one of several texts is complete, and never lets a part of it out.

use super::Sampling;
use crate::error::Result;

/// Takes text in pieces and gives back what is surely not the beginning of a stop string. The stop is the one that
/// is complete first; of several, the one that began first. So how the text is cut into pieces makes no difference.
///
/// ```
/// use hadal::sample::StopStrings;
/// let mut stop = StopStrings::new(&["END".into()])?;
/// assert_eq!(stop.push("an E"), "an ");
/// assert_eq!(stop.push("ast wind EN"), "East wind ");
/// assert_eq!(stop.push("D, unseen"), "");
/// assert!(stop.is_stopped());
/// # Ok::<(), hadal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
    stopped: bool,
}

impl StopStrings {
    /// A matcher for any of `stops`; none is allowed, and then all text passes.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) if one of them is empty.
    pub fn new(stops: &[String]) -> Result<Self> {
        let settings = Sampling { stop: stops.to_vec(), ..Sampling::default() };
        settings.validate()?;
        Ok(StopStrings { stops: settings.stop, held: String::new(), stopped: false })
    }

    /// Adds `piece`; gives the text that may be shown now, which is empty once stopped.
    pub fn push(&mut self, piece: &str) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.push_str(piece);
        let shown = match self.first_match() {
            Some(start) => {
                self.stopped = true;
                start
            }
            None => self.held.len() - self.unfinished(),
        };
        let rest = self.held.split_off(shown);
        let shown = std::mem::replace(&mut self.held, rest);
        if self.stopped {
            self.held.clear();
        }
        shown
    }

    /// The text held back, when no more will come.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Whether a stop string was found.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Where the stop string that is complete first begins in `held`.
    fn first_match(&self) -> Option<usize> {
        let matches = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop).map(|start| (start + stop.len(), start)));
        matches.min().map(|(_, start)| start)
    }

    /// Bytes at the end of `held` that are the beginning of a stop string.
    fn unfinished(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let begins = |start: usize| {
            let tail = self.held.get(start..);
            tail.is_some_and(|tail| self.stops.iter().any(|stop| stop.starts_with(tail)))
        };
        let first = self.held.len().saturating_sub(longest);
        (first..self.held.len()).find(|&start| begins(start)).map_or(0, |start| self.held.len() - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matcher(stops: &[&str]) -> StopStrings {
        StopStrings::new(&stops.iter().map(|stop| stop.to_string()).collect::<Vec<_>>()).unwrap()
    }

    /// The text shown after each piece, then what `finish` shows, and whether it stopped.
    fn feed(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut matcher = matcher(stops);
        let mut shown: Vec<String> = pieces.iter().map(|piece| matcher.push(piece)).collect();
        shown.push(matcher.finish());
        (shown, matcher.is_stopped())
    }

    #[derive(Debug)]
    struct Case {
        stops: &'static [&'static str],
        pieces: &'static [&'static str],
        /// One more than pieces: the last is what is held at the end.
        shown: &'static [&'static str],
        stopped: bool,
    }

    const CASES: &[Case] = &[
        // The text that llama.cpp issue 11538 got wrong.
        Case {
            stops: &["O P Q"],
            pieces: &[" L", " M", " N", " O", " P", " Q", " R"],
            shown: &[" L", " M", " N", " ", "", "", "", ""],
            stopped: true,
        },
        Case { stops: &[], pieces: &["ab", "c"], shown: &["ab", "c", ""], stopped: false },
        Case { stops: &["abc"], pieces: &["xab", "d"], shown: &["x", "abd", ""], stopped: false },
        Case { stops: &["abc"], pieces: &["xab"], shown: &["x", "ab"], stopped: false },
        Case { stops: &["abc"], pieces: &["abcabc"], shown: &["", ""], stopped: true },
        Case {
            stops: &["aab"],
            pieces: &["a", "a", "a", "b", "c"],
            shown: &["", "", "a", "", "", ""],
            stopped: true,
        },
        // Several: the first complete one ends the text, also if another began earlier.
        Case { stops: &["xyz", "b"], pieces: &["ab", "xyz"], shown: &["a", "", ""], stopped: true },
        Case { stops: &["abcd", "bc"], pieces: &["zabcd"], shown: &["za", ""], stopped: true },
        Case {
            stops: &["abcd", "bc"],
            pieces: &["zab", "c", "d"],
            shown: &["z", "a", "", ""],
            stopped: true,
        },
        // Both complete at once: the one that began first.
        Case { stops: &["bc", "abc"], pieces: &["zab", "c"], shown: &["z", "", ""], stopped: true },
        // A broken-off stop inside which another begins.
        Case { stops: &["aax", "ab"], pieces: &["a", "a", "b"], shown: &["", "", "a", ""], stopped: true },
        Case {
            stops: &["é!", "日本"],
            pieces: &["né", "e日", "x日", "本y"],
            shown: &["n", "ée", "日x", "", ""],
            stopped: true,
        },
        Case {
            stops: &["\n\nUser:"],
            pieces: &["Hi.\n", "\nUs", "er", ":"],
            shown: &["Hi.", "", "", "", ""],
            stopped: true,
        },
        Case { stops: &["a"], pieces: &["", "b", ""], shown: &["", "b", "", ""], stopped: false },
    ];

    #[test]
    fn pieces_are_held_and_shown() {
        let failures: Vec<_> = CASES
            .iter()
            .filter_map(|case| {
                let (shown, stopped) = feed(case.stops, case.pieces);
                (shown != case.shown || stopped != case.stopped)
                    .then(|| format!("{case:?}: {shown:?}, {stopped}"))
            })
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }

    #[test]
    fn an_empty_stop_string_is_refused() {
        let error = StopStrings::new(&["x".into(), String::new()]).unwrap_err();
        assert_eq!(error.to_string(), "--stop: an empty text would stop at once");
    }

    /// Character by character, without holding anything back: where does the text end?
    fn naive<'a>(stops: &[String], text: &'a str) -> (&'a str, bool) {
        for (end, _) in text.char_indices().skip(1).chain([(text.len(), ' ')]) {
            let longest = stops.iter().filter(|stop| text[..end].ends_with(*stop)).map(String::len).max();
            if let Some(length) = longest {
                return (&text[..end - length], true);
            }
        }
        (text, false)
    }

    proptest! {
        #[test]
        fn cutting_the_text_differently_changes_nothing(
            pieces in prop::collection::vec("[abé]{0,4}", 0..12),
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
        ) {
            let mut matcher = StopStrings::new(&stops).unwrap();
            let mut shown = String::new();
            for piece in &pieces {
                shown += &matcher.push(piece);
            }
            shown += &matcher.finish();
            let text = pieces.concat();
            prop_assert_eq!((shown.as_str(), matcher.is_stopped()), naive(&stops, &text));
        }
    }
}

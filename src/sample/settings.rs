//! The settings of a sampler, with the defaults and the names of llama.cpp.

use crate::error::{Error, Result};

/// How the next token is chosen, and when to stop. Every filter has a value that turns it off.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits before the draw: below 1 sharper, above 1 flatter. 0 takes the most likely token.
    pub temperature: f32,
    /// Keep this many of the most likely tokens; 0 is off.
    pub top_k: usize,
    /// Keep the most typical tokens up to this share of the probability; 1 is off.
    pub typical_p: f32,
    /// Keep the most likely tokens up to this share of the probability; 1 is off.
    pub top_p: f32,
    /// Keep tokens at least this many times as likely as the most likely one; 0 is off.
    pub min_p: f32,
    /// How often XTC drops the top choices, 0 to 1; 0 is off.
    pub xtc_probability: f32,
    /// How likely a token must be for XTC to drop it; above 0.5 is off.
    pub xtc_threshold: f32,
    /// Divides the positive logits of recent tokens and multiplies the negative ones; 1 is off.
    pub repeat_penalty: f32,
    /// How many of the last tokens the repeat, presence and frequency penalties look at; 0 is off,
    /// `usize::MAX` all of them.
    pub repeat_last_n: usize,
    /// Taken from the logit of each recent token once; 0 is off.
    pub presence_penalty: f32,
    /// Taken from the logit of each recent token as often as it occurs; 0 is off.
    pub frequency_penalty: f32,
    /// Strength of the DRY penalty; 0 is off.
    pub dry_multiplier: f32,
    /// How fast the DRY penalty grows with the length of a repetition; at least 1.
    pub dry_base: f32,
    /// Repetitions of this many tokens get the smallest DRY penalty, shorter ones none; at least 1.
    pub dry_allowed_length: usize,
    /// How many of the last tokens DRY looks at; 0 is off, `usize::MAX` all of them.
    pub dry_last_n: usize,
    /// A token that contains one of these ends a repetition for DRY.
    pub dry_breakers: Vec<String>,
    /// Added to the logits of tokens; -infinity forbids one.
    pub logit_bias: Vec<(u32, f32)>,
    /// Starts the random numbers; `None` picks one.
    pub seed: Option<u64>,
    /// Texts at which the answer ends; they are not part of it.
    pub stop: Vec<String>,
    /// The most tokens to generate; `None` goes on until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// No filter leaves fewer tokens than this; at least 1.
    pub min_keep: usize,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.8,
            top_k: 40,
            typical_p: 1.0,
            top_p: 0.95,
            min_p: 0.05,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_last_n: usize::MAX,
            dry_breakers: ["\n", ":", "\"", "*"].map(String::from).to_vec(),
            logit_bias: Vec::new(),
            seed: None,
            stop: Vec::new(),
            max_tokens: None,
            min_keep: 1,
        }
    }
}

impl Sampling {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    /// # Errors
    /// [`Error::Option`] names the first setting outside its range, as a user types it.
    pub fn validate(&self) -> Result<()> {
        const SHARE: &str = "a number from 0 to 1";
        const POSITIVE: &str = "a number above 0";
        const NOT_NEGATIVE: &str = "a number of at least 0";
        const FINITE: &str = "a finite number";
        let share = |value: f32| (0.0..=1.0).contains(&value);
        let not_negative = |value: f32| value >= 0.0;
        let numbers = [
            ("--temp", self.temperature, not_negative(self.temperature), NOT_NEGATIVE),
            ("--typical", self.typical_p, share(self.typical_p), SHARE),
            ("--top-p", self.top_p, share(self.top_p), SHARE),
            ("--min-p", self.min_p, share(self.min_p), SHARE),
            ("--xtc-probability", self.xtc_probability, share(self.xtc_probability), SHARE),
            ("--xtc-threshold", self.xtc_threshold, share(self.xtc_threshold), SHARE),
            ("--repeat-penalty", self.repeat_penalty, self.repeat_penalty > 0.0, POSITIVE),
            ("--presence-penalty", self.presence_penalty, true, FINITE),
            ("--frequency-penalty", self.frequency_penalty, true, FINITE),
            ("--dry-multiplier", self.dry_multiplier, not_negative(self.dry_multiplier), NOT_NEGATIVE),
            ("--dry-base", self.dry_base, self.dry_base >= 1.0, "a number of at least 1"),
        ];
        for (name, value, in_range, allowed) in numbers {
            if !in_range || !value.is_finite() {
                return Err(Error::option(name, format!("{value} is not {allowed}")));
            }
        }
        if let Some((id, bias)) =
            self.logit_bias.iter().find(|(_, bias)| bias.is_nan() || *bias == f32::INFINITY)
        {
            let message = format!("{bias} for token {id} is neither a finite number nor -inf");
            return Err(Error::option("--logit-bias", message));
        }
        if self.dry_allowed_length == 0 {
            return Err(Error::option("--dry-allowed-length", "0 is not a length of at least 1"));
        }
        if self.min_keep == 0 {
            return Err(Error::option("--min-keep", "0 is not a count of at least 1"));
        }
        if self.dry_breakers.iter().any(String::is_empty) {
            return Err(Error::option("--dry-sequence-breaker", "an empty text would end every repetition"));
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(Error::option("--stop", "an empty text would stop at once"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_outside_their_range_are_named() {
        type Change = fn(&mut Sampling);
        let cases: [(&str, Change); 30] = [
            ("--temp: NaN is not a number of at least 0", |s| s.temperature = f32::NAN),
            ("--temp: -1 is not a number of at least 0", |s| s.temperature = -1.0),
            ("--temp: inf is not a number of at least 0", |s| s.temperature = f32::INFINITY),
            ("--typical: 1.5 is not a number from 0 to 1", |s| s.typical_p = 1.5),
            ("--typical: NaN is not a number from 0 to 1", |s| s.typical_p = f32::NAN),
            ("--top-p: 2 is not a number from 0 to 1", |s| s.top_p = 2.0),
            ("--top-p: NaN is not a number from 0 to 1", |s| s.top_p = f32::NAN),
            ("--min-p: -0.1 is not a number from 0 to 1", |s| s.min_p = -0.1),
            ("--min-p: NaN is not a number from 0 to 1", |s| s.min_p = f32::NAN),
            ("--xtc-probability: 2 is not a number from 0 to 1", |s| s.xtc_probability = 2.0),
            ("--xtc-threshold: -1 is not a number from 0 to 1", |s| s.xtc_threshold = -1.0),
            ("--repeat-penalty: 0 is not a number above 0", |s| s.repeat_penalty = 0.0),
            ("--repeat-penalty: NaN is not a number above 0", |s| s.repeat_penalty = f32::NAN),
            ("--presence-penalty: inf is not a finite number", |s| s.presence_penalty = f32::INFINITY),
            ("--presence-penalty: NaN is not a finite number", |s| s.presence_penalty = f32::NAN),
            ("--frequency-penalty: -inf is not a finite number", |s| s.frequency_penalty = f32::NEG_INFINITY),
            ("--dry-multiplier: -1 is not a number of at least 0", |s| s.dry_multiplier = -1.0),
            ("--dry-multiplier: NaN is not a number of at least 0", |s| s.dry_multiplier = f32::NAN),
            ("--dry-base: 0.5 is not a number of at least 1", |s| s.dry_base = 0.5),
            ("--dry-base: NaN is not a number of at least 1", |s| s.dry_base = f32::NAN),
            ("--dry-allowed-length: 0 is not a length of at least 1", |s| s.dry_allowed_length = 0),
            ("--dry-sequence-breaker: an empty text would end every repetition", |s| {
                s.dry_breakers = vec!["".into()];
            }),
            ("--logit-bias: NaN for token 3 is neither a finite number nor -inf", |s| {
                s.logit_bias = vec![(3, f32::NAN)];
            }),
            ("--logit-bias: inf for token 3 is neither a finite number nor -inf", |s| {
                s.logit_bias = vec![(2, 1.0), (3, f32::INFINITY)];
            }),
            ("--stop: an empty text would stop at once", |s| s.stop = vec!["a".into(), "".into()]),
            ("--min-keep: 0 is not a count of at least 1", |s| s.min_keep = 0),
            ("", |_| {}),
            ("", |s| *s = Sampling::greedy()),
            ("", |s| s.logit_bias = vec![(3, f32::NEG_INFINITY)]),
            ("", |s| s.presence_penalty = -2.0),
        ];
        let failures: Vec<_> = cases
            .iter()
            .filter_map(|(expected, change)| {
                let mut settings = Sampling::default();
                change(&mut settings);
                let found = settings.validate().map_or_else(|error| error.to_string(), |()| String::new());
                (found != *expected).then(|| format!("{found:?}, not {expected:?}"))
            })
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

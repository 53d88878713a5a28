//! Penalties on tokens that already occur in the last tokens of the text.
//! Repeat: Keskar et al. 2019, "CTRL: A Conditional Transformer Language Model for Controllable Generation".
//! Presence and frequency: OpenAI's API reference.

use std::collections::{HashMap, VecDeque};

use super::{Logits, Sampling};

/// For each token in the window: logit / repeat if positive, else logit * repeat; then minus
/// count * frequency + presence.
#[derive(Debug)]
pub(super) struct Penalties {
    repeat: f32,
    presence: f32,
    frequency: f32,
    last_n: usize,
    window: VecDeque<u32>,
    /// How often each token of the window occurs there.
    counts: HashMap<u32, u32>,
}

/// Tokens that there is room for from the start; longer windows grow.
const RESERVED: usize = 1024;

impl Penalties {
    /// `None` if the settings make no difference.
    pub fn new(settings: &Sampling) -> Option<Self> {
        let neutral = settings.repeat_penalty == 1.0
            && settings.presence_penalty == 0.0
            && settings.frequency_penalty == 0.0;
        (!neutral && settings.repeat_last_n > 0).then(|| Penalties {
            repeat: settings.repeat_penalty,
            presence: settings.presence_penalty,
            frequency: settings.frequency_penalty,
            last_n: settings.repeat_last_n,
            window: VecDeque::with_capacity(settings.repeat_last_n.min(RESERVED) + 1),
            // Twice the room, so that removals never make it grow.
            counts: HashMap::with_capacity(2 * settings.repeat_last_n.min(RESERVED) + 2),
        })
    }

    pub fn accept(&mut self, token: u32) {
        self.window.push_back(token);
        *self.counts.entry(token).or_default() += 1;
        if self.window.len() > self.last_n
            && let Some(oldest) = self.window.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
    }

    /// Tokens that are penalized.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether no logit becomes higher.
    pub fn only_lower(&self) -> bool {
        self.repeat >= 1.0 && self.presence >= 0.0 && self.frequency >= 0.0
    }

    pub fn apply(&self, logits: &mut (impl Logits + ?Sized)) {
        for (&token, &count) in &self.counts {
            if let Some(logit) = logits.of(token) {
                *logit = if *logit <= 0.0 { *logit * self.repeat } else { *logit / self.repeat };
                *logit -= count as f32 * self.frequency + self.presence;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Case {
        repeat: f32,
        presence: f32,
        frequency: f32,
        last_n: usize,
        past: &'static [u32],
        expected: [f32; 4],
    }

    #[test]
    fn penalties_follow_the_formula() {
        let logits = [2.0, -1.0, 4.0, 0.5];
        let base = Case {
            repeat: 1.0,
            presence: 0.0,
            frequency: 0.0,
            last_n: 64,
            past: &[0, 1, 0],
            expected: logits,
        };
        let cases = [
            Case { ..base },
            Case { repeat: 2.0, expected: [1.0, -2.0, 4.0, 0.5], ..base },
            Case { repeat: 2.0, last_n: 1, expected: [1.0, -1.0, 4.0, 0.5], ..base },
            Case { repeat: 2.0, last_n: 0, ..base },
            Case { repeat: 0.5, expected: [4.0, -0.5, 4.0, 0.5], ..base },
            Case { presence: 0.5, expected: [1.5, -1.5, 4.0, 0.5], ..base },
            Case { frequency: 0.25, expected: [1.5, -1.25, 4.0, 0.5], ..base },
            Case { frequency: -0.25, last_n: 2, expected: [2.25, -0.75, 4.0, 0.5], ..base },
            Case { repeat: 2.0, presence: 1.0, frequency: 1.0, expected: [-2.0, -4.0, 4.0, 0.5], ..base },
            Case { repeat: 2.0, last_n: usize::MAX, expected: [1.0, -2.0, 4.0, 0.5], ..base },
            Case { repeat: 2.0, past: &[99], ..base },
        ];
        let failures: Vec<_> = cases
            .iter()
            .filter_map(|case| {
                let settings = Sampling {
                    repeat_penalty: case.repeat,
                    presence_penalty: case.presence,
                    frequency_penalty: case.frequency,
                    repeat_last_n: case.last_n,
                    ..Sampling::default()
                };
                let mut found = logits;
                if let Some(mut penalties) = Penalties::new(&settings) {
                    case.past.iter().for_each(|&token| penalties.accept(token));
                    penalties.apply(&mut found[..]);
                }
                (found != case.expected).then(|| format!("{case:?}: {found:?}"))
            })
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

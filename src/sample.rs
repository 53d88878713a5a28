//! Choosing the next token: [`Sampling`] holds the settings, [`Sampler`] runs a chain of small filters over the
//! logits and then makes one seeded draw. [`StopStrings`] watches the text that comes out.
//!
//! The chain, in llama.cpp's default order:
//! logit bias, repeat/presence/frequency penalties, DRY, top-k, typical, top-p, min-p, XTC, temperature, draw.
//! With temperature 0 the token with the highest logit after the penalties is taken, and nothing is drawn.
//!
//! The same settings, seed and logits give the same tokens on every machine: exponentials are computed in f64 by
//! `libm`, not by the platform, and equal logits are ordered by token id.
//!
//! ```
//! use hadal::{Sampler, Sampling};
//! let settings = Sampling { top_k: 2, seed: Some(7), ..Sampling::default() };
//! let mut sampler = Sampler::new(&settings, 4, |_| "")?;
//! let token = sampler.sample(&mut [0.5, 3.0, -1.0, 2.5])?;
//! sampler.accept(token);
//! assert!(token == 1 || token == 3);
//! # Ok::<(), hadal::Error>(())
//! ```

use fastrand::Rng;

use crate::error::{Error, Result};
use candidates::Candidates;
use dry::Dry;
use penalties::Penalties;

mod candidates;
mod dry;
mod min_p;
mod penalties;
mod settings;
mod stop;
mod top_k;
mod top_p;
mod typical;
mod xtc;

pub use settings::Sampling;
pub use stop::StopStrings;

/// The filter chain with its memory of past tokens and its random numbers. One sampler serves one text.
#[derive(Debug)]
pub struct Sampler {
    settings: Sampling,
    vocab: usize,
    penalties: Option<Penalties>,
    dry: Option<Dry>,
    candidates: Candidates,
    rng: Rng,
    seed: u64,
}

impl Sampler {
    /// A sampler for logits of `vocab` tokens. `text` gives the bytes of a token, and is asked only if DRY is on:
    /// tokens that contain a [`Sampling::dry_breakers`] string end a repetition. Ids without a token have no bytes.
    ///
    /// # Errors
    /// [`Error::Option`] as [`Sampling::validate`], or if a logit bias names a token outside the vocabulary.
    pub fn new<T: AsRef<[u8]>>(
        settings: &Sampling,
        vocab: usize,
        text: impl Fn(u32) -> T,
    ) -> Result<Sampler> {
        settings.validate()?;
        if let Some((id, _)) = settings.logit_bias.iter().find(|(id, _)| *id as usize >= vocab) {
            let message = format!("token {id} does not exist, the vocabulary has {vocab} tokens");
            return Err(Error::option("--logit-bias", message));
        }
        let seed = settings.seed.unwrap_or_else(|| fastrand::u64(..));
        Ok(Sampler {
            penalties: Penalties::new(settings),
            dry: Dry::new(settings, vocab, text),
            candidates: Candidates::default(),
            rng: Rng::with_seed(seed),
            seed,
            vocab,
            settings: settings.clone(),
        })
    }

    /// Picks the next token. `logits` has one number a token, and holds scratch afterwards. The pick is not yet
    /// remembered: see [`Sampler::accept`].
    ///
    /// # Errors
    /// [`Error::Numeric`] if a logit is NaN or +infinity, if none is finite, or if their count is not `vocab`.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32> {
        if logits.len() != self.vocab {
            let message = format!("{} logits for a vocabulary of {} tokens", logits.len(), self.vocab);
            return Err(Error::Numeric(message));
        }
        self.adjust(logits);
        self.candidates.fill(logits)?;
        Ok(self.choose())
    }

    /// How many of the highest logits are enough for [`Sampler::sample_best`] to pick the next token: as many as the
    /// first filter keeps, and one for each token that is lowered before it. `None` if all logits count: without top-k,
    /// or where a setting raises logits.
    pub fn best_needed(&mut self) -> Option<usize> {
        let settings = &self.settings;
        let kept = match settings.top_k {
            _ if settings.temperature == 0.0 => 1,
            0 => return None,
            k => k.max(settings.min_keep),
        };
        let raises = |penalties: &Penalties| !penalties.only_lower();
        if self.penalties.as_ref().is_some_and(raises) || settings.logit_bias.iter().any(|(_, b)| *b > 0.0) {
            return None;
        }
        let penalized = self.penalties.as_ref().map_or(0, Penalties::len);
        let repeated = self.dry.as_mut().map_or(0, Dry::len);
        Some((kept + settings.logit_bias.len() + penalized + repeated).min(self.vocab))
    }

    /// Picks the same token as [`Sampler::sample`] from the `best` tokens and their logits, at least
    /// [`Sampler::best_needed`] of them: highest first, equal ones by id, and before all others those that are no number
    /// or +infinity. Holds scratch afterwards.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub fn sample_best(&mut self, best: &mut [(u32, f32)]) -> Result<u32> {
        self.adjust(best);
        self.candidates.fill_best(best)?;
        Ok(self.choose())
    }

    /// Everything that changes single logits.
    fn adjust(&mut self, logits: &mut (impl Logits + ?Sized)) {
        for &(id, bias) in &self.settings.logit_bias {
            if let Some(logit) = logits.of(id) {
                *logit += bias;
            }
        }
        if let Some(penalties) = &self.penalties {
            penalties.apply(logits);
        }
        if let Some(dry) = &mut self.dry {
            dry.apply(logits);
        }
    }

    /// Filters the candidates and draws one.
    fn choose(&mut self) -> u32 {
        let (settings, candidates) = (&self.settings, &mut self.candidates);
        if settings.temperature == 0.0 {
            return candidates.best();
        }
        let keep = settings.min_keep;
        top_k::filter(candidates, settings.top_k, keep);
        typical::filter(candidates, settings.typical_p, keep);
        top_p::filter(candidates, settings.top_p, keep);
        min_p::filter(candidates, settings.min_p, keep);
        xtc::filter(candidates, settings.xtc_probability, settings.xtc_threshold, keep, &mut self.rng);
        candidates.draw(settings.temperature, uniform(&mut self.rng))
    }

    /// Remembers a token of the text, prompt or answer, for the penalties.
    pub fn accept(&mut self, token: u32) {
        if let Some(penalties) = &mut self.penalties {
            penalties.accept(token);
        }
        if let Some(dry) = &mut self.dry {
            dry.accept(token);
        }
    }

    /// The seed in use: the one that was set, or the one that was picked. Setting it repeats the draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// Logits by token, of all tokens or of some.
trait Logits {
    /// The logit of `token`, if it is there.
    fn of(&mut self, token: u32) -> Option<&mut f32>;
}

impl Logits for [f32] {
    fn of(&mut self, token: u32) -> Option<&mut f32> {
        self.get_mut(token as usize)
    }
}

impl Logits for [(u32, f32)] {
    fn of(&mut self, token: u32) -> Option<&mut f32> {
        self.iter_mut().find(|(id, _)| *id == token).map(|(_, logit)| logit)
    }
}

/// A number in 0..1 with 53 random bits, written out so that it cannot change with a library.
fn uniform(rng: &mut Rng) -> f64 {
    (rng.u64(..) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests;

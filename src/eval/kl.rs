//! Kullback-Leibler divergence of a model's predictions from a reference's, position by position, in nats.

use super::{best, log_sum_exp, statistics};
use crate::backend::Hidden;
use crate::error::{Error, Result};

/// Divergences over a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divergence {
    /// Mean over positions.
    pub mean_kl: f64,
    /// Median.
    pub median_kl: f64,
    /// 95 of 100 positions are below it.
    pub p95_kl: f64,
    /// 99 of 100 positions are below it.
    pub p99_kl: f64,
    /// The largest.
    pub max_kl: f64,
    /// Share of positions where both find the same token most probable.
    pub top1_agreement: f64,
    /// Mean share of the reference's probability that was compared: 1, or less for a dump that has only the largest.
    pub captured_mass: f64,
    /// Positions.
    pub positions: usize,
}

/// The reference's largest logits at one position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Top {
    /// Tokens, by descending logit.
    pub tokens: Vec<u32>,
    /// Their logits.
    pub logits: Vec<f32>,
    /// ln Σ exp of all the vocabulary's logits.
    pub log_sum_exp: f32,
}

/// Divergences so far.
#[derive(Clone, Debug, Default)]
pub struct Divergences {
    kl: Vec<f64>,
    same: usize,
    mass: f64,
}

impl Divergences {
    /// Adds positions of which both models' logits are known.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the vocabularies differ.
    pub fn add(&mut self, reference: &Hidden, model: &Hidden) -> Result<()> {
        let vocabulary = reference.columns();
        if vocabulary != model.columns() {
            let message = format!(
                "a vocabulary of {} is compared with one of {vocabulary}: the models have to share it",
                model.columns()
            );
            return Err(Error::Tokenizer(message));
        }
        let rows = reference.values().chunks_exact(vocabulary).zip(model.values().chunks_exact(vocabulary));
        for (reference, model) in rows {
            self.kl.push(divergence(reference, model));
            self.same += usize::from(best(reference) == best(model));
            self.mass += 1.0;
        }
        Ok(())
    }

    /// Adds a position of which only the reference's largest logits are known. What they leave out is left out: the sum
    /// is a lower bound, and may fall below zero by a little.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if a token is outside the model's vocabulary.
    pub fn add_top(&mut self, reference: &Top, model: &[f32]) -> Result<()> {
        let outside = reference.tokens.iter().find(|&&token| token as usize >= model.len());
        if let Some(token) = outside {
            let message = format!("token {token} of the dump is outside the vocabulary of {}", model.len());
            return Err(Error::Tokenizer(message));
        }
        let (whole, own) = (f64::from(reference.log_sum_exp), log_sum_exp(model));
        let (mut kl, mut mass) = (0.0, 0.0);
        for (&token, &logit) in reference.tokens.iter().zip(&reference.logits) {
            let p = f64::from(logit) - whole;
            kl += term(p, f64::from(model[token as usize]) - own);
            mass += libm::exp(p);
        }
        self.kl.push(kl);
        self.same +=
            usize::from(reference.tokens.first().is_some_and(|&token| token as usize == best(model)));
        self.mass += mass;
        Ok(())
    }

    /// Positions so far.
    pub fn positions(&self) -> usize {
        self.kl.len()
    }

    /// The mean so far.
    pub fn mean(&self) -> f64 {
        statistics::mean(&self.kl)
    }

    /// All together.
    pub fn divergence(&self) -> Divergence {
        let mut sorted = self.kl.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let positions = sorted.len();
        Divergence {
            mean_kl: self.mean(),
            median_kl: statistics::quantile(&sorted, 0.5),
            p95_kl: statistics::quantile(&sorted, 0.95),
            p99_kl: statistics::quantile(&sorted, 0.99),
            max_kl: sorted.last().copied().unwrap_or(f64::NAN),
            top1_agreement: self.same as f64 / positions as f64,
            captured_mass: self.mass / positions as f64,
            positions,
        }
    }
}

/// Σ p ln (p / q) of the softmax of both.
pub(super) fn divergence(reference: &[f32], model: &[f32]) -> f64 {
    let (whole, own) = (log_sum_exp(reference), log_sum_exp(model));
    reference.iter().zip(model).map(|(&p, &q)| term(f64::from(p) - whole, f64::from(q) - own)).sum()
}

/// p (ln p - ln q); nothing where p is nothing.
fn term(log_p: f64, log_q: f64) -> f64 {
    let p = libm::exp(log_p);
    if p > 0.0 { p * (log_p - log_q) } else { 0.0 }
}

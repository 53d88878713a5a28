//! Perplexity: e to the mean negative log-likelihood of a text's tokens.

use super::{Windows, log_sum_exp, statistics};
use crate::backend::Hidden;
use crate::engine::Engine;
use crate::error::Result;

/// Perplexity of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// e to the mean negative log-likelihood of the scored tokens.
    pub perplexity: f64,
    /// Its standard error, perplexity · sqrt(variance / tokens).
    pub standard_error: f64,
    /// Tokens scored.
    pub tokens: usize,
}

/// Negative log-likelihoods of tokens, in nats.
#[derive(Clone, Debug, Default)]
pub struct Losses(Vec<f64>);

impl Losses {
    /// Adds tokens and the logits that predict them.
    pub fn add(&mut self, logits: &Hidden, tokens: &[u32]) {
        let rows = logits.values().chunks_exact(logits.columns());
        self.0
            .extend(rows.zip(tokens).map(|(row, &token)| log_sum_exp(row) - f64::from(row[token as usize])));
    }

    /// The perplexity of all tokens so far.
    pub fn perplexity(&self) -> Perplexity {
        let perplexity = libm::exp(statistics::mean(&self.0));
        let standard_error = perplexity * statistics::standard_error(&self.0);
        Perplexity { perplexity, standard_error, tokens: self.0.len() }
    }
}

/// Perplexity as llama.cpp's `perplexity` measures it: see [`Windows::halves`].
///
/// # Errors
/// [`crate::Error::Tokenizer`] if there is not one whole window; the engine's own.
pub fn perplexity(engine: &mut Engine, tokens: &[u32], window: usize, most: usize) -> Result<Perplexity> {
    let windows = Windows { most, ..Windows::halves(window) };
    let mut losses = Losses::default();
    for window in windows.cut(engine, tokens)? {
        let logits = windows.logits(engine, &window)?;
        losses.add(&logits, windows.scored(&window));
    }
    Ok(losses.perplexity())
}

//! Instruments that measure a model.

pub mod kv;

use crate::engine::Engine;
use crate::error::{Error, Result};

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

/// Perplexity as llama.cpp's `perplexity` measures it, so that figures compare: the text in chunks of `window` tokens,
/// the first token of each replaced by BOS if the tokenizer adds one, the second half of each chunk scored.
///
/// # Errors
/// [`Error::Tokenizer`] if there is not one whole chunk; the engine's own.
pub fn perplexity(engine: &mut Engine, tokens: &[u32], window: usize, chunks: usize) -> Result<Perplexity> {
    let bos = engine.tokenizer().bos().filter(|_| engine.tokenizer().adds_bos());
    let mut losses = Vec::new();
    for chunk in tokens.chunks_exact(window).take(chunks) {
        engine.reset();
        let mut ids = chunk.to_vec();
        if let Some(bos) = bos {
            ids[0] = bos;
        }
        let half = window / 2;
        engine.prefill(&ids[..half])?;
        let logits = engine.score(&ids[half..window - 1])?;
        let rows = logits.values().chunks_exact(logits.columns());
        losses.extend(rows.zip(&ids[half + 1..]).map(|(row, &next)| loss(row, next)));
    }
    if losses.is_empty() {
        return Err(Error::Tokenizer(format!("{} tokens are no whole chunk of {window}", tokens.len())));
    }
    let count = losses.len() as f64;
    let mean = losses.iter().sum::<f64>() / count;
    let variance =
        losses.iter().map(|loss| (loss - mean) * (loss - mean)).sum::<f64>() / (count - 1.0).max(1.0);
    let perplexity = libm::exp(mean);
    let standard_error = perplexity * (variance / count).sqrt();
    Ok(Perplexity { perplexity, standard_error, tokens: losses.len() })
}

/// Negative log-likelihood of `next`, in nats.
fn loss(logits: &[f32], next: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| libm::exp(f64::from(logit - max))).sum();
    libm::log(sum) - f64::from(logits[next as usize] - max)
}

//! Instruments that measure a model: how well it predicts a text ([`perplexity`](mod@perplexity)), and how far its predictions
//! are from another model's ([`kl`]), which may be stored ([`dump`]).
//!
//! A text is cut into windows; of each the first tokens are context and the others are scored. Every instrument takes the
//! logits of one window after the other, so that a caller can show where it is.

use crate::backend::Hidden;
use crate::engine::Engine;
use crate::error::{Error, Result};

pub mod choice;
pub mod dump;
pub mod gsm;
pub mod kl;
pub mod kv;
pub mod perplexity;
mod statistics;
pub mod tasks;

pub use perplexity::{Perplexity, perplexity};

/// How a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Tokens of a window; what is left over at the end is not used.
    pub length: usize,
    /// Tokens at the start of a window that are not scored; the first never is.
    pub context: usize,
    /// Windows that are used at most.
    pub most: usize,
}

impl Windows {
    /// As llama.cpp's `perplexity` does, so that figures compare: windows of `length`, the second half scored.
    pub fn halves(length: usize) -> Windows {
        Windows { length, context: length / 2, most: usize::MAX }
    }

    /// All windows of `tokens`. The first token of each is replaced by BOS if the tokenizer adds one.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if there is not one whole window, [`Error::Option`] if there would be nothing to score.
    pub fn cut(&self, engine: &Engine, tokens: &[u32]) -> Result<Vec<Vec<u32>>> {
        if self.length < 2 || self.context + 1 >= self.length {
            let message =
                format!("windows of {} tokens have none behind {} of context", self.length, self.context);
            return Err(Error::option("--ctx-size", message));
        }
        let windows = pieces(engine, tokens, self.length, self.most);
        if windows.is_empty() {
            let message = format!("{} tokens are no whole window of {}", tokens.len(), self.length);
            return Err(Error::Tokenizer(message));
        }
        Ok(windows)
    }

    /// Logits that predict the scored tokens of `window`, one row each: see [`Windows::scored`].
    ///
    /// # Errors
    /// The engine's own.
    pub fn logits(&self, engine: &mut Engine, window: &[u32]) -> Result<Hidden> {
        engine.reset();
        if self.context > 0 {
            engine.prefill(&window[..self.context])?;
        }
        engine.score(&window[self.context..window.len() - 1])
    }

    /// The tokens of `window` that are scored.
    pub fn scored<'a>(&self, window: &'a [u32]) -> &'a [u32] {
        &window[self.context + 1..]
    }
}

/// At most `most` whole pieces of `length` tokens. The first token of each is replaced by BOS if the tokenizer adds one.
fn pieces(engine: &Engine, tokens: &[u32], length: usize, most: usize) -> Vec<Vec<u32>> {
    let mut pieces: Vec<_> = tokens.chunks_exact(length).take(most).map(<[u32]>::to_vec).collect();
    if let Some(bos) = engine.tokenizer().bos().filter(|_| engine.tokenizer().adds_bos()) {
        pieces.iter_mut().for_each(|piece| piece[0] = bos);
    }
    pieces
}

/// Logits become logarithms of probabilities: less ln Σ exp, of which this is the value.
pub(crate) fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| libm::exp(f64::from(logit) - f64::from(max))).sum();
    f64::from(max) + libm::log(sum)
}

/// The index of the largest logit; of equal ones the first.
pub(crate) fn best(logits: &[f32]) -> usize {
    let better = |best: usize, index: usize| if logits[index] > logits[best] { index } else { best };
    (0..logits.len()).fold(0, better)
}

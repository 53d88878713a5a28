//! Text token by token, as an iterator.

use std::time::Duration;

use web_time::Instant;

use super::Engine;
use crate::backend::now;
use crate::error::{Error, Result};
use crate::sample::{Sampler, Sampling, StopStrings};
use crate::tokenizer::Stream;

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model said so, or a stop string came.
    Stop,
    /// `max_tokens` were generated.
    Length,
    /// The context is full.
    Context,
    /// [`super::Interrupt::stop`] was called.
    Interrupted,
}

/// What a generation took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, how many were in the cache already.
    pub cached_tokens: usize,
    /// Time to compute the rest of them.
    pub prompt_time: Duration,
    /// Tokens generated, a final end token included.
    pub generated_tokens: usize,
    /// Time from the end of the prompt to now.
    pub generate_time: Duration,
    /// Time from the start to the first token.
    pub first_token_time: Duration,
}

/// Pieces of generated text; whole characters, never a part of a stop string. Dropping it stops the generation.
#[derive(Debug)]
pub struct Generation<'e> {
    engine: &'e mut Engine,
    /// Prompt tokens not computed yet.
    pending: Vec<u32>,
    sampler: Sampler,
    stream: Stream,
    stops: StopStrings,
    remaining: usize,
    finish: Option<Finish>,
    failed: bool,
    stats: Stats,
    started: Instant,
    prompt_done: Option<Instant>,
}

impl<'e> Generation<'e> {
    /// `stream` turns the generated tokens into text.
    pub(super) fn new(
        engine: &'e mut Engine,
        prompt: &[u32],
        stream: Stream,
        sampling: &Sampling,
    ) -> Result<Self> {
        if prompt.is_empty() {
            return Err(Error::Tokenizer("no tokens: an empty prompt has nothing to continue".into()));
        }
        let limit = engine.cache.context();
        if prompt.len() > limit {
            return Err(Error::Context { needed: prompt.len(), limit });
        }
        let mut sampler = Sampler::new(sampling, engine.info.vocab, |id| engine.tokenizer.piece(id, true))?;
        let stops = StopStrings::new(&sampling.stop)?;
        prompt.iter().for_each(|&token| sampler.accept(token));
        // The last prompt token is always computed: its logits are what comes next.
        let shared = engine.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        engine.truncate(shared.min(prompt.len() - 1));
        let cached = engine.position();
        engine.interrupt.take();
        Ok(Generation {
            pending: prompt[cached..].to_vec(),
            sampler,
            stops,
            stream,
            remaining: sampling.max_tokens.unwrap_or(usize::MAX),
            finish: None,
            failed: false,
            stats: Stats { prompt_tokens: prompt.len(), cached_tokens: cached, ..Stats::default() },
            started: Instant::now(),
            prompt_done: None,
            engine,
        })
    }

    /// Why it ended; `None` while it goes on, or after an error.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// What it took so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The seed of the draw, to repeat it.
    pub fn seed(&self) -> u64 {
        self.sampler.seed()
    }

    /// One step: a batch of the prompt, or a token, whose text may be empty; `None` at the end. Iterating takes as many as
    /// there are until there is text; this is for those who may not wait for a GPU, or want to do something in between.
    pub async fn step(&mut self) -> Option<Result<String>> {
        if self.finish.is_some() || self.failed {
            return None;
        }
        let text = self.advance().await;
        self.failed = text.is_err();
        Some(text)
    }

    /// Computes a batch of what is left of the prompt.
    async fn prompt(&mut self) -> Result<()> {
        let batch = self.pending.len().min(self.engine.batch);
        let batch: Vec<u32> = self.pending.drain(..batch).collect();
        let best = if self.pending.is_empty() { self.sampler.best_needed() } else { Some(1) };
        self.engine.extend(&batch, best).await?;
        if self.pending.is_empty() {
            self.stats.prompt_time = self.started.elapsed();
            self.prompt_done = Some(Instant::now());
        }
        Ok(())
    }

    /// The next token's text, which may be empty, as it is while the prompt is read; sets `finish` at the end.
    async fn advance(&mut self) -> Result<String> {
        if self.engine.interrupt.take() {
            return Ok(self.end(Finish::Interrupted));
        }
        if !self.pending.is_empty() {
            self.prompt().await?;
            return Ok(String::new());
        }
        if self.remaining == 0 {
            return Ok(self.end(Finish::Length));
        }
        let Engine { logits, best, .. } = &mut *self.engine;
        let token = match best.as_mut_slice() {
            [] => self.sampler.sample(logits.values_mut())?,
            best => self.sampler.sample_best(best)?,
        };
        self.sampler.accept(token);
        self.remaining -= 1;
        self.count();
        if self.engine.tokenizer.stops().contains(&token) {
            return Ok(self.end(Finish::Stop));
        }
        let text = self.stream.push(&self.engine.tokenizer, token);
        let text = self.stops.push(&text);
        if self.stops.is_stopped() {
            self.finish = Some(Finish::Stop);
        } else if self.remaining == 0 {
            return Ok(text + &self.end(Finish::Length));
        } else if self.engine.position() == self.engine.cache.context() {
            return Ok(text + &self.end(Finish::Context));
        } else {
            let best = self.sampler.best_needed();
            self.engine.extend(&[token], best).await?;
        }
        Ok(text)
    }

    fn count(&mut self) {
        self.stats.generated_tokens += 1;
        if self.stats.generated_tokens == 1 {
            self.stats.first_token_time = self.started.elapsed();
        }
        self.stats.generate_time = self.prompt_done.map_or(Duration::ZERO, |done| done.elapsed());
    }

    /// Ends and gives out what was held back.
    fn end(&mut self, finish: Finish) -> String {
        self.finish = Some(finish);
        let text = self.stream.finish();
        self.stops.push(&text) + &self.stops.finish()
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        loop {
            match now(async { Ok(self.step().await) }) {
                Ok(Some(Ok(text))) if text.is_empty() => {}
                Ok(next) => return next,
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

//! How far a model's predictions move when its keys and values are stored in fewer bits: teacher-forced divergence of
//! the steps that follow a prompt, as a server decodes them.

use std::time::Instant;

use super::kl::divergence;
use super::statistics::mean;
use super::{best, pieces};
use crate::backend::Hidden;
use crate::cache::CacheType;
use crate::engine::Engine;
use crate::error::{Error, Result};

/// What texts are cut into: prompts of `tokens`, of which the last `steps` are decoded one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompts {
    /// Tokens of a prompt.
    pub tokens: usize,
    /// How many of them are steps.
    pub steps: usize,
    /// Prompts at most.
    pub most: usize,
}

impl Default for Prompts {
    /// 8 prompts of 128 tokens with 32 steps: those of TurboQuant's published curve.
    fn default() -> Self {
        Prompts { tokens: 128, steps: 32, most: 8 }
    }
}

/// The divergence of one kind of cache from the reference, in nats.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// How keys and values were stored.
    pub kind: CacheType,
    /// The mean over prompts of the mean over steps.
    pub mean: f64,
    /// Of all steps together.
    pub median: f64,
    /// Of all steps together, 95 of 100 are below it.
    pub p95: f64,
    /// Share of steps whose most probable token is the reference's.
    pub same_top: f64,
}

/// Divergences of several kinds from the dense reference.
#[derive(Debug)]
pub struct Comparison {
    prompts: Vec<Vec<u32>>,
    steps: usize,
    arms: Vec<Arm>,
}

#[derive(Debug)]
struct Arm {
    kind: CacheType,
    /// One list a prompt.
    kl: Vec<Vec<f64>>,
    same: usize,
}

impl Comparison {
    /// Cuts `text` for `kinds`. The first token of each prompt is replaced by BOS if the tokenizer adds one.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if there is not one whole prompt, [`Error::Option`] if steps leave no prompt.
    pub fn new(engine: &Engine, text: &[u32], cut: Prompts, kinds: &[CacheType]) -> Result<Self> {
        if cut.steps == 0 || cut.steps >= cut.tokens {
            let message = format!("{} of {}: at least one step and one token before", cut.steps, cut.tokens);
            return Err(Error::option("--steps", message));
        }
        let prompts = pieces(engine, text, cut.tokens, cut.most);
        if prompts.is_empty() {
            let message = format!("{} tokens are no whole prompt of {}", text.len(), cut.tokens);
            return Err(Error::Tokenizer(message));
        }
        let arms = kinds.iter().map(|&kind| Arm { kind, kl: Vec::new(), same: 0 }).collect();
        Ok(Comparison { prompts, steps: cut.steps, arms })
    }

    /// Prompts that there are.
    pub fn prompts(&self) -> usize {
        self.prompts.len()
    }

    /// Compares all kinds on prompt `index`: it is read with a cache of floats, which is then converted. The steps are
    /// computed together, which gives the bits of one after the other.
    ///
    /// # Errors
    /// The engine's own.
    pub fn run(&mut self, engine: &mut Engine, index: usize) -> Result<()> {
        let prompt = &self.prompts[index];
        let (read, steps) = prompt.split_at(prompt.len() - self.steps);
        engine.reset();
        engine.convert_cache(CacheType::F32)?;
        engine.prefill(read)?;
        let start = engine.snapshot()?;
        let reference = engine.score(steps)?;
        for arm in &mut self.arms {
            engine.restore(&start)?;
            engine.convert_cache(arm.kind)?;
            arm.add(&reference, &engine.score(steps)?);
        }
        Ok(())
    }

    /// The divergences of all prompts so far.
    pub fn divergences(&self) -> Vec<Divergence> {
        self.arms.iter().map(Arm::divergence).collect()
    }
}

impl Arm {
    fn add(&mut self, reference: &Hidden, found: &Hidden) {
        let rows = reference.values().chunks_exact(reference.columns());
        let rows = rows.zip(found.values().chunks_exact(found.columns()));
        self.same += rows.clone().filter(|(p, q)| best(p) == best(q)).count();
        self.kl.push(rows.map(|(p, q)| divergence(p, q)).collect());
    }

    fn divergence(&self) -> Divergence {
        let of_prompts: Vec<_> = self.kl.iter().map(|kl| mean(kl)).collect();
        let mut all = self.kl.concat();
        all.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| all.get(percent * all.len() / 100).copied().unwrap_or(f64::NAN);
        Divergence {
            kind: self.kind,
            mean: mean(&of_prompts),
            median: at(50),
            p95: at(95),
            same_top: self.same as f64 / all.len() as f64,
        }
    }
}

/// Decoding at one length of context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// How keys and values were stored.
    pub kind: CacheType,
    /// Tokens in the cache.
    pub context: usize,
    /// Decoded a second.
    pub tokens_per_second: f64,
    /// Of the cache at that length.
    pub cache_bytes: u64,
}

/// Decodes `steps` tokens behind the first `context` of `text` with each kind, which take turns `rounds` times; the
/// fastest round counts.
///
/// # Errors
/// The engine's own; [`Error::Context`] if these don't fit.
pub fn speeds(
    engine: &mut Engine,
    text: &[u32],
    context: usize,
    steps: usize,
    kinds: &[CacheType],
) -> Result<Vec<Speed>> {
    /// Enough that a pause of the machine is not taken for a kind's.
    const ROUNDS: usize = 3;
    let needed = context + steps;
    if needed > text.len() || needed > engine.info().context {
        return Err(Error::Context { needed, limit: engine.info().context.min(text.len()) });
    }
    engine.reset();
    engine.convert_cache(CacheType::F16)?;
    engine.prefill(&text[..context])?;
    let start = engine.snapshot()?;
    let mut fastest = vec![0.0f64; kinds.len()];
    let mut bytes = vec![0; kinds.len()];
    for _ in 0..ROUNDS {
        for (index, &kind) in kinds.iter().enumerate() {
            engine.restore(&start)?;
            engine.convert_cache(kind)?;
            bytes[index] = engine.info().cache_bytes / engine.info().context as u64 * context as u64;
            engine.step(text[context])?;
            let begin = Instant::now();
            for &token in &text[context + 1..needed] {
                engine.step(token)?;
            }
            let speed = (steps - 1) as f64 / begin.elapsed().as_secs_f64();
            fastest[index] = fastest[index].max(speed);
        }
    }
    let speeds = kinds.iter().zip(fastest).zip(bytes);
    let speed =
        |((&kind, tokens_per_second), cache_bytes)| Speed { kind, context, tokens_per_second, cache_bytes };
    Ok(speeds.map(speed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Options;

    #[test]
    fn divergences_are_those_of_the_definition() {
        // ln 2 and ln 6 apart: p = (1/2, 1/2), q = (1/4, 3/4).
        let found = divergence(&[1.0, 1.0], &[0.0, 3.0f32.ln()]);
        let exact = 0.5 * (2.0f64.ln() + (2.0f64 / 3.0).ln());
        assert!((found - exact).abs() < 1e-7, "{found} {exact}");
        assert_eq!(divergence(&[0.5, -3.0], &[0.5, -3.0]), 0.0);
        assert_eq!(divergence(&[0.0, f32::NEG_INFINITY], &[0.0, f32::NEG_INFINITY]), 0.0);
    }

    #[test]
    fn fewer_bits_diverge_more_and_floats_not_at_all() {
        let mut engine = Engine::embedded(&Options::default()).expect("the embedded model");
        let text: Vec<u32> = (0..400).map(|i| 10 + i * 37 % 900).collect();
        let kinds = ["f32", "f16", "k8v8", "k8v4", "k8v3", "k8v2"].map(|kind| kind.parse().expect(kind));
        let cut = Prompts { tokens: 100, steps: 30, most: 3 };
        let mut comparison = Comparison::new(&engine, &text, cut, &kinds).expect("whole prompts");
        assert_eq!(comparison.prompts(), 3);
        (0..3).for_each(|index| comparison.run(&mut engine, index).expect("it runs"));
        let found = comparison.divergences();
        assert_eq!((found[0].mean, found[0].p95, found[0].same_top), (0.0, 0.0, 1.0));
        let rising = found.windows(2).all(|pair| pair[0].mean < pair[1].mean);
        assert!(rising, "{found:?}");
        // Halves cost what activations of 8 bits make of a last bit.
        assert!(found[1].mean < 3e-4 && found[5].mean > 1e-2, "{found:?}");
        assert!(Comparison::new(&engine, &text[..50], cut, &kinds).is_err());
        assert!(Comparison::new(&engine, &text, Prompts { steps: 100, ..cut }, &kinds).is_err());
    }
}

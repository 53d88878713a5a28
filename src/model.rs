//! Model graphs. [`ARCHITECTURES`] is the table: a model is one file and one row.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::{Backend, Hidden, Span};
use crate::cache::{KvCache, LayerShape};
use crate::error::{Error, Result};
use crate::file::Weights;

pub mod config;
pub mod gemma3;
pub mod llama;
pub(crate) mod load;
pub mod qwen2;
pub mod qwen3;

pub use config::Config;

/// Every architecture that we run.
pub static ARCHITECTURES: &[&Architecture] =
    &[&llama::ARCHITECTURE, &qwen2::ARCHITECTURE, &qwen3::ARCHITECTURE, &gemma3::ARCHITECTURE];

/// A row of the table.
#[derive(Debug)]
pub struct Architecture {
    /// `general.architecture` in GGUF.
    pub name: &'static str,
    /// Models that people know it by.
    pub models: &'static str,
    /// What is special about the graph.
    pub features: &'static str,
    /// Builds the graph from a file's weights.
    pub load: fn(&Weights) -> Result<Arc<dyn Model>>,
}

/// Which rows of logits a forward pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// Of the last token only.
    Last,
    /// Of every token.
    All,
}

/// A decoder.
pub trait Model: Send + Sync + std::fmt::Debug {
    /// Its sizes.
    fn config(&self) -> &Config;

    /// What each layer's cache keeps.
    fn cache_shape(&self) -> Vec<LayerShape>;

    /// What the first layer reads: tokens × hidden.
    fn embed(&self, tokens: &[u32], ops: &dyn Backend) -> Result<Hidden>;

    /// Runs `layers` on `x`: tokens × hidden at `at`.
    fn decode(
        &self,
        layers: Range<usize>,
        x: &mut Hidden,
        at: Span,
        cache: &mut KvCache,
        ops: &dyn Backend,
    ) -> Result<()>;

    /// Logits (rows × vocabulary) of what the last layer made.
    fn logits(&self, x: &Hidden, ops: &dyn Backend) -> Result<Hidden>;

    /// Logits (rows × vocabulary) of `tokens`, which follow what `cache` holds and are appended to it. They are where
    /// the head ran.
    fn forward(&self, tokens: &[u32], cache: &mut KvCache, outputs: Outputs, on: Split) -> Result<Hidden> {
        let at = Span { start: cache.len(), len: tokens.len() };
        let Split { first, layers, rest } = on;
        let mut x = self.embed(tokens, if layers > 0 { first } else { rest })?;
        if layers > 0 {
            self.decode(0..layers, &mut x, at, cache, first)?;
            x = rest.hold(first.fetch(x)?)?;
        }
        self.decode(layers..self.config().layers, &mut x, at, cache, rest)?;
        if outputs == Outputs::Last {
            rest.keep_last_row(&mut x)?;
        }
        self.logits(&x, rest)
    }
}

/// What runs a model.
#[derive(Clone, Copy, Debug)]
pub struct Split<'a> {
    /// Runs the embedding and the first `layers`, if there are any.
    pub first: &'a dyn Backend,
    /// Layers of `first`.
    pub layers: usize,
    /// Runs everything else.
    pub rest: &'a dyn Backend,
}

impl<'a> Split<'a> {
    /// Everything on one backend.
    pub fn none(ops: &'a dyn Backend) -> Self {
        Split { first: ops, layers: 0, rest: ops }
    }
}

/// Builds the graph that the file names.
///
/// # Errors
/// [`Error::Unsupported`] for an architecture, rope type or activation that we don't run; a missing or ill-shaped
/// key or tensor by name.
pub fn load(weights: &Weights) -> Result<Arc<dyn Model>> {
    let key = "general.architecture";
    let name = weights.metadata.required(key, weights.metadata.str(key)?)?;
    let architecture = ARCHITECTURES.iter().find(|row| row.name == name).ok_or_else(|| {
        let known: Vec<_> = ARCHITECTURES.iter().map(|row| row.name).collect();
        Error::unsupported("architecture", name, &format!("this version runs {}", known.join(", ")))
    })?;
    (architecture.load)(weights)
}

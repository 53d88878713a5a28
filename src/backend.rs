//! The operations that models are made of, and nothing more: a device implements [`Backend`], a model calls it.

use crate::cache::LayerCache;
use crate::error::Result;
use crate::tensor::Tensor;

pub mod cpu;

/// Activations: rows (tokens) × columns of f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Hidden {
    values: Vec<f32>,
    columns: usize,
}

impl Hidden {
    /// # Panics
    /// If `values` is no whole number of rows.
    pub fn new(values: Vec<f32>, columns: usize) -> Self {
        assert!(columns > 0 && values.len().is_multiple_of(columns), "whole rows");
        Hidden { values, columns }
    }

    /// Tokens.
    pub fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All rows, one after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All rows, to be changed in place.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// The rows as one vector.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// The last row alone.
    pub fn last_row(&self) -> Hidden {
        Hidden { values: self.values[self.values.len() - self.columns..].to_vec(), columns: self.columns }
    }
}

/// The operands of y = W x + b. Its `forward` is in `layers`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// outputs × inputs.
    pub weight: Tensor,
    /// outputs.
    pub bias: Option<Vec<f32>>,
}

/// Where the rows of a [`Hidden`] stand in the sequence: row `i` is at position `start + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Position of the first row.
    pub start: usize,
    /// Rows.
    pub len: usize,
}

/// Cosines and sines of a [`Span`]: rows × (rotated dimensions / 2) each, made by `layers::Rope`.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// cos(angle) times the attention factor of yarn.
    pub cos: Vec<f32>,
    /// sin(angle) times the attention factor of yarn.
    pub sin: Vec<f32>,
    /// Pairs rotated in a head.
    pub pairs: usize,
    /// Whether a pair is elements `2i, 2i + 1` rather than `i, i + pairs`.
    pub interleaved: bool,
}

/// How gated feed-forwards bend their gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// x · sigmoid(x): SwiGLU.
    Silu,
    /// GELU in its tanh form: GeGLU.
    Gelu,
}

/// The numbers of one attention operation.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape<'a> {
    /// Query heads; a multiple of the cache's key/value heads.
    pub heads: usize,
    /// Scores are multiplied by this.
    pub scale: f32,
    /// Scores become cap · tanh(score / cap).
    pub softcap: Option<f32>,
    /// One logit a head that takes part in the softmax and has no value.
    pub sinks: Option<&'a [f32]>,
}

/// The transformer operations, row by row: a batch of rows gives the same bits as each row alone.
pub trait Backend: Send + Sync {
    /// Rows of an embedding table, times `scale`. `tokens` are below the table's rows.
    fn embed(&self, table: &Tensor, tokens: &[u32], scale: f32) -> Result<Hidden>;

    /// Several linear layers of the same input, so that it is quantized once.
    fn linear(&self, input: &Hidden, layers: &[&Linear]) -> Result<Vec<Hidden>>;

    /// x / sqrt(mean(x²) + eps) · weight, over groups of `weight.len()` elements: whole rows, or heads.
    fn rms_norm(&self, input: &Hidden, weight: &[f32], eps: f32) -> Hidden;

    /// Rotates the first `2 · pairs` elements of every head of `dim` elements.
    fn rope(&self, input: Hidden, dim: usize, rotation: &Rotation) -> Hidden;

    /// Appends rows of keys and values to the cache.
    fn append(&self, cache: &mut LayerCache, keys: &Hidden, values: &Hidden) -> Result<()>;

    /// Causal attention of `query` (rows at `at`, already in the cache) over the cache.
    fn attention(
        &self,
        query: &Hidden,
        cache: &LayerCache,
        at: Span,
        shape: AttentionShape,
    ) -> Result<Hidden>;

    /// gate(a) · b, element by element.
    fn gated(&self, gate: Gate, a: Hidden, b: &Hidden) -> Hidden;

    /// a + b.
    fn add(&self, a: Hidden, b: &Hidden) -> Hidden;

    /// cap · tanh(x / cap).
    fn softcap(&self, input: Hidden, cap: f32) -> Hidden;
}

//! The operations that models are made of, and nothing more: a device implements [`Backend`], a model calls it.
//!
//! Operations are as large as a device can make good use of: what a matrix reads is normalized or gated on the way in
//! ([`Source`]), what it writes is added to the residual on the way out, and matrices of one source are one operation. A
//! decoder layer takes six.

use crate::cache::{CacheType, LayerCache, LayerState};
use crate::error::{Error, Result};
use crate::tensor::{Tensor, Vector};

pub mod cpu;
#[cfg(feature = "gpu")]
pub mod gpu;
mod hidden;
pub mod pending;

pub use hidden::Hidden;
pub use pending::{Pending, now};

/// The operands of y = W x + b. Its `forward` is in `layers`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// outputs × inputs.
    pub weight: Tensor,
    /// outputs.
    pub bias: Option<Vector>,
}

/// The operands of x / sqrt(mean(x²) + eps) · weight.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// One factor an element of a row, or of a head.
    pub weight: Vector,
    /// Added to the mean of squares.
    pub eps: f32,
}

/// Where the rows of a [`Hidden`] stand in the sequence: row `i` is at position `start + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Position of the first row.
    pub start: usize,
    /// Rows.
    pub len: usize,
}

/// Turns of the pairs of a head for the rows of a [`Span`], made by `layers::Rope`.
#[derive(Debug)]
pub struct Rotation {
    /// Rows × (pairs · 2): the cosines of the angles, then their sines, times the attention factor of yarn.
    pub turns: Hidden,
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

/// What a linear layer reads: rows that are there, or that are made from them on the way.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The rows themselves.
    Plain(&'a Hidden),
    /// Each row normalized.
    Normed(&'a Hidden, &'a RmsNorm),
    /// gate(a) · b, element by element.
    Gated(Gate, &'a Hidden, &'a Hidden),
}

impl Source<'_> {
    /// Tokens.
    pub fn rows(&self) -> usize {
        self.first().rows()
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.first().columns()
    }

    fn first(&self) -> &Hidden {
        match self {
            Source::Plain(rows) | Source::Normed(rows, _) | Source::Gated(_, rows, _) => rows,
        }
    }
}

/// New rows of one attention layer, before they take their place in the sequence.
#[derive(Debug)]
pub struct Heads {
    /// tokens × (heads · dim).
    pub query: Hidden,
    /// tokens × (kv_heads · dim).
    pub key: Hidden,
    /// tokens × (kv_heads · dim).
    pub value: Hidden,
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

/// The most layers that read one [`Source`] together.
pub const MOST_TOGETHER: usize = 4;

/// The transformer operations, row by row: a batch of rows gives the same bits as each row alone.
pub trait Backend: Send + Sync + std::fmt::Debug {
    /// Rows × columns that hold any numbers: memory that was used before.
    fn blank(&self, rows: usize, columns: usize) -> Hidden;

    /// Rows that were computed elsewhere, to where operations read them.
    fn hold(&self, x: Hidden) -> Result<Hidden> {
        Ok(x)
    }

    /// Rows that operations made, to where their values can be read.
    fn fetching(&self, x: Hidden) -> Pending<Hidden> {
        Pending::ready(Ok(x))
    }

    /// As [`Backend::fetching`], and waits for them.
    fn fetch(&self, x: Hidden) -> Result<Hidden> {
        now(self.fetching(x))
    }

    /// The most rows of `columns` that one operation may make.
    fn most_rows(&self, _columns: usize) -> usize {
        usize::MAX
    }

    /// Columns and values of the `count` highest of one row: descending, equal ones by column, and before all others
    /// those that are no number or +infinity. `None` where reading the whole row takes no longer.
    fn finding_best(&self, _x: &Hidden, _count: usize) -> Pending<Option<Vec<(u32, f32)>>> {
        Pending::ready(Ok(None))
    }

    /// As [`Backend::finding_best`], and waits for them.
    fn best(&self, x: &Hidden, count: usize) -> Result<Option<Vec<(u32, f32)>>> {
        now(self.finding_best(x, count))
    }

    /// Drops all rows but the last.
    fn keep_last_row(&self, x: &mut Hidden) -> Result<()> {
        x.keep_last_row();
        Ok(())
    }

    /// Rows of an embedding table, times `scale`. `tokens` are below the table's rows.
    fn embed(&self, table: &Tensor, tokens: &[u32], scale: f32) -> Result<Hidden>;

    /// Replaces each of `out` by the layer's product with the source. At most [`MOST_TOGETHER`] layers.
    fn linear(&self, source: Source, layers: &[&Linear], out: &mut [Hidden]) -> Result<()>;

    /// x += y, where y is the layer's product with the source, normalized if there is a norm.
    fn add_linear(
        &self,
        x: &mut Hidden,
        source: Source,
        layer: &Linear,
        norm: Option<&RmsNorm>,
    ) -> Result<()>;

    /// Normalizes the heads of queries and keys (`norms`, each if there is one), rotates the first `2 · pairs` elements
    /// of each and appends keys and values to the cache.
    fn append(
        &self,
        cache: &mut LayerCache,
        rows: &mut Heads,
        norms: [Option<&RmsNorm>; 2],
        rotation: &Rotation,
    ) -> Result<()>;

    /// What `cache` holds of what this backend appended: rows in the bytes that the CPU stores.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if another one holds it.
    fn stored(&self, cache: &LayerCache) -> Result<LayerState<Vec<u8>>> {
        let held = || Error::unsupported("a cache in the memory of", "another device", "");
        let LayerState { first, len, keys, values } = cache.state().ok_or_else(held)?;
        Ok(LayerState { first, len, keys: keys.concat(), values: values.concat() })
    }

    /// Replaces what `cache` holds by what [`Backend::stored`] gave of a layer with the same shape and kind.
    ///
    /// # Errors
    /// [`Error::Numeric`] if it can't be from such a layer: then nothing has changed.
    fn store(&self, cache: &mut LayerCache, state: &LayerState<&[u8]>) -> Result<()> {
        cache.restore(state)
    }

    /// Stores what `cache` holds of what this backend appended as `kind` from now on.
    ///
    /// # Errors
    /// [`Error::Option`] for heads that can't be stored so, or if there is no memory; then nothing has changed.
    fn convert(&self, cache: &mut LayerCache, kind: CacheType) -> Result<()>;

    /// Causal attention of `query` (rows at `at`, already in the cache) over the cache.
    fn attention(
        &self,
        query: &Hidden,
        cache: &LayerCache,
        at: Span,
        shape: AttentionShape,
    ) -> Result<Hidden>;

    /// cap · tanh(x / cap).
    fn softcap(&self, x: &mut Hidden, cap: f32) -> Result<()>;

    /// Bytes of what is kept for the next operations and holds nothing between them.
    fn scratch_bytes(&self) -> u64 {
        0
    }

    /// The GPU that runs the operations.
    #[cfg(feature = "gpu")]
    fn gpu(&self) -> Option<&std::sync::Arc<gpu::Device>> {
        None
    }
}

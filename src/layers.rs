//! The parts that decoders are built of: structs of weights with one `forward`, written against [`Backend`] only.

use crate::backend::{AttentionShape, Backend, Gate, Heads, Hidden, Rotation, Source, Span};
use crate::cache::LayerCache;
use crate::error::Result;

pub mod rope;

pub use crate::backend::{Linear, RmsNorm};
pub use rope::Rope;

impl Linear {
    /// tokens × inputs to tokens × outputs.
    pub fn forward(&self, source: Source, ops: &dyn Backend) -> Result<Hidden> {
        let [y] = together(source, [self], ops)?;
        Ok(y)
    }
}

/// Several layers of the same source.
fn together<const N: usize>(source: Source, layers: [&Linear; N], ops: &dyn Backend) -> Result<[Hidden; N]> {
    let mut out = [const { Hidden::empty() }; N];
    ops.linear(source, &layers, &mut out)?;
    Ok(out)
}

/// Grouped-query attention with rotary positions.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Normalizes what the branch reads.
    pub norm: RmsNorm,
    /// Hidden to heads · dim.
    pub query: Linear,
    /// Hidden to kv_heads · dim.
    pub key: Linear,
    /// Hidden to kv_heads · dim.
    pub value: Linear,
    /// heads · dim to hidden.
    pub output: Linear,
    /// Normalizes each query head before the rotation (Qwen3, Gemma 3).
    pub query_norm: Option<RmsNorm>,
    /// Normalizes each key head before the rotation.
    pub key_norm: Option<RmsNorm>,
    /// Normalizes what the branch adds (Gemma 3).
    pub post_norm: Option<RmsNorm>,
    /// Query heads.
    pub heads: usize,
    /// Scores are multiplied by this, usually 1 / sqrt(dim).
    pub scale: f32,
    /// Scores become cap · tanh(score / cap).
    pub softcap: Option<f32>,
}

impl Attention {
    /// Adds the branch to `x`: tokens × hidden at `at`.
    pub fn forward(
        &self,
        x: &mut Hidden,
        cache: &mut LayerCache,
        at: Span,
        rotation: &Rotation,
        ops: &dyn Backend,
    ) -> Result<()> {
        let layers = [&self.query, &self.key, &self.value];
        let [query, key, value] = together(Source::Normed(x, &self.norm), layers, ops)?;
        let mut rows = Heads { query, key, value };
        ops.append(cache, &mut rows, [self.query_norm.as_ref(), self.key_norm.as_ref()], rotation)?;
        let shape =
            AttentionShape { heads: self.heads, scale: self.scale, softcap: self.softcap, sinks: None };
        let attended = ops.attention(&rows.query, cache, at, shape)?; // tokens × heads · dim
        ops.add_linear(x, Source::Plain(&attended), &self.output, self.post_norm.as_ref())
    }
}

/// The gated feed-forward: down(gate(x) · up(x)).
#[derive(Clone, Debug)]
pub struct Mlp {
    /// Normalizes what the branch reads.
    pub norm: RmsNorm,
    /// Hidden to inner.
    pub gate: Linear,
    /// Hidden to inner.
    pub up: Linear,
    /// Inner to hidden.
    pub down: Linear,
    /// Normalizes what the branch adds (Gemma 3).
    pub post_norm: Option<RmsNorm>,
    /// What bends the gate.
    pub bend: Gate,
}

impl Mlp {
    /// Adds the branch to `x`: tokens × hidden.
    pub fn forward(&self, x: &mut Hidden, ops: &dyn Backend) -> Result<()> {
        let [gate, up] = together(Source::Normed(x, &self.norm), [&self.gate, &self.up], ops)?;
        ops.add_linear(x, Source::Gated(self.bend, &gate, &up), &self.down, self.post_norm.as_ref())
    }
}

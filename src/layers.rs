//! The parts that decoders are built of: structs of weights with one `forward`, written against [`Backend`] only.

use crate::backend::{AttentionShape, Backend, Gate, Hidden, Rotation, Span};
use crate::cache::LayerCache;
use crate::error::Result;

pub mod rope;

pub use crate::backend::Linear;
pub use rope::Rope;

impl Linear {
    /// tokens × inputs to tokens × outputs.
    pub fn forward(&self, x: &Hidden, ops: &dyn Backend) -> Result<Hidden> {
        let [y] = together(x, [self], ops)?;
        Ok(y)
    }
}

/// Several layers of the same input.
fn together<const N: usize>(x: &Hidden, layers: [&Linear; N], ops: &dyn Backend) -> Result<[Hidden; N]> {
    let outputs = ops.linear(x, &layers)?;
    Ok(outputs.try_into().expect("a backend returns one output a layer"))
}

/// x / sqrt(mean(x²) + eps) · weight.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// One factor an element of a row, or of a head.
    pub weight: Vec<f32>,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl RmsNorm {
    /// Normalizes every run of `weight.len()` elements.
    pub fn forward(&self, x: &Hidden, ops: &dyn Backend) -> Hidden {
        ops.rms_norm(x, &self.weight, self.eps)
    }
}

/// Grouped-query attention with rotary positions.
#[derive(Clone, Debug)]
pub struct Attention {
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
    /// Query heads.
    pub heads: usize,
    /// Elements of a head.
    pub dim: usize,
    /// Scores are multiplied by this, usually 1 / sqrt(dim).
    pub scale: f32,
    /// Scores become cap · tanh(score / cap).
    pub softcap: Option<f32>,
}

impl Attention {
    /// `x`: tokens × hidden at `at`; the result has the same shape.
    pub fn forward(
        &self,
        x: &Hidden,
        cache: &mut LayerCache,
        at: Span,
        rotation: &Rotation,
        ops: &dyn Backend,
    ) -> Result<Hidden> {
        let [q, k, v] = together(x, [&self.query, &self.key, &self.value], ops)?;
        let normed = |norm: &Option<RmsNorm>, x: Hidden| match norm {
            Some(norm) => norm.forward(&x, ops),
            None => x,
        };
        let q = ops.rope(normed(&self.query_norm, q), self.dim, rotation); // tokens × heads · dim
        let k = ops.rope(normed(&self.key_norm, k), self.dim, rotation); // tokens × kv_heads · dim
        ops.append(cache, &k, &v)?;
        let shape =
            AttentionShape { heads: self.heads, scale: self.scale, softcap: self.softcap, sinks: None };
        self.output.forward(&ops.attention(&q, cache, at, shape)?, ops)
    }
}

/// The gated feed-forward: down(gate(x) · up(x)).
#[derive(Clone, Debug)]
pub struct Mlp {
    /// Hidden to inner.
    pub gate: Linear,
    /// Hidden to inner.
    pub up: Linear,
    /// Inner to hidden.
    pub down: Linear,
    /// What bends the gate.
    pub bend: Gate,
}

impl Mlp {
    /// `x`: tokens × hidden; the result has the same shape.
    pub fn forward(&self, x: &Hidden, ops: &dyn Backend) -> Result<Hidden> {
        let [gate, up] = together(x, [&self.gate, &self.up], ops)?;
        self.down.forward(&ops.gated(self.bend, gate, &up), ops)
    }
}

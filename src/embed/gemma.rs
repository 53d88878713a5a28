//! EmbeddingGemma: Gemma 3 whose tokens see each other in both directions (Vera et al. 2025). Its windows reach half of
//! `sliding_window` to either side, as in transformers.

use super::attention::{Shape, attend};
use super::{Encoder, Row};
use crate::backend::{Backend, Hidden, RmsNorm, Source};
use crate::error::Result;
use crate::file::Weights;
use crate::layers::Rope;
use crate::layers::rope::Scaling;
use crate::model::Config;
use crate::model::gemma3::{Layer, WINDOW_ROPE_BASE, load_layers};
use crate::model::load::Loader;
use crate::tensor::Tensor;

/// The table row.
pub(super) static ROW: Row =
    Row { name: "gemma-embedding", models: "EmbeddingGemma", word_piece: false, load };

#[derive(Debug)]
struct Gemma {
    config: Config,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    full_rope: Rope,
    window_rope: Rope,
}

fn load(weights: &Weights) -> Result<Box<dyn Encoder>> {
    let loader = Loader::new(weights)?;
    loader.expect_activation(&["gelu_pytorch_tanh", "gelu_tanh"])?;
    let number = |name: &str| weights.metadata.f32(&format!("gemma-embedding.{name}"));
    let (base, scale) =
        (number("rope.freq_base_swa")?.unwrap_or(WINDOW_ROPE_BASE), number("attention.scale")?);
    Ok(Box::new(Gemma {
        embedding: loader.embedding()?,
        layers: load_layers(&loader, scale)?,
        norm: loader.norm("output_norm", loader.config.hidden)?,
        full_rope: loader.rope(loader.config.rope_base, &loader.config.rope_scaling, false),
        window_rope: loader.rope(base, &Scaling::None, false),
        config: loader.config,
    }))
}

impl Encoder for Gemma {
    fn context(&self) -> usize {
        self.config.context
    }

    fn table(&self) -> (usize, usize) {
        (self.embedding.rows(), self.embedding.columns())
    }

    fn forward(&self, ids: &[u32], ops: &dyn Backend) -> Result<Hidden> {
        let mut x = ops.embed(&self.embedding, ids, (self.config.hidden as f32).sqrt())?; // tokens × hidden
        for layer in &self.layers {
            self.attention(layer, &mut x, ops)?;
            layer.mlp.forward(&mut x, ops)?;
        }
        let columns = x.columns();
        normalize(x.values_mut(), columns, &self.norm);
        Ok(x)
    }
}

impl Gemma {
    fn attention(&self, layer: &Layer, x: &mut Hidden, ops: &dyn Backend) -> Result<()> {
        let Config { heads, kv_heads, head_dim: dim, window, .. } = self.config;
        let attention = &layer.attention;
        let of = |layer: &crate::layers::Linear, x: &Hidden| {
            layer.forward(Source::Normed(x, &attention.norm), ops)
        };
        let (mut query, mut key, value) =
            (of(&attention.query, x)?, of(&attention.key, x)?, of(&attention.value, x)?);
        let rope = if layer.windowed { &self.window_rope } else { &self.full_rope };
        for (rows, norm) in [(&mut query, &attention.query_norm), (&mut key, &attention.key_norm)] {
            if let Some(norm) = norm {
                normalize(rows.values_mut(), dim, norm);
            }
            turn(rows, dim, rope);
        }
        let window = window.filter(|_| layer.windowed).map(|window| window / 2 + 1);
        let shape = Shape { heads, kv_heads, dim, scale: attention.scale, window };
        let attended = attend(&query, &key, &value, shape);
        ops.add_linear(x, Source::Plain(&attended), &attention.output, attention.post_norm.as_ref())
    }
}

/// Each `columns` values.
fn normalize(values: &mut [f32], columns: usize, norm: &RmsNorm) {
    for row in values.chunks_exact_mut(columns) {
        let square = row.iter().map(|x| x * x).sum::<f32>() / columns as f32;
        let inverse = 1.0 / (square + norm.eps).sqrt();
        row.iter_mut().zip(norm.weight.iter()).for_each(|(x, weight)| *x = *x * inverse * weight);
    }
}

/// Rotates the heads of row `i` by position `i`; element `p` goes with `p + pairs`.
fn turn(rows: &mut Hidden, dim: usize, rope: &Rope) {
    let (columns, pairs) = (rows.columns(), rope.frequencies.len());
    for (position, row) in rows.values_mut().chunks_exact_mut(columns).enumerate() {
        for head in row.chunks_exact_mut(dim) {
            for (pair, frequency) in rope.frequencies.iter().enumerate() {
                let angle = position as f64 * frequency;
                let (sin, cos) = (libm::sin(angle) as f32, libm::cos(angle) as f32);
                let (a, b) = (head[pair], head[pair + pairs]);
                (head[pair], head[pair + pairs]) = (a * cos - b * sin, b * cos + a * sin);
            }
        }
    }
}

//! Gemma 3 text: norms before and after each branch, normalized query and key heads, five windowed layers to one
//! full with rope bases of their own, GeGLU, embeddings scaled by sqrt(hidden) (Gemma team 2025).

use std::ops::Range;
use std::sync::Arc;

use super::load::Loader;
use super::{Architecture, Config, Model};
use crate::backend::{Backend, Gate, Hidden, Source, Span};
use crate::cache::{KvCache, LayerShape};
use crate::error::Result;
use crate::file::Weights;
use crate::layers::rope::Scaling;
use crate::layers::{Attention, Linear, Mlp, RmsNorm, Rope};
use crate::tensor::Tensor;

/// The table row.
pub static ARCHITECTURE: Architecture = Architecture {
    name: "gemma3",
    models: "Gemma 3 270M, 1B and the text part of 4B to 27B",
    features: "QK-norm, post-norms, sliding window with its own rope base, GeGLU, scaled embeddings",
    load,
};

/// Every sixth layer sees everything; files that say otherwise carry the key.
const WINDOW_PATTERN: usize = 6;
/// Rope base of windowed layers; absent from the files of the reference converter.
pub(crate) const WINDOW_ROPE_BASE: f32 = 10_000.0;
/// The 27B model alone scales attention by 1 / sqrt(hidden / heads); its GGUF files do not say so.
const LAYERS_OF_27B: usize = 62;

#[derive(Debug)]
struct Gemma3 {
    config: Config,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    full_rope: Rope,
    window_rope: Rope,
}

/// A layer, of EmbeddingGemma too.
#[derive(Debug)]
pub(crate) struct Layer {
    pub attention: Attention,
    pub mlp: Mlp,
    pub windowed: bool,
}

/// All layers. `scale` is that of attention, where a model has another than 1 / sqrt(head width).
pub(crate) fn load_layers(loader: &Loader, scale: Option<f32>) -> Result<Vec<Layer>> {
    let Config { hidden, layers, .. } = loader.config;
    let windowed = loader.windowed_layers(Some(WINDOW_PATTERN))?;
    let layer = |index: usize| -> Result<Layer> {
        let norm = |name: &str| loader.norm(&format!("blk.{index}.{name}"), hidden).map(Some);
        let attention = loader.normed_attention(index)?;
        Ok(Layer {
            attention: Attention {
                scale: scale.unwrap_or(attention.scale),
                post_norm: norm("post_attention_norm")?,
                ..attention
            },
            mlp: Mlp { post_norm: norm("post_ffw_norm")?, ..loader.mlp(index, Gate::Gelu)? },
            windowed: windowed[index],
        })
    };
    (0..layers).map(layer).collect()
}

fn load(weights: &Weights) -> Result<Arc<dyn Model>> {
    let loader = Loader::new(weights)?;
    loader.expect_activation(&["gelu_pytorch_tanh", "gelu_tanh"])?;
    let keys = loader.keys()?;
    keys.refuse("rope.scaling.type_swa", "rope scaling of windowed layers")?;
    keys.refuse("attention.layer_types", "layer type")?;
    let window_base = keys.positive("rope.freq_base_swa")?.map_or(WINDOW_ROPE_BASE, |base| base as f32);
    let Config { hidden, heads, layers, .. } = loader.config;
    let scale = keys.positive("attention.scale")?.map(|scale| scale as f32);
    let scale = scale.or((layers == LAYERS_OF_27B).then(|| (heads as f32 / hidden as f32).sqrt()));
    let embedding = loader.embedding()?;
    Ok(Arc::new(Gemma3 {
        head: loader.head(&embedding)?,
        embedding,
        layers: load_layers(&loader, scale)?,
        norm: loader.norm("output_norm", hidden)?,
        full_rope: loader.rope(loader.config.rope_base, &loader.config.rope_scaling, false),
        window_rope: loader.rope(window_base, &Scaling::None, false),
        config: loader.config,
    }))
}

impl Model for Gemma3 {
    fn config(&self) -> &Config {
        &self.config
    }

    fn cache_shape(&self) -> Vec<LayerShape> {
        let Config { kv_heads: heads, head_dim: dim, window, .. } = self.config;
        let shape = |layer: &Layer| LayerShape { heads, dim, window: window.filter(|_| layer.windowed) };
        self.layers.iter().map(shape).collect()
    }

    fn embed(&self, tokens: &[u32], ops: &dyn Backend) -> Result<Hidden> {
        ops.embed(&self.embedding, tokens, (self.config.hidden as f32).sqrt())
    }

    fn decode(
        &self,
        layers: Range<usize>,
        x: &mut Hidden,
        at: Span,
        cache: &mut KvCache,
        ops: &dyn Backend,
    ) -> Result<()> {
        let (full, window) = (self.full_rope.rotation(at, ops)?, self.window_rope.rotation(at, ops)?);
        for index in layers {
            let layer = &self.layers[index];
            let rotation = if layer.windowed { &window } else { &full };
            layer.attention.forward(x, cache.layer(index), at, rotation, ops)?;
            layer.mlp.forward(x, ops)?;
        }
        Ok(())
    }

    fn logits(&self, x: &Hidden, ops: &dyn Backend) -> Result<Hidden> {
        let mut logits = self.head.forward(Source::Normed(x, &self.norm), ops)?; // rows × vocabulary
        if let Some(cap) = self.config.final_softcap {
            ops.softcap(&mut logits, cap)?;
        }
        Ok(logits)
    }
}

//! Llama: pre-norm decoder, grouped-query attention, SwiGLU (Touvron et al. 2023; Llama 3.1's rope scaling).

use std::ops::Range;
use std::sync::Arc;

use super::load::Loader;
use super::{Architecture, Config, Model};
use crate::backend::{Backend, Gate, Hidden, Source, Span};
use crate::cache::{KvCache, LayerShape};
use crate::error::{Error, Result};
use crate::file::Weights;
use crate::layers::{Attention, Linear, Mlp, RmsNorm, Rope};
use crate::tensor::Tensor;

/// The table row.
pub static ARCHITECTURE: Architecture = Architecture {
    name: "llama",
    models: "SmolLM2, Llama 2 and 3, TinyLlama, Mistral 7B, the Austen model",
    features: "GQA, SwiGLU; linear, llama3 and yarn rope",
    load,
};

/// A pre-norm decoder. Qwen2 and Qwen3 differ in their attention weights only and are built from it.
#[derive(Debug)]
pub(super) struct Llama {
    config: Config,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    rope: Rope,
}

#[derive(Debug)]
struct Layer {
    attention: Attention,
    mlp: Mlp,
    window: Option<usize>,
}

fn load(weights: &Weights) -> Result<Arc<dyn Model>> {
    let loader = Loader::new(weights)?;
    let experts = loader.keys()?.of("expert_count");
    if weights.metadata.u32(&experts)?.is_some_and(|count| count > 0) {
        return Err(Error::unsupported("mixture of experts", "llama", "dense models are"));
    }
    let rope = loader.rope(loader.config.rope_base, &loader.config.rope_scaling, true);
    Ok(Arc::new(Llama::load(&loader, rope, |index| loader.attention(index))?))
}

impl Llama {
    pub fn load(loader: &Loader, rope: Rope, attention: impl Fn(usize) -> Result<Attention>) -> Result<Self> {
        loader.expect_activation(&["silu", "swish"])?;
        loader.keys()?.refuse("attention.layer_types", "layer type")?;
        let windowed = loader.windowed_layers(None)?;
        let hidden = loader.config.hidden;
        let layer = |index| -> Result<Layer> {
            Ok(Layer {
                attention: attention(index)?,
                mlp: loader.mlp(index, Gate::Silu)?,
                window: loader.config.window.filter(|_| windowed[index]),
            })
        };
        let embedding = loader.embedding()?;
        Ok(Llama {
            head: loader.head(&embedding)?,
            embedding,
            layers: (0..loader.config.layers).map(layer).collect::<Result<_>>()?,
            norm: loader.norm("output_norm", hidden)?,
            rope,
            config: loader.config.clone(),
        })
    }
}

impl Model for Llama {
    fn config(&self) -> &Config {
        &self.config
    }

    fn cache_shape(&self) -> Vec<LayerShape> {
        let Config { kv_heads: heads, head_dim: dim, .. } = self.config;
        self.layers.iter().map(|layer| LayerShape { heads, dim, window: layer.window }).collect()
    }

    fn embed(&self, tokens: &[u32], ops: &dyn Backend) -> Result<Hidden> {
        ops.embed(&self.embedding, tokens, 1.0)
    }

    fn decode(
        &self,
        layers: Range<usize>,
        x: &mut Hidden,
        at: Span,
        cache: &mut KvCache,
        ops: &dyn Backend,
    ) -> Result<()> {
        let rotation = self.rope.rotation(at, ops)?;
        for index in layers {
            let layer = &self.layers[index];
            layer.attention.forward(x, cache.layer(index), at, &rotation, ops)?;
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

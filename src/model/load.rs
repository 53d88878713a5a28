//! From named tensors to layers, with every shape checked against the [`Config`].

use crate::backend::Gate;
use crate::error::{Error, Result};
use crate::file::metadata::Array;
use crate::file::{RopePairs, Value, Weights};
use crate::layers::rope::Scaling;
use crate::layers::{Attention, Linear, Mlp, RmsNorm, Rope};
use crate::model::Config;
use crate::model::config::Keys;
use crate::tensor::Tensor;

/// Reads the layers of one file.
pub struct Loader<'a> {
    pub weights: &'a Weights,
    pub config: Config,
}

impl<'a> Loader<'a> {
    pub fn new(weights: &'a Weights) -> Result<Self> {
        Ok(Loader { weights, config: Config::read(weights)? })
    }

    /// Keys under the architecture's name.
    pub fn keys(&self) -> Result<Keys<'a>> {
        Keys::new(self.weights)
    }

    /// A matrix of outputs × inputs, with its bias if the file has one.
    pub fn linear(&self, name: &str, outputs: usize, inputs: usize) -> Result<Linear> {
        let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
        if weight.format().dot.is_none() {
            let message = format!("{} is not a type of weights", weight.format().name);
            return Err(Error::tensor(weight.name(), message));
        }
        let bias_name = format!("{name}.bias");
        let bias = match self.weights.tensors.contains_key(&bias_name) {
            true => Some(self.tensor(&bias_name, &[outputs])?.to_f32()?.into()),
            false => None,
        };
        Ok(Linear { weight, bias })
    }

    /// The norm `name`, over `len` elements.
    pub fn norm(&self, name: &str, len: usize) -> Result<RmsNorm> {
        let weight = self.tensor(&format!("{name}.weight"), &[len])?.to_f32()?.into();
        Ok(RmsNorm { weight, eps: self.config.eps })
    }

    /// The embedding table: vocabulary × hidden.
    pub fn embedding(&self) -> Result<Tensor> {
        self.tensor("token_embd.weight", &[self.config.vocab, self.config.hidden])
    }

    /// The output matrix; without one it is the embedding table, unless the file says that they are not tied. A tied
    /// one shares what devices keep of it.
    pub fn head(&self, embedding: &Tensor) -> Result<Linear> {
        let Config { vocab, hidden, .. } = self.config;
        let tied = self.keys()?;
        let tied = self.weights.metadata.bool(&tied.of("tie_word_embeddings"))?;
        let has_own = self.weights.tensors.contains_key("output.weight");
        match (tied, has_own) {
            (Some(true), _) | (None, false) => {
                Ok(Linear { weight: embedding.clone(), ..self.linear("token_embd", vocab, hidden)? })
            }
            (Some(false) | None, _) => self.linear("output", vocab, hidden),
        }
    }

    /// Attention of layer `index`, with whatever biases and head norms the file has.
    pub fn attention(&self, index: usize) -> Result<Attention> {
        let Config { hidden, heads, kv_heads, head_dim: dim, .. } = self.config;
        let name = |part: &str| format!("blk.{index}.attn_{part}");
        Ok(Attention {
            norm: self.norm(&name("norm"), hidden)?,
            query: self.linear(&name("q"), heads * dim, hidden)?,
            key: self.linear(&name("k"), kv_heads * dim, hidden)?,
            value: self.linear(&name("v"), kv_heads * dim, hidden)?,
            output: self.linear(&name("output"), hidden, heads * dim)?,
            query_norm: None,
            key_norm: None,
            post_norm: None,
            heads,
            scale: 1.0 / (dim as f32).sqrt(),
            softcap: self.config.attention_softcap,
        })
    }

    /// Attention of layer `index` whose heads are normalized.
    pub fn normed_attention(&self, index: usize) -> Result<Attention> {
        let dim = self.config.head_dim;
        Ok(Attention {
            query_norm: Some(self.norm(&format!("blk.{index}.attn_q_norm"), dim)?),
            key_norm: Some(self.norm(&format!("blk.{index}.attn_k_norm"), dim)?),
            ..self.attention(index)?
        })
    }

    /// The feed-forward of layer `index`.
    pub fn mlp(&self, index: usize, bend: Gate) -> Result<Mlp> {
        let Config { hidden, inner, .. } = self.config;
        let name = |part: &str| format!("blk.{index}.ffn_{part}");
        Ok(Mlp {
            norm: self.norm(&name("norm"), hidden)?,
            gate: self.linear(&name("gate"), inner, hidden)?,
            up: self.linear(&name("up"), inner, hidden)?,
            down: self.linear(&name("down"), hidden, inner)?,
            post_norm: None,
            bend,
        })
    }

    /// Which layers have a window: as an array of the file says, or all but each `pattern`-th; without a pattern all.
    pub fn windowed_layers(&self, pattern: Option<usize>) -> Result<Vec<bool>> {
        let (keys, layers) = (self.keys()?, self.config.layers);
        let name = "attention.sliding_window_pattern";
        if self.config.window.is_none() {
            return Ok(vec![false; layers]);
        }
        match self.weights.metadata.get(&keys.of(name)) {
            Some(Value::Array(Array::Bool(windowed))) if windowed.len() == layers => Ok(windowed.clone()),
            Some(Value::Array(_)) => {
                Err(Error::key(keys.of(name), format!("expected {layers} booleans, one a layer")))
            }
            _ => {
                let pattern = keys.optional_size(name)?.or(pattern);
                let full = |index: usize| pattern.is_some_and(|every| (index + 1).is_multiple_of(every));
                Ok((0..layers).map(|index| !full(index)).collect())
            }
        }
    }

    /// Rotary frequencies of `base`; `interleaved_in_gguf` says how this architecture's GGUF files pair elements.
    pub fn rope(&self, base: f32, scaling: &Scaling, interleaved_in_gguf: bool) -> Rope {
        let interleaved = interleaved_in_gguf && self.weights.rope_pairs == RopePairs::Gguf;
        Rope::new(self.config.rope_dim, f64::from(base), interleaved, scaling)
    }

    /// Refuses files whose feed-forward bends its gate in another way than this graph does.
    pub fn expect_activation(&self, known: &[&str]) -> Result<()> {
        let key = self.keys()?.of("activation");
        match self.weights.metadata.str(&key)? {
            Some(name) if !known.contains(&name) => Err(Error::unsupported(
                "activation",
                name,
                &format!("this architecture has {}", known.join(", ")),
            )),
            _ => Ok(()),
        }
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let tensor = self.weights.tensor(name)?;
        if tensor.shape() != shape {
            return Err(Error::tensor(name, format!("expected shape {shape:?}, found {:?}", tensor.shape())));
        }
        Ok(tensor)
    }
}

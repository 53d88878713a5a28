//! BERT (Devlin et al. 2018): learned positions, a norm behind each branch, GELU by the error function.

use super::attention::{Shape, attend};
use super::{Encoder, Row, shaped};
use crate::backend::{Backend, Hidden, Linear, Source};
use crate::error::{Error, Result};
use crate::file::Weights;
use crate::tensor::Tensor;

/// The table row.
pub(super) static ROW: Row = Row { name: "bert", models: "BERT and MiniLM", word_piece: true, load };

/// No encoder is near this.
const MAX_LAYERS: usize = 1024;

#[derive(Debug)]
struct Bert {
    words: Tensor,
    /// positions × hidden.
    positions: Vec<f32>,
    context: usize,
    /// What every token has, as there is one text only.
    kind: Vec<f32>,
    norm: LayerNorm,
    layers: Vec<Layer>,
    heads: usize,
}

#[derive(Debug)]
struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    attention_norm: LayerNorm,
    up: Linear,
    down: Linear,
    norm: LayerNorm,
}

/// (x - mean) / sqrt(variance + eps) · weight + bias.
#[derive(Debug)]
struct LayerNorm {
    weight: Vec<f32>,
    bias: Vec<f32>,
    eps: f32,
}

impl LayerNorm {
    fn apply(&self, x: &mut Hidden) {
        let columns = x.columns();
        for row in x.values_mut().chunks_exact_mut(columns) {
            let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / columns as f64;
            let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / columns as f64;
            let inverse = 1.0 / (variance + f64::from(self.eps)).sqrt();
            for (x, (weight, bias)) in row.iter_mut().zip(self.weight.iter().zip(&self.bias)) {
                *x = ((f64::from(*x) - mean) * inverse) as f32 * weight + bias;
            }
        }
    }
}

fn load(weights: &Weights) -> Result<Box<dyn Encoder>> {
    let metadata = &weights.metadata;
    let size = |name: &str| {
        let key = format!("bert.{name}");
        match metadata.required(&key, metadata.usize(&key)?)? {
            0 => Err(Error::key(key, "0 makes no sense")),
            size => Ok(size),
        }
    };
    let (hidden, inner, heads) =
        (size("embedding_length")?, size("feed_forward_length")?, size("attention.head_count")?);
    let (count, context, vocab) = (size("block_count")?, size("context_length")?, size("vocab_size")?);
    if !hidden.is_multiple_of(heads) || count > MAX_LAYERS {
        return Err(Error::key(
            "bert.attention.head_count",
            format!("{heads} heads of {hidden}, {count} layers"),
        ));
    }
    match metadata.str("bert.activation")? {
        None | Some("gelu") => {}
        Some(other) => return Err(Error::unsupported("activation", other, "BERT has gelu")),
    }
    let eps = metadata.f32("bert.attention.layer_norm_epsilon")?.unwrap_or(1e-12);
    let vector = |name: &str, len: usize| shaped(weights, name, &[len])?.to_f32();
    let norm = |name: &str| -> Result<LayerNorm> {
        let part = |part: &str| vector(&format!("{name}.{part}"), hidden);
        Ok(LayerNorm { weight: part("weight")?, bias: part("bias")?, eps })
    };
    let linear = |name: String, outputs: usize, inputs: usize| -> Result<Linear> {
        let bias = vector(&format!("{name}.bias"), outputs)?;
        Ok(Linear {
            weight: shaped(weights, &format!("{name}.weight"), &[outputs, inputs])?,
            bias: Some(bias.into()),
        })
    };
    let layer = |index: usize| -> Result<Layer> {
        let name = |part: &str| format!("blk.{index}.{part}");
        Ok(Layer {
            query: linear(name("attn_q"), hidden, hidden)?,
            key: linear(name("attn_k"), hidden, hidden)?,
            value: linear(name("attn_v"), hidden, hidden)?,
            output: linear(name("attn_output"), hidden, hidden)?,
            attention_norm: norm(&name("attn_output_norm"))?,
            up: linear(name("ffn_up"), inner, hidden)?,
            down: linear(name("ffn_down"), hidden, inner)?,
            norm: norm(&name("layer_output_norm"))?,
        })
    };
    let kinds = weights.tensor("token_types.weight")?;
    if kinds.columns() != hidden || kinds.is_empty() {
        return Err(Error::tensor(kinds.name(), format!("expected rows of {hidden}")));
    }
    Ok(Box::new(Bert {
        words: shaped(weights, "token_embd.weight", &[vocab, hidden])?,
        positions: shaped(weights, "position_embd.weight", &[context, hidden])?.to_f32()?,
        context,
        kind: kinds.to_f32()?[..hidden].to_vec(),
        norm: norm("token_embd_norm")?,
        layers: (0..count).map(layer).collect::<Result<_>>()?,
        heads,
    }))
}

impl Encoder for Bert {
    fn context(&self) -> usize {
        self.context
    }

    fn table(&self) -> (usize, usize) {
        (self.words.rows(), self.words.columns())
    }

    fn forward(&self, ids: &[u32], ops: &dyn Backend) -> Result<Hidden> {
        let mut x = ops.embed(&self.words, ids, 1.0)?; // tokens × hidden
        let columns = x.columns();
        let places = x.values_mut().chunks_exact_mut(columns).zip(self.positions.chunks_exact(columns));
        for (row, position) in places {
            for (x, (position, kind)) in row.iter_mut().zip(position.iter().zip(&self.kind)) {
                *x += position + kind;
            }
        }
        self.norm.apply(&mut x);
        for layer in &self.layers {
            layer.forward(&mut x, self.heads, ops)?;
        }
        Ok(x)
    }
}

impl Layer {
    fn forward(&self, x: &mut Hidden, heads: usize, ops: &dyn Backend) -> Result<()> {
        let of = |layer: &Linear, x: &Hidden| layer.forward(Source::Plain(x), ops);
        let (query, key, value) = (of(&self.query, x)?, of(&self.key, x)?, of(&self.value, x)?);
        let dim = x.columns() / heads;
        let shape = Shape { heads, kv_heads: heads, dim, scale: 1.0 / (dim as f32).sqrt(), window: None };
        let attended = attend(&query, &key, &value, shape);
        ops.add_linear(x, Source::Plain(&attended), &self.output, None)?;
        self.attention_norm.apply(x);
        let mut inner = of(&self.up, x)?; // tokens × inner
        for x in inner.values_mut() {
            *x = 0.5 * *x * (1.0 + libm::erff(*x * std::f32::consts::FRAC_1_SQRT_2));
        }
        ops.add_linear(x, Source::Plain(&inner), &self.down, None)?;
        self.norm.apply(x);
        Ok(())
    }
}

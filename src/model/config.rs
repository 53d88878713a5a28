//! The sizes of a decoder, read from metadata keys that every architecture shares.

use crate::error::{Error, Result};
use crate::file::metadata::Array;
use crate::file::{Metadata, Value, Weights};
use crate::layers::rope::Scaling;

/// Sizes and constants of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Decoder layers.
    pub layers: usize,
    /// Elements of a hidden row.
    pub hidden: usize,
    /// Elements of the feed-forward's inner row.
    pub inner: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Tokens the model was trained for.
    pub context: usize,
    /// Added to the mean of squares in norms.
    pub eps: f32,
    /// Rotated elements of a head.
    pub rope_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// How the frequencies are stretched.
    pub rope_scaling: Scaling,
    /// Tokens a windowed layer sees.
    pub window: Option<usize>,
    /// Attention scores become cap · tanh(score / cap).
    pub attention_softcap: Option<f32>,
    /// Logits become cap · tanh(logit / cap).
    pub final_softcap: Option<f32>,
}

/// No decoder is near this; a count above it is a damaged file, not an allocation to try.
const MAX_LAYERS: usize = 4096;

impl Config {
    /// Reads the keys of `general.architecture`.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::Key`] for a value that makes no sense, [`Error::Unsupported`] for a rope type
    /// or layer kind that we don't run.
    pub fn read(weights: &Weights) -> Result<Config> {
        let keys = Keys::new(weights)?;
        let metadata = &weights.metadata;
        let hidden = keys.size("embedding_length")?;
        let heads = keys.size("attention.head_count")?;
        let kv_heads = keys.optional_size("attention.head_count_kv")?.unwrap_or(heads);
        let head_dim = match keys.optional_size("attention.key_length")? {
            Some(dim) => dim,
            None => hidden / heads,
        };
        let config = Config {
            layers: keys.size("block_count")?,
            hidden,
            inner: keys.size("feed_forward_length")?,
            heads,
            kv_heads,
            head_dim,
            vocab: vocab(weights)?,
            context: keys.size("context_length")?,
            eps: metadata.required(&keys.of("attention.layer_norm_rms_epsilon"), {
                metadata.f32(&keys.of("attention.layer_norm_rms_epsilon"))?
            })?,
            rope_dim: keys.optional_size("rope.dimension_count")?.unwrap_or(head_dim),
            rope_base: metadata.f32(&keys.of("rope.freq_base"))?.unwrap_or(10_000.0),
            rope_scaling: scaling(&keys, weights)?,
            window: keys.optional_size("attention.sliding_window")?,
            attention_softcap: metadata.f32(&keys.of("attn_logit_softcapping"))?,
            final_softcap: metadata.f32(&keys.of("final_logit_softcapping"))?,
            architecture: keys.architecture,
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        let wrong =
            |name: &str, message: String| Error::key(format!("{}.{name}", self.architecture), message);
        if self.layers > MAX_LAYERS {
            return Err(wrong("block_count", format!("{} layers, at most {MAX_LAYERS}", self.layers)));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let message = format!("{} is no divisor of the {} query heads", self.kv_heads, self.heads);
            return Err(wrong("attention.head_count_kv", message));
        }
        if !self.rope_dim.is_multiple_of(2) || self.rope_dim > self.head_dim {
            let message = format!("{} is odd or above the head's {}", self.rope_dim, self.head_dim);
            return Err(wrong("rope.dimension_count", message));
        }
        if !(self.rope_base.is_finite() && self.rope_base > 0.0) {
            return Err(wrong("rope.freq_base", format!("{} is not a positive number", self.rope_base)));
        }
        if !(self.eps.is_finite() && self.eps >= 0.0) {
            return Err(wrong("attention.layer_norm_rms_epsilon", format!("{} makes no sense", self.eps)));
        }
        Ok(())
    }
}

/// Keys under the architecture's name.
pub(crate) struct Keys<'a> {
    pub architecture: String,
    pub metadata: &'a Metadata,
}

impl<'a> Keys<'a> {
    pub fn new(weights: &'a Weights) -> Result<Self> {
        let metadata = &weights.metadata;
        let key = "general.architecture";
        let architecture = metadata.required(key, metadata.str(key)?)?.to_owned();
        Ok(Keys { architecture, metadata })
    }

    /// `<architecture>.<name>`.
    pub fn of(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// A size that must be there and not be zero.
    pub fn size(&self, name: &str) -> Result<usize> {
        self.metadata.required(&self.of(name), self.optional_size(name)?)
    }

    /// A size that is not zero if it is there.
    pub fn optional_size(&self, name: &str) -> Result<Option<usize>> {
        let key = self.of(name);
        match self.metadata.usize(&key)? {
            Some(0) => Err(Error::key(key, "0 makes no sense")),
            size => Ok(size),
        }
    }

    /// Refuses a file that has the key `name`: this graph would silently ignore it.
    pub fn refuse(&self, name: &str, what: &'static str) -> Result<()> {
        let value = match self.metadata.get(&self.of(name)) {
            None => return Ok(()),
            Some(Value::String(value)) => value.clone(),
            Some(Value::Array(Array::String(values))) => values.iter().collect::<Vec<_>>().join(", "),
            Some(other) => format!("{other:?}"),
        };
        Err(Error::unsupported(what, value, ""))
    }

    /// A number that must be positive if it is there.
    pub fn positive(&self, name: &str) -> Result<Option<f64>> {
        let key = self.of(name);
        match self.metadata.f32(&key)? {
            Some(value) if !(value.is_finite() && value > 0.0) => {
                Err(Error::key(key, format!("{value} is not a positive number")))
            }
            value => Ok(value.map(f64::from)),
        }
    }
}

/// Rows of the embedding table; the tokenizer's and the key's counts may differ from it by padding.
fn vocab(weights: &Weights) -> Result<usize> {
    let name = "token_embd.weight";
    let entry = weights.tensors.get(name).ok_or_else(|| Error::MissingTensor { name: name.into() })?;
    match entry.shape[..] {
        [rows, _] => Ok(rows),
        _ => Err(Error::tensor(name, format!("expected a matrix, found shape {:?}", entry.shape))),
    }
}

fn scaling(keys: &Keys, weights: &Weights) -> Result<Scaling> {
    // Llama 3.1 and later: GGUF's converter stores the finished divisors instead of the rule.
    if let Some(factors) = weights.optional_tensor("rope_freqs.weight")? {
        let factors = factors.to_f32()?;
        let half = keys.optional_size("rope.dimension_count")?.map(|dim| dim / 2);
        if half.is_some_and(|half| half != factors.len()) || factors.iter().any(|&f| f.is_nan() || f <= 0.0) {
            let message = format!("expected {half:?} positive divisors, found {}", factors.len());
            return Err(Error::tensor("rope_freqs.weight", message));
        }
        return Ok(Scaling::Factors(factors));
    }
    let type_key = keys.of("rope.scaling.type");
    let needed = |name: &str| keys.metadata.required(&keys.of(name), keys.positive(name)?);
    match keys.metadata.str(&type_key)?.unwrap_or("none") {
        "none" | "default" => Ok(Scaling::None),
        "linear" => Ok(Scaling::Linear { factor: needed("rope.scaling.factor")? }),
        "llama3" => Ok(Scaling::Llama3 {
            factor: needed("rope.scaling.factor")?,
            low: needed("rope.scaling.low_freq_factor")?,
            high: needed("rope.scaling.high_freq_factor")?,
            original: needed("rope.scaling.original_context_length")?,
        }),
        "yarn" => {
            let factor = needed("rope.scaling.factor")?;
            let default = Scaling::yarn_attention_factor(factor);
            Ok(Scaling::Yarn {
                factor,
                original: needed("rope.scaling.original_context_length")?,
                beta_fast: keys.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: keys.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                attention_factor: keys.positive("rope.scaling.attn_factor")?.unwrap_or(default),
            })
        }
        other => Err(Error::unsupported("rope scaling type", other, "linear, llama3 and yarn are")),
    }
}

//! A Hugging Face folder in GGUF's terms: tensors have GGUF's names already, so what is left are rows that lie in another
//! order, keys that only folders have, and the tokenizer.

use crate::error::{Error, Result};
use crate::file::{Entry, RopePairs, Value, Weights};
use crate::layers::rope::{Rope, Scaling};
use crate::model::Config;
use crate::quant::f32;
use crate::tensor::Bytes;

pub mod config;
mod tokenizer;

/// Keys of folders that GGUF has no room for: each of its architectures has one answer.
const OURS: &[&str] = &["activation", "tie_word_embeddings"];

/// `weights` with the metadata and tensors of a GGUF file. Data is not touched: while [`Weights::rope_pairs`] stays as in
/// the folder, [`RowOrder`] says how rows have to be written. What is GGUF already is returned as it is.
///
/// # Errors
/// [`Error::Unsupported`] for a tokenizer that GGUF can't describe, [`Error::Tensor`] for a tensor that no GGUF model has,
/// and those of [`Config::read`].
pub fn for_gguf(mut weights: Weights) -> Result<Weights> {
    if weights.rope_pairs == RopePairs::Gguf {
        return Ok(weights);
    }
    // Tables that are computed, and were stored by old exporters.
    weights.tensors.retain(|name, _| !name.ends_with("rotary_emb.inv_freq"));
    let part = |name: &&String| {
        ["blk.", "token_embd.", "output.", "output_norm."].iter().any(|part| name.starts_with(part))
    };
    if let Some(stranger) = weights.tensors.keys().find(|name| !part(name)) {
        return Err(Error::tensor(stranger, "has no name in GGUF"));
    }
    let config = Config::read(&weights)?;
    let architecture = &config.architecture;
    for key in OURS {
        weights.metadata.0.shift_remove(&format!("{architecture}.{key}"));
    }
    let metadata = &mut weights.metadata;
    metadata.set(format!("{architecture}.rope.dimension_count"), Value::U32(config.rope_dim as u32));
    if let Scaling::Llama3 { .. } = config.rope_scaling {
        metadata.0.retain(|key, _| !key.contains(".rope.scaling."));
        weights.tensors.insert("rope_freqs.weight".into(), divisors(&config));
    }
    metadata.set("general.file_type", Value::U32(file_type(&weights.tensors["token_embd.weight"])));
    tokenizer::describe(&mut weights)?;
    if architecture != "llama" {
        weights.rope_pairs = RopePairs::Gguf;
    }
    Ok(weights)
}

/// What the rule of Llama 3.1 divides each pair's frequency by, which is what GGUF stores in its place.
fn divisors(config: &Config) -> Entry {
    let divisors = divisors_of(config, &config.rope_scaling);
    let bytes: Vec<u8> = divisors.iter().flat_map(|divisor| divisor.to_le_bytes()).collect();
    Entry {
        shape: vec![divisors.len()],
        type_name: "F32".into(),
        type_id: None,
        format: Some(&f32::FORMAT),
        offset: 0,
        part: 0,
        data: Bytes::Owned(bytes.into()),
    }
}

/// What `scaling` divides the frequencies of the model's pairs by.
fn divisors_of(config: &Config, scaling: &Scaling) -> Vec<f32> {
    let rope = |scaling: &Scaling| Rope::new(config.rope_dim, f64::from(config.rope_base), false, scaling);
    let (plain, scaled) = (rope(&Scaling::None).frequencies, rope(scaling).frequencies);
    plain.iter().zip(&scaled).map(|(plain, scaled)| (plain / scaled) as f32).collect()
}

/// GGUF's number for a model whose matrices are of this type.
fn file_type(matrix: &Entry) -> u32 {
    match matrix.type_name.as_str() {
        "F16" => 1,
        "BF16" => 32,
        _ => 0,
    }
}

/// Rows of queries and keys of `llama`, of which GGUF interleaves the two halves of a head, in the order of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowOrder {
    /// Rows of a head.
    dim: usize,
    /// Whether halves become interleaved, as in GGUF.
    interleave: bool,
}

impl RowOrder {
    /// The order of the rows of `name` in a GGUF file, unless it is the stored one.
    pub fn of(weights: &Weights, name: &str) -> Option<RowOrder> {
        RowOrder::unless(RopePairs::Gguf, weights, name)
    }

    /// The order of the rows of `name` in a Hugging Face folder, unless it is the stored one.
    pub fn of_folder(weights: &Weights, name: &str) -> Option<RowOrder> {
        RowOrder::unless(RopePairs::Halves, weights, name)
    }

    fn unless(wanted: RopePairs, weights: &Weights, name: &str) -> Option<RowOrder> {
        let turned = ["attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias"];
        if weights.rope_pairs == wanted || !turned.iter().any(|turned| name.ends_with(turned)) {
            return None;
        }
        Config::read(weights)
            .ok()
            .filter(|config| config.architecture == "llama")
            .map(|config| RowOrder { dim: config.head_dim, interleave: wanted == RopePairs::Gguf })
    }

    /// Which stored row is row `row` of the file.
    pub fn source(self, row: usize) -> usize {
        let (head, within, half) = (row / self.dim, row % self.dim, self.dim / 2);
        let within = match self.interleave {
            true => within % 2 * half + within / 2,
            false => within % half * 2 + within / half,
        };
        head * self.dim + within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_interleaved() {
        let order = RowOrder { dim: 6, interleave: true };
        let rows: Vec<_> = (0..12).map(|row| order.source(row)).collect();
        assert_eq!(rows, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        let back = RowOrder { interleave: false, ..order };
        assert!((0..12).all(|row| back.source(order.source(row)) == row));
    }
}

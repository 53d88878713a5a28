//! Attention over the cache: softmax(scale · q kᵀ) v, one query row and head at a time.
//!
//! Order, the same for every batch and thread count: scores and their sum from the first visible position on, the
//! values added position by position, one division at the end.

use rayon::prelude::*;

use crate::backend::{AttentionShape, Hidden, Span};
use crate::cache::LayerCache;
use crate::error::Result;
use crate::math::{self, per_isa};
use crate::quant::le::F32;
use crate::quant::{Format, f16, f32};
use crate::simd::Isa;

/// `query`: rows at `at` × (heads · dim). The result has the same shape.
pub fn attention(
    isa: Isa,
    query: &Hidden,
    cache: &LayerCache,
    at: Span,
    shape: AttentionShape,
) -> Result<Hidden> {
    let dim = cache.shape().dim;
    let mut output = vec![0.0; query.values().len()];
    let heads = output.par_chunks_exact_mut(dim).zip(query.values().par_chunks_exact(dim)).enumerate();
    heads.try_for_each_init(Scratch::default, |scratch, (index, (out, query))| {
        let (row, head) = (index / shape.heads, index % shape.heads);
        one_head(isa, out, query, cache, at.start + row, head, shape, scratch)
    })?;
    Ok(Hidden::new(output, query.columns()))
}

/// Buffers of one thread.
#[derive(Default)]
struct Scratch {
    query: Vec<u8>,
    scores: Vec<f32>,
    value: Vec<f32>,
}

#[expect(clippy::too_many_arguments, reason = "one call site; a struct would only rename the arguments")]
fn one_head(
    isa: Isa,
    out: &mut [f32],
    query: &[f32],
    cache: &LayerCache,
    position: usize,
    head: usize,
    shape: AttentionShape,
    scratch: &mut Scratch,
) -> Result<()> {
    let kv_head = head / (shape.heads / cache.shape().heads);
    let visible = cache.first_visible(position)..position + 1;
    let keys = cache.keys(kv_head, visible.clone());
    let values = cache.values(kv_head, visible);

    scores(isa, query, keys, cache.format(), shape, scratch)?;
    let sink = shape.sinks.map(|sinks| sinks[head]);
    let max = scratch.scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    let mut sum = math::exp_scores(isa, &mut scratch.scores, max);
    if let Some(sink) = sink {
        sum += math::exp(sink - max);
    }
    for (weight, row) in scratch.scores.iter().zip(values.chunks_exact(cache.row_bytes())) {
        add_value(isa, out, *weight, row, cache.format(), &mut scratch.value)?;
    }
    let inverse = 1.0 / sum;
    out.iter_mut().for_each(|value| *value *= inverse);
    Ok(())
}

/// Scaled and capped scores of one query against key rows.
fn scores(
    isa: Isa,
    query: &[f32],
    keys: &[u8],
    format: &'static Format,
    shape: AttentionShape,
    scratch: &mut Scratch,
) -> Result<()> {
    let dot = format.dot.as_ref().expect("cache types are formats that are multiplied");
    let row_dot = format.row_dot(isa).expect("as above");
    scratch.query.resize(dot.input.bytes_for(query.len())?, 0);
    dot.input.quantize(isa, query, &mut scratch.query)?;
    scratch.scores.clear();
    let rows = keys.chunks_exact(format.bytes_for(query.len())?);
    scratch.scores.extend(rows.map(|key| row_dot.call(key, &scratch.query) * shape.scale));
    if let Some(cap) = shape.softcap {
        scratch.scores.iter_mut().for_each(|score| *score = cap * math::tanh(*score / cap));
    }
    Ok(())
}

/// out += weight · row.
fn add_value(
    isa: Isa,
    out: &mut [f32],
    weight: f32,
    row: &[u8],
    format: &'static Format,
    decoded: &mut Vec<f32>,
) -> Result<()> {
    if std::ptr::eq(format, &f16::FORMAT) {
        f16::add_scaled(isa, out, weight, bytemuck::cast_slice(row));
    } else if std::ptr::eq(format, &f32::FORMAT) {
        add_f32(isa, out, weight, bytemuck::cast_slice(row));
    } else {
        decoded.resize(out.len(), 0.0);
        format.decode(row, decoded)?;
        out.iter_mut().zip(decoded).for_each(|(out, value)| *out += weight * *value);
    }
    Ok(())
}

per_isa! {
    fn add_f32(out: &mut [f32], weight: f32, row: &[F32]) {
        for (out, value) in out.iter_mut().zip(row) {
            *out += weight * value.get();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{CacheType, KvCache, LayerShape};

    /// n keys with all scores 0, values 1 and a sink logit s: n / (n + e^s).
    #[test]
    fn sinks_take_part_in_the_softmax() {
        for (n, sink, expected) in [(4, 1.0, 0.59539), (1, 0.0, 0.5), (16, 2.0, 0.68408)] {
            let layer = LayerShape { heads: 1, dim: 8, window: None };
            for kind in [CacheType::F16, CacheType::F32] {
                let mut cache = KvCache::new(&[layer], kind, 64).expect("memory for a small cache");
                let cache = cache.layer(0);
                cache.append(Isa::Scalar, &vec![0.0; 8 * n], &vec![1.0; 8 * n]).expect("whole rows");
                let query = Hidden::new(vec![1.0; 8], 8);
                let shape = AttentionShape { heads: 1, scale: 1.0, softcap: None, sinks: Some(&[sink]) };
                for isa in Isa::available() {
                    let at = Span { start: n - 1, len: 1 };
                    let out = attention(isa, &query, cache, at, shape).expect("matching shapes");
                    for value in out.values() {
                        assert!((value - expected).abs() < 1e-5, "{isa:?} {kind:?} n={n} s={sink}: {value}");
                    }
                }
            }
        }
    }
}

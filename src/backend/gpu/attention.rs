//! Attention: new keys and values, and what queries find among them.

use std::sync::Arc;

use super::compose::Permutation;
use super::record::{Buffer, Work};
use super::{Gpu, WORKGROUP, kernels};
use crate::backend::{AttentionShape, Heads, Hidden, RmsNorm, Rotation, Span};
use crate::cache::{CacheType, LayerCache};
use crate::error::Result;

/// Keys and values of a layer: heads × capacity × dim each.
#[derive(Debug)]
struct DeviceCache {
    keys: Arc<Buffer>,
    values: Arc<Buffer>,
}

impl Gpu {
    fn cache(&self, cache: &LayerCache) -> Result<Arc<DeviceCache>> {
        let token = (cache.token_bytes() / 2) as u64;
        let (bytes, most) = (cache.capacity() as u64 * token, self.device.binding_bytes());
        if bytes > most {
            let message = format!("{bytes} bytes of keys in a layer, a binding holds {most}");
            return Err(self.error(format!("{message}: --ctx-size may be {}", most / token)));
        }
        cache.slot().get_or_make(|| Ok(DeviceCache { keys: Buffer::new(bytes), values: Buffer::new(bytes) }))
    }

    fn cache_flags(&self, cache: &LayerCache) -> Result<Vec<&'static str>> {
        match cache.kind() {
            kind if kind == CacheType::F16 => Ok(vec!["F16"]),
            kind if kind == CacheType::F32 => Ok(vec![]),
            kind => Err(self.error(format!("a cache of {kind} has no kernels yet: --kv f16 and f32 have"))),
        }
    }

    pub(super) fn append_rows(
        &self,
        cache: &mut LayerCache,
        rows: &mut Heads,
        norms: [Option<&RmsNorm>; 2],
        rotation: &Rotation,
    ) -> Result<()> {
        let mut flags = self.cache_flags(cache)?;
        let stored = self.cache(cache)?;
        let (query, key, value) =
            (self.place(&rows.query)?, self.place(&rows.key)?, self.place(&rows.value)?);
        let turns = self.place(&rotation.turns)?;
        let shape = cache.shape();
        flags.extend(rotation.interleaved.then_some("INTERLEAVED"));
        let mut bindings = vec![
            (1, query.buffer()),
            (2, turns.buffer()),
            (3, Arc::clone(&stored.keys)),
            (4, Arc::clone(&stored.values)),
        ];
        let mut eps = [0.0; 2];
        if let [Some(query), Some(key)] = norms {
            flags.push("NORMED");
            eps = [query.eps, key.eps];
            let both = query.weight.slot().get_or_make(|| {
                let both: Vec<f32> = query.weight.iter().chain(key.weight.iter()).copied().collect();
                self.device.upload(bytemuck::cast_slice(&both))
            })?;
            bindings.push((5, Arc::clone(&both)));
        } else if norms.iter().any(Option::is_some) {
            return Err(self.error("heads of queries or keys alone that are normalized"));
        }
        let heads = rows.query.columns() / shape.dim;
        let permutation = Permutation {
            quant: None,
            flags,
            consts: vec![
                ("WORKGROUP", WORKGROUP),
                ("DIM", shape.dim as u32),
                ("HEADS", heads as u32),
                ("KV_HEADS", shape.heads as u32),
                ("PAIRS", rotation.turns.columns() as u32 / 2),
                ("CAPACITY", cache.capacity() as u32),
            ],
        };
        let params = vec![
            query.offset as u32,
            key.offset as u32,
            value.offset as u32,
            query.stride as u32,
            cache.len() as u32,
            eps[0].to_bits(),
            eps[1].to_bits(),
        ];
        let groups = [(heads + 2 * shape.heads) as u32, rows.query.rows() as u32, 1];
        self.record(&kernels::APPEND, permutation, bindings, params, groups, Work::SMALL);
        cache.advance(rows.query.rows());
        Ok(())
    }

    pub(super) fn attend(
        &self,
        query: &Hidden,
        cache: &LayerCache,
        at: Span,
        shape: AttentionShape,
    ) -> Result<Hidden> {
        let (place, stored, kv) = (self.place(query)?, self.cache(cache)?, cache.shape());
        let out = self.rows(query.rows(), query.columns());
        let mut flags = self.cache_flags(cache)?;
        let mut bindings = vec![
            (1, place.buffer()),
            (2, Arc::clone(&stored.keys)),
            (3, Arc::clone(&stored.values)),
            (4, out.buffer()),
        ];
        if let Some(sinks) = shape.sinks {
            flags.push("SINKS");
            bindings.push((5, Arc::clone(&self.upload(bytemuck::cast_slice(sinks))?.buffer)));
        }
        let permutation = Permutation {
            quant: None,
            flags,
            consts: vec![
                ("WORKGROUP", WORKGROUP),
                ("DIM", kv.dim as u32),
                ("HEADS", shape.heads as u32),
                ("KV_HEADS", kv.heads as u32),
                ("CAPACITY", cache.capacity() as u32),
            ],
        };
        let params = vec![
            place.offset as u32,
            place.stride as u32,
            at.start as u32,
            kv.window.map_or(u32::MAX, |window| window as u32),
            shape.scale.to_bits(),
            shape.softcap.unwrap_or(0.0).to_bits(),
        ];
        let groups = [shape.heads as u32, query.rows() as u32, 1];
        let work = attention_work(cache, at, shape.heads);
        self.record(&kernels::ATTENTION, permutation, bindings, params, groups, work);
        Ok(Gpu::hidden(query.rows(), query.columns(), out))
    }
}

/// Keys and values are read once for all rows.
fn attention_work(cache: &LayerCache, at: Span, heads: usize) -> Work {
    let kv = cache.shape();
    let end = at.start + at.len;
    let visible = |position: usize| position + 1 - cache.first_visible(position);
    let pairs: usize = (at.start..end).map(visible).sum();
    let read = (end - cache.first_visible(at.start)) * cache.token_bytes();
    Work { bytes: read as u64, macs: (2 * pairs * heads * kv.dim) as u64 }
}

//! Attention: new keys and values, and what queries find among them.

use std::sync::Arc;

use super::cache::DeviceCache;
use super::compose::Permutation;
use super::record::Work;
use super::{ENOUGH_WORKGROUPS, Gpu, WORKGROUP, kernels};
use crate::backend::{AttentionShape, Heads, Hidden, RmsNorm, Rotation, Span};
use crate::cache::LayerCache;
use crate::error::Result;

impl Gpu {
    pub(super) fn append_rows(
        &self,
        cache: &mut LayerCache,
        rows: &mut Heads,
        norms: [Option<&RmsNorm>; 2],
        rotation: &Rotation,
    ) -> Result<()> {
        let (stored, mut permutation) = (self.cache(cache)?, DeviceCache::permutation(cache)?);
        let flags = &mut permutation.flags;
        flags.extend(DeviceCache::turn_flags(cache));
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
        bindings.extend(stored.tables());
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
        permutation.consts.extend([
            ("WORKGROUP", WORKGROUP),
            ("DIM", shape.dim as u32),
            ("HEADS", heads as u32),
            ("KV_HEADS", shape.heads as u32),
            ("PAIRS", rotation.turns.columns() as u32 / 2),
            ("CAPACITY", cache.capacity() as u32),
        ]);
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
        let plan = Plan::new(kv.dim, shape.heads, kv.heads, query.rows(), seen(at, kv.window));
        let mut permutation = DeviceCache::permutation(cache)?;
        let flags = &mut permutation.flags;
        flags.extend(DeviceCache::read_flags(cache));
        let turned = cache.value_store().turned;
        let sinks = match shape.sinks {
            Some(sinks) => Some((5, Arc::clone(&self.upload(bytemuck::cast_slice(sinks))?.buffer))),
            None => None,
        };
        let mut bindings =
            vec![(1, place.buffer()), (2, Arc::clone(&stored.keys)), (3, Arc::clone(&stored.values))];
        if cache.value_store().has_codebook() {
            bindings.extend(stored.tables());
        }
        let found = (plan.segments > 1 || turned).then(|| self.spares.take(plan.found_bytes()));
        match &found {
            Some(found) => {
                flags.push("SPLIT");
                bindings.push((4, Arc::clone(&found.buffer)));
            }
            None => {
                flags.extend(sinks.is_some().then_some("SINKS"));
                bindings.push((4, out.buffer()));
                bindings.extend(sinks.clone());
            }
        }
        permutation.consts.extend([
            ("WORKGROUP", plan.workgroup),
            ("DIM", kv.dim as u32),
            ("HEADS", shape.heads as u32),
            ("KV_HEADS", kv.heads as u32),
            ("CAPACITY", cache.capacity() as u32),
            ("QUERIES", plan.queries),
            ("KEYS", plan.keys),
        ]);
        let params = vec![
            place.offset as u32,
            place.stride as u32,
            at.start as u32,
            kv.window.map_or(u32::MAX, |window| window as u32),
            shape.scale.to_bits(),
            shape.softcap.unwrap_or(0.0).to_bits(),
            query.rows() as u32,
            plan.segment,
        ];
        let groups = [kv.heads as u32, plan.tiles, plan.segments];
        let work = attention_work(cache, at, shape.heads);
        self.record(&kernels::ATTENTION, permutation, bindings, params, groups, work);
        if let Some(found) = found {
            let flags = sinks.iter().map(|_| "SINKS").chain(turned.then_some("TURNED"));
            let consts =
                vec![("WORKGROUP", WORKGROUP), ("DIM", kv.dim as u32), ("HEADS", shape.heads as u32)];
            let permutation = Permutation { flags: flags.collect(), consts, ..Permutation::default() };
            let mut bindings = vec![(1, Arc::clone(&found.buffer)), (4, out.buffer())];
            bindings.extend(sinks);
            if turned {
                bindings.extend(stored.tables());
            }
            let groups = [shape.heads as u32, query.rows() as u32, 1];
            self.record(&kernels::COMBINE, permutation, bindings, vec![plan.segments], groups, Work::SMALL);
        }
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

/// Positions that some row sees, each row the last `window` of those up to its own.
fn seen(at: Span, window: Option<usize>) -> usize {
    let all = at.start + at.len;
    window.map_or(all, |window| all.min(window.saturating_add(at.len - 1)))
}

/// How queries and keys are shared among workgroups, see `attention.wgsl`.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub workgroup: u32,
    /// Of a workgroup.
    pub queries: u32,
    /// Workgroups that all queries of a head of keys need.
    pub tiles: u32,
    /// Of a tile.
    pub keys: u32,
    pub segments: u32,
    /// Keys of a segment.
    pub segment: u32,
    /// Numbers that all segments find: of each a sum of values and four more.
    found: usize,
}

impl Plan {
    /// `keys`: how many some row sees. Tiles of queries and of keys fill no more than half of 16 KiB each.
    pub fn new(dim: usize, heads: usize, kv_heads: usize, rows: usize, keys: usize) -> Plan {
        let below = |most: usize| 1 << most.max(1).ilog2();
        let all = rows * (heads / kv_heads);
        let queries = all.next_power_of_two().min(below(1024 / dim).min(8));
        let tile = below(2048 / dim).clamp(4, 32);
        let tiles = all.div_ceil(queries);
        let workgroups = kv_heads * tiles;
        // Worth a second dispatch where most of the device would wait for a few workgroups.
        let wanted = (keys / LEAST_SEGMENT).min(ENOUGH_WORKGROUPS as usize / workgroups).max(1);
        let segment = keys.div_ceil(wanted).next_multiple_of(tile);
        let segments = keys.div_ceil(segment);
        Plan {
            workgroup: WORKGROUP.max((dim / 4).next_power_of_two() as u32),
            queries: queries as u32,
            tiles: tiles as u32,
            keys: tile as u32,
            segments: segments as u32,
            segment: segment as u32,
            found: rows * heads * segments * (dim + 4),
        }
    }

    fn found_bytes(&self) -> u64 {
        4 * self.found as u64
    }
}

/// Keys of a segment below which another dispatch costs more than it saves.
const LEAST_SEGMENT: usize = 256;

//! Attention: new keys and values, and what queries find among them.

use std::ops::Range;
use std::sync::Arc;

use super::cache::{DeviceCache, Part};
use super::compose::Permutation;
use super::record::{Buffer, Lent, Work};
use super::{ENOUGH_WORKGROUPS, Gpu, Rows, WORKGROUP, kernels};
use crate::backend::{AttentionShape, Heads, Hidden, RmsNorm, Rotation, Span};
use crate::cache::{LayerCache, LayerShape, Store};
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
        let mut bindings = vec![(1, query.buffer()), (2, turns.buffer())];
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
            ("CAPACITY", stored.rows as u32),
        ]);
        let start = cache.len();
        cache.advance(rows.query.rows());
        for ([keys, values], positions) in stored.parts_of(start..cache.len()) {
            let mut bindings = bindings.clone();
            bindings.extend([(3, Arc::clone(keys)), (4, Arc::clone(values))]);
            let params = vec![
                query.offset as u32,
                key.offset as u32,
                value.offset as u32,
                query.stride as u32,
                start as u32,
                (positions.start - start) as u32,
                eps[0].to_bits(),
                eps[1].to_bits(),
            ];
            let groups = [(heads + 2 * shape.heads) as u32, positions.len() as u32, 1];
            self.record(&kernels::APPEND, permutation.clone(), bindings, params, groups, Work::SMALL);
        }
        Ok(())
    }

    pub(super) fn attend(
        &self,
        query: &Hidden,
        cache: &LayerCache,
        at: Span,
        shape: AttentionShape,
    ) -> Result<Hidden> {
        let (stored, kv) = (self.cache(cache)?, cache.shape());
        let keys = cache.first_visible(at.start)..at.start + at.len;
        let plan = Plan::new(cache, shape.heads, at.len, keys.len());
        let segments = plan.segments(&stored.parts_of(keys.clone()));
        let sinks = shape.sinks.map(|sinks| self.upload(bytemuck::cast_slice(sinks))).transpose()?;
        let pass = Pass {
            query: self.place(query)?,
            out: self.rows(query.rows(), query.columns()),
            cache,
            stored,
            shape,
            sinks,
            plan,
            split: segments > 1 || cache.value_store().turned,
        };
        // Of a row: what its segments find, and multiplications.
        let found = pass.found_bytes(1, segments);
        let macs = (2 * keys.len() * shape.heads * kv.dim).max(1) as u64;
        let most = rows_at_once(self.device.binding_bytes() / found, self.device.most_macs() / macs);
        for first in (0..at.len).step_by(most) {
            self.attend_rows(&pass, first..at.len.min(first + most), at.start)?;
        }
        Ok(Gpu::hidden(query.rows(), query.columns(), pass.out))
    }

    /// Records attention of `rows`, of which row 0 is at position `start`.
    fn attend_rows(&self, pass: &Pass, rows: Range<usize>, start: usize) -> Result<()> {
        let (cache, positions) = (pass.cache, start + rows.start..start + rows.end);
        let parts = pass.stored.parts_of(cache.first_visible(positions.start)..positions.end);
        let segments = pass.plan.segments(&parts);
        let found = pass.split.then(|| self.spares.take(pass.found_bytes(rows.len(), segments)));
        let target = found.as_ref().map_or(pass.out.buffer(), |found| Arc::clone(&found.buffer));
        let permutation = pass.permutation()?;
        let (tiles, kv) =
            (pass.plan.tiles(rows.len() * (pass.shape.heads / cache.shape().heads)), cache.shape());
        let mut segment = 0;
        for ([keys, values], visible) in &parts {
            let mut bindings = vec![
                (1, pass.query.buffer()),
                (2, Arc::clone(keys)),
                (3, Arc::clone(values)),
                (4, Arc::clone(&target)),
            ];
            bindings.extend(cache.value_store().has_codebook().then(|| pass.stored.tables()).flatten());
            bindings.extend(pass.sinks().filter(|_| !pass.split));
            let count = pass.plan.segments_of(visible);
            let params = vec![
                (pass.query.offset + rows.start * pass.query.stride) as u32,
                pass.query.stride as u32,
                positions.start as u32,
                kv.window.map_or(u32::MAX, |window| window as u32),
                pass.shape.scale.to_bits(),
                pass.shape.softcap.unwrap_or(0.0).to_bits(),
                rows.len() as u32,
                if pass.split { 0 } else { rows.start as u32 },
                visible.start as u32,
                visible.end as u32,
                pass.plan.segment,
                segment,
                segments,
            ];
            segment += count;
            let groups = [kv.heads as u32, tiles, count];
            let work = attention_work(cache, &positions, visible, pass.shape.heads);
            self.record(&kernels::ATTENTION, permutation.clone(), bindings, params, groups, work);
        }
        if let Some(found) = found {
            self.combine(pass, rows, segments, &found.buffer);
        }
        Ok(())
    }

    /// Records that what the segments of `rows` found is joined.
    fn combine(&self, pass: &Pass, rows: Range<usize>, segments: u32, found: &Arc<Buffer>) {
        let (dim, heads, turned) =
            (pass.cache.shape().dim, pass.shape.heads, pass.cache.value_store().turned);
        let flags = pass.sinks.iter().map(|_| "SINKS").chain(turned.then_some("TURNED"));
        let consts = vec![("WORKGROUP", WORKGROUP), ("DIM", dim as u32), ("HEADS", heads as u32)];
        let permutation = Permutation { flags: flags.collect(), consts, ..Permutation::default() };
        let mut bindings = vec![(1, Arc::clone(found)), (4, pass.out.buffer())];
        bindings.extend(pass.sinks());
        bindings.extend(turned.then(|| pass.stored.tables()).flatten());
        let groups = [heads as u32, rows.len() as u32, 1];
        let params = vec![segments, rows.start as u32];
        self.record(&kernels::COMBINE, permutation, bindings, params, groups, Work::SMALL);
    }
}

/// What attention of some rows works with.
struct Pass<'a> {
    query: Rows,
    out: Rows,
    cache: &'a LayerCache,
    stored: Arc<DeviceCache>,
    shape: AttentionShape<'a>,
    sinks: Option<Arc<Lent>>,
    plan: Plan,
    /// Whether what segments find is joined by `combine`.
    split: bool,
}

impl Pass<'_> {
    /// What is found by `segments` for `rows`: of each head a sum of values and four numbers more.
    fn found_bytes(&self, rows: usize, segments: u32) -> u64 {
        (4 * rows * self.shape.heads * (self.cache.shape().dim + 4)) as u64 * u64::from(segments)
    }

    fn sinks(&self) -> Option<(u32, Arc<Buffer>)> {
        Some((5, Arc::clone(&self.sinks.as_ref()?.buffer)))
    }

    fn permutation(&self) -> Result<Permutation> {
        let (kv, plan) = (self.cache.shape(), &self.plan);
        let mut permutation = DeviceCache::permutation(self.cache)?;
        permutation.flags.extend(DeviceCache::read_flags(self.cache));
        permutation.flags.extend(match (self.split, &self.sinks) {
            (true, _) => Some("SPLIT"),
            (false, Some(_)) => Some("SINKS"),
            (false, None) => None,
        });
        permutation.consts.extend([
            ("WORKGROUP", plan.workgroup),
            ("DIM", kv.dim as u32),
            ("HEADS", self.shape.heads as u32),
            ("KV_HEADS", kv.heads as u32),
            ("CAPACITY", self.stored.rows as u32),
            ("QUERIES", plan.queries),
            ("KEYS", plan.keys),
            ("LOADED", plan.loaded),
        ]);
        Ok(permutation)
    }
}

/// Rows of a dispatch: not more than `fit`; a multiple of 8, the largest that does not take `long` if there is one. Tiles
/// of queries divide 8 rows, so that the order of sums is the same however rows are cut.
fn rows_at_once(fit: u64, long: u64) -> usize {
    let most = fit.min(long.max(8)).clamp(1, 1 << 31);
    (if most < 8 { most } else { most / 8 * 8 }) as usize
}

/// Keys and values of the positions `keys` are read once for the rows at `positions`.
fn attention_work(cache: &LayerCache, positions: &Range<usize>, keys: &Range<usize>, heads: usize) -> Work {
    let visible = |position: usize| {
        (position + 1).min(keys.end).saturating_sub(cache.first_visible(position).max(keys.start))
    };
    let pairs: usize = positions.clone().map(visible).sum();
    let bytes = (keys.len() * cache.token_bytes()) as u64;
    Work { bytes, macs: (2 * pairs * heads * cache.shape().dim) as u64 }
}

/// How queries and keys are shared among workgroups, see `attention.wgsl`.
#[derive(Debug, PartialEq)]
struct Plan {
    workgroup: u32,
    /// Of a workgroup.
    queries: u32,
    /// Of a tile.
    keys: u32,
    /// Keys of a tile whose values are in the workgroup's memory at once.
    loaded: u32,
    /// Keys of a segment.
    segment: u32,
}

impl Plan {
    /// `keys`: how many some row sees. Tiles fill no more than 16 KiB: of queries a quarter, of keys or values half, or what
    /// the scores of a tile leave that has a key for each invocation.
    fn new(cache: &LayerCache, heads: usize, rows: usize, keys: usize) -> Plan {
        let below = |most: usize| 1 << most.max(1).ilog2();
        let LayerShape { dim, heads: kv_heads, .. } = cache.shape();
        let all = rows * (heads / kv_heads);
        let queries = all.next_power_of_two().min(below(1024 / dim).min(8));
        let workgroup = WORKGROUP.max((dim / 4).next_power_of_two() as u32);
        let packed = |store: Store| store.format.block_len > 1;
        let dense_tile = below(2048 / dim).clamp(4, 32);
        let tile = if packed(cache.key_store()) { workgroup as usize } else { dense_tile };
        // Queries, scores and weights, and what is kept of each query.
        let taken = 4 * queries * dim + 8 * queries * (tile + 1) + 640;
        let room = below((WORKGROUP_BYTES - taken) / (4 * dim)).min(dense_tile);
        let loaded = if packed(cache.value_store()) { room } else { tile };
        let workgroups = kv_heads * all.div_ceil(queries);
        // Worth a second dispatch where most of the device would wait for a few workgroups.
        let wanted = (keys / LEAST_SEGMENT).min(ENOUGH_WORKGROUPS as usize / workgroups).max(1);
        Plan {
            workgroup,
            queries: queries as u32,
            keys: tile as u32,
            loaded: loaded as u32,
            segment: keys.div_ceil(wanted).next_multiple_of(tile) as u32,
        }
    }

    /// Workgroups that `queries` of a head of keys need.
    fn tiles(&self, queries: usize) -> u32 {
        (queries as u32).div_ceil(self.queries)
    }

    /// Of the keys of a part.
    fn segments_of(&self, keys: &Range<usize>) -> u32 {
        (keys.len() as u32).div_ceil(self.segment)
    }

    /// Of the keys of all parts.
    fn segments(&self, parts: &[Part]) -> u32 {
        parts.iter().map(|(_, keys)| self.segments_of(keys)).sum()
    }
}

/// Of a workgroup on every device.
const WORKGROUP_BYTES: usize = 16 << 10;

/// Keys of a segment below which another dispatch costs more than it saves.
const LEAST_SEGMENT: usize = 256;

//! Keys and values on the device: rows in the bytes that the CPU would store, each from a whole word on,
//! in as many parts as a layer needs bindings.

use std::ops::Range;
use std::sync::Arc;

use super::Gpu;
use super::compose::Permutation;
use super::record::Buffer;
use crate::cache::{LayerCache, LayerState, Store};
use crate::error::Result;
use crate::quant::turbo;

/// Keys and values of a layer, in parts that a binding holds: position p is in row p % `rows` of part p / `rows`, and
/// behind the last part comes the first one again.
#[derive(Debug)]
pub(super) struct DeviceCache {
    /// Keys and values: heads × `rows` each.
    pub parts: Vec<[Arc<Buffer>; 2]>,
    /// Of a head in a part.
    pub rows: usize,
    /// Signs and codebooks, where a store needs them.
    tables: Option<Arc<Buffer>>,
}

/// Keys and values of a part, and positions that it holds.
pub(super) type Part<'a> = (&'a [Arc<Buffer>; 2], Range<usize>);

/// Shaders read a word behind the last one.
const PADDING: u64 = 8;

/// Words of a row of one head.
pub(super) fn row_words(store: Store, dim: usize) -> Result<usize> {
    Ok(store.row_bytes(dim)?.div_ceil(4))
}

/// `positions` cut where another part of `rows` rows begins.
pub(super) fn cut(positions: Range<usize>, rows: usize) -> impl Iterator<Item = Range<usize>> {
    let mut rest = positions;
    std::iter::from_fn(move || {
        let end = (rest.start / rows + 1).saturating_mul(rows).min(rest.end);
        let piece = rest.start..end;
        rest.start = end;
        (!piece.is_empty()).then_some(piece)
    })
}

impl Gpu {
    /// What the device holds of a layer.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if a format has no kernels or a binding can't hold the rows of a single token.
    pub(super) fn cache(&self, cache: &LayerCache) -> Result<Arc<DeviceCache>> {
        cache.slot().get_or_make(|| {
            let stores = [cache.key_store(), cache.value_store()];
            let tables = stores.iter().any(|store| store.turned).then(|| self.device.upload(turbo::tables()));
            let [keys, values] = [self.token_bytes(cache, stores[0])?, self.token_bytes(cache, stores[1])?];
            let most = (self.device.binding_bytes() - PADDING) / keys.max(values);
            let count = cache.capacity().div_ceil(most as usize).max(1);
            let rows = cache.capacity().div_ceil(count).max(1);
            let buffer = |token: u64| Buffer::new(rows as u64 * token + PADDING);
            let parts = (0..count).map(|_| [buffer(keys), buffer(values)]).collect();
            Ok(DeviceCache { parts, rows, tables: tables.transpose()? })
        })
    }

    /// Of the keys or values of all heads.
    fn token_bytes(&self, cache: &LayerCache, store: Store) -> Result<u64> {
        let (name, shape) = (store.format.name, cache.shape());
        if store.format.shader.is_none() || store.format.encode_shader.is_none() {
            return Err(self.error(format!("a cache of {name} has no kernels: choose another --kv")));
        }
        let bytes = 4 * (shape.heads * row_words(store, shape.dim)?) as u64;
        let most = self.device.binding_bytes();
        if bytes + PADDING > most {
            return Err(self.error(format!("{bytes} bytes of a token in {name}, a binding holds {most}")));
        }
        Ok(bytes)
    }
}

impl Gpu {
    /// What the device holds of a layer, in the bytes that the CPU would store.
    ///
    /// # Errors
    /// As [`Gpu::cache`], and [`Error::Gpu`](crate::Error::Gpu) if the device fails.
    pub(super) fn stored_rows(&self, cache: &LayerCache) -> Result<LayerState<Vec<u8>>> {
        let (device, positions) = (self.cache(cache)?, cache.positions());
        self.flush()?;
        let read = |side: usize, store: Store| {
            let layout = Layout::new(cache, &device, store)?;
            let mut rows = Vec::new();
            for (part, run) in layout.runs(positions.clone()) {
                let buffer = &device.parts[part][side];
                let stored = self.device.read(buffer, run.start as u64, run.len() as u64)?;
                stored.chunks_exact(layout.stride).for_each(|row| rows.extend(&row[..layout.row_bytes]));
            }
            Ok(rows)
        };
        let (keys, values) = (read(0, cache.key_store())?, read(1, cache.value_store())?);
        Ok(LayerState { first: positions.start, len: positions.end, keys, values })
    }

    /// Lets the device hold `state`, which is of a layer with the same shape and kind.
    ///
    /// # Errors
    /// As [`Gpu::stored_rows`]; [`Error::Numeric`](crate::Error::Numeric) if it can't be from such a layer.
    pub(super) fn store_rows(&self, cache: &mut LayerCache, state: &LayerState<&[u8]>) -> Result<()> {
        let device = self.cache(cache)?;
        cache.restore_positions(state)?;
        // What was recorded may still name the rows that are there.
        self.flush()?;
        let write = |side: usize, store: Store, rows: &[u8]| {
            let layout = Layout::new(cache, &device, store)?;
            let given = state.len - state.first;
            let dropped = given - cache.positions().len();
            let heads = rows.chunks_exact((given * layout.row_bytes).max(1));
            // Of a window more rows may be given than are kept here.
            let mut rows = heads.flat_map(|head| head.chunks_exact(layout.row_bytes).skip(dropped));
            for (part, run) in layout.runs(cache.positions()) {
                let mut stored = vec![0; run.end - run.start];
                for (place, row) in stored.chunks_exact_mut(layout.stride).zip(&mut rows) {
                    place[..layout.row_bytes].copy_from_slice(row);
                }
                self.device.write(&device.parts[part][side], run.start as u64, &stored)?;
            }
            Ok(())
        };
        write(0, cache.key_store(), state.keys)?;
        write(1, cache.value_store(), state.values)
    }
}

/// Where rows of keys or values are.
struct Layout {
    heads: usize,
    parts: usize,
    /// Of a head in a part.
    rows: usize,
    row_bytes: usize,
    /// Bytes from a row to the next.
    stride: usize,
}

impl Layout {
    fn new(cache: &LayerCache, device: &DeviceCache, store: Store) -> Result<Layout> {
        let shape = cache.shape();
        let row_bytes = store.row_bytes(shape.dim)?;
        let stride = 4 * row_words(store, shape.dim)?;
        Ok(Layout { heads: shape.heads, parts: device.parts.len(), rows: device.rows, row_bytes, stride })
    }

    /// The rows of `positions`, head by head, in pieces that lie together: the part and the bytes in it.
    fn runs(&self, positions: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let &Layout { parts, rows, stride, .. } = self;
        (0..self.heads).flat_map(move |head| {
            cut(positions.clone(), rows).map(move |piece| {
                let first = head * rows + piece.start % rows;
                (piece.start / rows % parts, first * stride..(first + piece.len()) * stride)
            })
        })
    }
}

impl DeviceCache {
    /// What a shader that reads or writes rows is composed with: the formats, and sizes for their files.
    pub fn permutation(cache: &LayerCache) -> Result<Permutation> {
        let (keys, values, dim) = (cache.key_store(), cache.value_store(), cache.shape().dim);
        let consts = vec![
            ("keys_BYTES", keys.format.block_bytes as u32),
            ("keys_WORDS", row_words(keys, dim)? as u32),
            ("values_BYTES", values.format.block_bytes as u32),
            ("values_WORDS", row_words(values, dim)? as u32),
        ];
        let formats = Some([keys.format.name, values.format.name]);
        Ok(Permutation { cache: formats, consts, ..Permutation::default() })
    }

    /// How `attention` reads rows: dense ones in fours, where halves need no flag, packed ones in groups of 32.
    pub fn read_flags(cache: &LayerCache) -> impl Iterator<Item = &'static str> {
        let flags = |store: Store, [f32, bf16, packed]: [&'static str; 3]| match store.format.name {
            "f16" => None,
            "f32" => Some(f32),
            "bf16" => Some(bf16),
            _ => Some(packed),
        };
        let keys = flags(cache.key_store(), ["KEYS_F32", "KEYS_BF16", "KEYS_PACKED"]);
        let values = flags(cache.value_store(), ["VALUES_F32", "VALUES_BF16", "VALUES_PACKED"]);
        keys.into_iter().chain(values)
    }

    /// What `append` turns.
    pub fn turn_flags(cache: &LayerCache) -> impl Iterator<Item = &'static str> {
        let (keys, values) = (cache.key_store().turned, cache.value_store().turned);
        let flags = [(keys, "KEYS_TURNED"), (values, "VALUES_TURNED"), (keys || values, "TURNED")];
        flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag)
    }

    /// The parts that hold `positions`, each with those of them that it has; where there is one part only, all.
    pub fn parts_of(&self, positions: Range<usize>) -> Vec<Part<'_>> {
        let count = self.parts.len();
        if count == 1 {
            return vec![(&self.parts[0], positions)];
        }
        let part = |piece: Range<usize>| (&self.parts[piece.start / self.rows % count], piece);
        cut(positions, self.rows).map(part).collect()
    }

    /// The part that holds `position`.
    pub fn part(&self, position: usize) -> &[Arc<Buffer>; 2] {
        &self.parts[position / self.rows % self.parts.len()]
    }

    /// Of the signs and codebooks.
    pub fn tables(&self) -> Option<(u32, Arc<Buffer>)> {
        Some((7, Arc::clone(self.tables.as_ref()?)))
    }
}

//! Keys and values on the device: rows in the bytes that the CPU would store, each from a whole word on.

use std::ops::Range;
use std::sync::Arc;

use super::Gpu;
use super::compose::Permutation;
use super::record::Buffer;
use crate::cache::{LayerCache, LayerState, Store};
use crate::error::Result;
use crate::quant::turbo;

/// Keys and values of a layer: heads × capacity rows each.
#[derive(Debug)]
pub(super) struct DeviceCache {
    pub keys: Arc<Buffer>,
    pub values: Arc<Buffer>,
    /// Signs and codebooks, where a store needs them.
    tables: Option<Arc<Buffer>>,
}

/// Shaders read a word behind the last one.
const PADDING: u64 = 8;

/// Words of a row of one head.
fn row_words(store: Store, dim: usize) -> Result<usize> {
    Ok(store.row_bytes(dim)?.div_ceil(4))
}

impl Gpu {
    /// What the device holds of a layer.
    ///
    /// # Errors
    /// [`Error::Gpu`](crate::Error::Gpu) if a format has no kernels or a binding can't hold that many rows.
    pub(super) fn cache(&self, cache: &LayerCache) -> Result<Arc<DeviceCache>> {
        let shape = cache.shape();
        let buffer = |store: Store, what: &str| {
            if store.format.shader.is_none() || store.format.encode_shader.is_none() {
                return Err(self
                    .error(format!("a cache of {} has no kernels: choose another --kv", store.format.name)));
            }
            let token = 4 * (shape.heads * row_words(store, shape.dim)?) as u64;
            let (bytes, most) = (cache.capacity() as u64 * token + PADDING, self.device.binding_bytes());
            if bytes > most {
                let message = format!("{bytes} bytes of {what} in a layer, a binding holds {most}");
                return Err(self.error(format!("{message}: --ctx-size may be {}", (most - PADDING) / token)));
            }
            Ok(Buffer::new(bytes))
        };
        cache.slot().get_or_make(|| {
            let stores = [cache.key_store(), cache.value_store()];
            let tables = stores.iter().any(|store| store.turned).then(|| self.device.upload(turbo::tables()));
            let [keys, values] = stores;
            Ok(DeviceCache {
                keys: buffer(keys, "keys")?,
                values: buffer(values, "values")?,
                tables: tables.transpose()?,
            })
        })
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
        let read = |buffer: &Buffer, store: Store| {
            let layout = Layout::new(cache, store)?;
            let mut rows = Vec::new();
            for run in layout.runs(positions.clone()) {
                let stored = self.device.read(buffer, run.start as u64, run.len() as u64)?;
                stored.chunks_exact(layout.stride).for_each(|row| rows.extend(&row[..layout.row_bytes]));
            }
            Ok(rows)
        };
        let keys = read(&device.keys, cache.key_store())?;
        let values = read(&device.values, cache.value_store())?;
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
        let write = |buffer: &Arc<Buffer>, store: Store, rows: &[u8]| {
            let layout = Layout::new(cache, store)?;
            let given = state.len - state.first;
            let dropped = given - cache.positions().len();
            let heads = rows.chunks_exact((given * layout.row_bytes).max(1));
            // Of a window more rows may be given than are kept here.
            let mut rows = heads.flat_map(|head| head.chunks_exact(layout.row_bytes).skip(dropped));
            for run in layout.runs(cache.positions()) {
                let mut stored = vec![0; run.end - run.start];
                for (place, row) in stored.chunks_exact_mut(layout.stride).zip(&mut rows) {
                    place[..layout.row_bytes].copy_from_slice(row);
                }
                self.device.write(buffer, run.start as u64, &stored)?;
            }
            Ok(())
        };
        write(&device.keys, cache.key_store(), state.keys)?;
        write(&device.values, cache.value_store(), state.values)
    }
}

/// Where rows of keys or values are.
struct Layout {
    heads: usize,
    capacity: usize,
    row_bytes: usize,
    /// Bytes from a row to the next.
    stride: usize,
}

impl Layout {
    fn new(cache: &LayerCache, store: Store) -> Result<Layout> {
        let shape = cache.shape();
        let row_bytes = store.row_bytes(shape.dim)?;
        let stride = 4 * row_words(store, shape.dim)?;
        Ok(Layout { heads: shape.heads, capacity: cache.capacity(), row_bytes, stride })
    }

    /// The bytes of the rows of `positions`, head by head, each in one piece or, where the end is reached, in two.
    fn runs(&self, positions: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let &Layout { capacity, stride, .. } = self;
        let begin = positions.start % capacity.max(1);
        let end = begin + positions.len();
        let pieces = [begin..end.min(capacity), 0..end.saturating_sub(capacity)];
        (0..self.heads).flat_map(move |head| {
            let first = head * capacity;
            let bytes = move |rows: Range<usize>| (first + rows.start) * stride..(first + rows.end) * stride;
            pieces.clone().into_iter().filter(|rows| !rows.is_empty()).map(bytes)
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

    /// Of the signs and codebooks.
    pub fn tables(&self) -> Option<(u32, Arc<Buffer>)> {
        Some((7, Arc::clone(self.tables.as_ref()?)))
    }
}

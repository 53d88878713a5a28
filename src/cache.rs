//! The key/value cache: what attention reads. One [`LayerCache`] a layer, rows stored in any [`Format`] that can
//! encode and be multiplied, full or limited to a sliding window.

use crate::error::{Error, Result};
use crate::quant::{Format, f16, f32};
use crate::simd::Isa;
use crate::tensor::Slot;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheType {
    /// IEEE halves: half the memory, no measurable loss.
    #[default]
    F16,
    /// Full floats: the reference.
    F32,
}

impl CacheType {
    /// The format of a stored row.
    pub fn format(self) -> &'static Format {
        match self {
            CacheType::F16 => &f16::FORMAT,
            CacheType::F32 => &f32::FORMAT,
        }
    }
}

/// What one layer keeps, fixed when the model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Key/value heads.
    pub heads: usize,
    /// Elements of a key or value row of one head.
    pub dim: usize,
    /// Tokens that a query sees, itself included; `None` for all.
    pub window: Option<usize>,
}

/// Keys and values of every layer for one sequence of tokens.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    context: usize,
}

impl KvCache {
    /// An empty cache for `context` tokens.
    ///
    /// # Errors
    /// [`Error::Option`] if the memory can't be had.
    pub fn new(layers: &[LayerShape], kind: CacheType, context: usize) -> Result<Self> {
        let layers =
            layers.iter().map(|&shape| LayerCache::new(shape, kind, context)).collect::<Result<_>>()?;
        Ok(KvCache { layers, context })
    }

    /// Tokens stored.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.len)
    }

    /// Whether no token is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens that fit.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Bytes that a full cache takes.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    /// Layer `index`.
    pub fn layer(&mut self, index: usize) -> &mut LayerCache {
        &mut self.layers[index]
    }

    /// Forgets all but at most the first `tokens` and returns how many are left: `tokens` or fewer. A window that has
    /// slid on cannot go back, and then everything is forgotten.
    pub fn truncate(&mut self, tokens: usize) -> usize {
        let tokens = tokens.min(self.len());
        let kept = if self.layers.iter().all(|layer| layer.can_truncate(tokens)) { tokens } else { 0 };
        for layer in &mut self.layers {
            layer.truncate(kept);
        }
        kept
    }
}

/// Keys and values of one layer, a contiguous run of rows per head.
#[derive(Debug)]
pub struct LayerCache {
    shape: LayerShape,
    /// Rows that fit; of a window fewer than tokens.
    capacity: usize,
    format: &'static Format,
    row_bytes: usize,
    /// Position of the first row kept; above zero only after a window has slid.
    first: usize,
    /// Tokens seen; rows kept are `first..len`.
    len: usize,
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    /// Where a device keeps rows, if they are not here: position p in row p % capacity.
    slot: Slot,
}

/// Rows beyond the window that are kept before the oldest are dropped: dropping moves the rest, so it is done
/// seldom, and a chat can step back this far without computing its past again.
const WINDOW_SLACK: usize = 512;

impl LayerCache {
    fn new(shape: LayerShape, kind: CacheType, context: usize) -> Result<Self> {
        let format = kind.format();
        let row_bytes = format.bytes_for(shape.dim)?;
        let rows = shape.window.map_or(context, |window| context.min(window + 2 * WINDOW_SLACK));
        let allocate = || -> Result<Vec<Vec<u8>>> {
            (0..shape.heads)
                .map(|_| {
                    let mut rows_of_head = Vec::new();
                    rows_of_head.try_reserve_exact(rows.saturating_mul(row_bytes)).map_err(|_| {
                        Error::option("--ctx-size", format!("no memory for the cache of {context} tokens"))
                    })?;
                    Ok(rows_of_head)
                })
                .collect()
        };
        Ok(LayerCache {
            shape,
            capacity: rows,
            format,
            row_bytes,
            first: 0,
            len: 0,
            keys: allocate()?,
            values: allocate()?,
            slot: Slot::default(),
        })
    }

    /// Bytes that it takes when it is full.
    pub fn bytes(&self) -> u64 {
        2 * (self.capacity * self.row_bytes * self.shape.heads) as u64
    }

    /// Rows that a device has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where a device keeps rows.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Positions that were appended.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Counts `tokens` that a device has appended, over the oldest ones where they don't fit.
    pub fn advance(&mut self, tokens: usize) {
        self.len += tokens;
        self.first = self.first.max(self.len.saturating_sub(self.capacity));
    }

    /// Heads, width and window.
    pub fn shape(&self) -> LayerShape {
        self.shape
    }

    /// How rows are stored.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Bytes of one row of one head.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Appends rows of keys and values, each tokens × (heads · dim).
    ///
    /// # Errors
    /// [`Error::Format`] if the lengths are no whole rows.
    pub fn append(&mut self, isa: Isa, keys: &[f32], values: &[f32]) -> Result<()> {
        let LayerShape { heads, dim, .. } = self.shape;
        self.slide();
        for (store, rows) in [(&mut self.keys, keys), (&mut self.values, values)] {
            for row in rows.chunks_exact(heads * dim) {
                for (head, values) in row.chunks_exact(dim).enumerate() {
                    let store = &mut store[head];
                    let at = store.len();
                    store.resize(at + self.row_bytes, 0);
                    self.format.quantize(isa, values, &mut store[at..])?;
                }
            }
        }
        self.len += keys.len() / (heads * dim);
        Ok(())
    }

    /// Drops rows that no later query sees, once there are enough of them.
    fn slide(&mut self) {
        let Some(window) = self.shape.window else { return };
        let needed_from = self.len.saturating_sub(window + WINDOW_SLACK);
        if needed_from >= self.first + WINDOW_SLACK {
            let bytes = (needed_from - self.first) * self.row_bytes;
            for rows in self.keys.iter_mut().chain(&mut self.values) {
                rows.drain(..bytes);
            }
            self.first = needed_from;
        }
    }

    /// Whether the rows that a query at position `tokens` sees are still there.
    fn can_truncate(&self, tokens: usize) -> bool {
        match self.shape.window {
            Some(window) => (tokens + 1).saturating_sub(window) >= self.first,
            None => true,
        }
    }

    fn truncate(&mut self, tokens: usize) {
        if tokens < self.first {
            self.first = 0;
        }
        let bytes = tokens.saturating_sub(self.first) * self.row_bytes;
        for rows in self.keys.iter_mut().chain(&mut self.values) {
            rows.truncate(bytes);
        }
        self.len = tokens;
    }

    /// The first position that the query at `position` sees.
    pub fn first_visible(&self, position: usize) -> usize {
        self.shape.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// The stored key rows of `head` for `positions`.
    pub fn keys(&self, head: usize, positions: std::ops::Range<usize>) -> &[u8] {
        &self.keys[head][self.byte_range(positions)]
    }

    /// The stored value rows of `head` for `positions`.
    pub fn values(&self, head: usize, positions: std::ops::Range<usize>) -> &[u8] {
        &self.values[head][self.byte_range(positions)]
    }

    fn byte_range(&self, positions: std::ops::Range<usize>) -> std::ops::Range<usize> {
        (positions.start - self.first) * self.row_bytes..(positions.end - self.first) * self.row_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(position: usize) -> Vec<f32> {
        vec![position as f32; 4]
    }

    fn filled(window: Option<usize>, tokens: usize) -> KvCache {
        let shape = LayerShape { heads: 2, dim: 2, window };
        let mut cache = KvCache::new(&[shape], CacheType::F32, 8192).expect("memory for a small cache");
        for position in 0..tokens {
            cache.layer(0).append(Isa::Scalar, &row(position), &row(position)).expect("whole rows");
        }
        cache
    }

    fn visible(cache: &mut KvCache, position: usize) -> Vec<f32> {
        let layer = cache.layer(0);
        let bytes = layer.keys(1, layer.first_visible(position)..position + 1).to_vec();
        bytes.chunks_exact(8).map(|row| f32::from_le_bytes([row[0], row[1], row[2], row[3]])).collect()
    }

    #[test]
    fn a_window_keeps_what_its_queries_see() {
        let mut cache = filled(Some(3), 5000);
        assert_eq!(visible(&mut cache, 4999), [4997.0, 4998.0, 4999.0]);
        assert!(cache.layer(0).keys[0].len() <= (3 + 2 * WINDOW_SLACK) * 8);
    }

    #[test]
    fn truncating_steps_back_or_starts_over() {
        let mut cache = filled(Some(3), 5000);
        assert_eq!(cache.truncate(4900), 4900);
        assert_eq!(cache.len(), 4900);
        cache.layer(0).append(Isa::Scalar, &row(7), &row(7)).expect("whole rows");
        assert_eq!(visible(&mut cache, 4900), [4898.0, 4899.0, 7.0]);
        assert_eq!(cache.truncate(100), 0);
        assert!(cache.is_empty());
        let mut full = filled(None, 100);
        assert_eq!(full.truncate(40), 40);
        assert_eq!(visible(&mut full, 39).len(), 40);
    }
}

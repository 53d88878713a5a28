//! The key/value cache: what attention reads. One [`LayerCache`] a layer, rows stored as a row of [`KINDS`] says, full
//! or limited to a sliding window.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::simd::Isa;
use crate::tensor::Slot;
use rows::Rows;

mod kind;
mod rows;
#[cfg(test)]
mod tests;

pub use kind::{CacheType, KINDS, Kind, Store};

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

impl LayerShape {
    /// What the layer stores rows as if the model's cache is of `kind`.
    pub fn kind(self, kind: CacheType) -> CacheType {
        if self.window.is_some() { kind.of_window() } else { kind }
    }

    /// Bytes of the keys and values of one token.
    ///
    /// # Errors
    /// [`Error::Option`] for heads that can't be stored so.
    pub fn token_bytes(self, kind: CacheType) -> Result<usize> {
        let [keys, values] = self.kind(kind).stores();
        Ok(self.heads * (keys.row_bytes(self.dim)? + values.row_bytes(self.dim)?))
    }

    /// Tokens that are kept of a context of `context`.
    pub fn capacity(self, context: usize) -> usize {
        self.window.map_or(context, |window| context.min(window + 2 * WINDOW_SLACK))
    }

    /// Bytes that a context of `context` takes.
    ///
    /// # Errors
    /// As [`LayerShape::token_bytes`].
    pub fn bytes(self, kind: CacheType, context: usize) -> Result<u64> {
        Ok(self.token_bytes(kind)? as u64 * self.capacity(context) as u64)
    }
}

/// Keys and values of every layer for one sequence of tokens.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    kind: CacheType,
    context: usize,
}

impl KvCache {
    /// An empty cache for `context` tokens.
    ///
    /// # Errors
    /// [`Error::Option`] if the memory can't be had or a layer's heads can't be stored so.
    pub fn new(layers: &[LayerShape], kind: CacheType, context: usize) -> Result<Self> {
        let layers =
            layers.iter().map(|&shape| LayerCache::new(shape, kind, context)).collect::<Result<_>>()?;
        Ok(KvCache { layers, kind, context })
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

    /// How rows of layers without a window are stored.
    pub fn kind(&self) -> CacheType {
        self.kind
    }

    /// Layers that are stored otherwise than [`KvCache::kind`], because they have a window.
    pub fn dense_layers(&self) -> usize {
        self.layers.iter().filter(|layer| layer.kind != self.kind).count()
    }

    /// Bytes that a full cache takes.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    /// Bytes that one more token takes in layers without a window.
    pub fn token_bytes(&self) -> u64 {
        let full = self.layers.iter().filter(|layer| layer.shape.window.is_none());
        full.map(|layer| layer.token_bytes() as u64).sum()
    }

    /// Layer `index`.
    pub fn layer(&mut self, index: usize) -> &mut LayerCache {
        &mut self.layers[index]
    }

    /// All layers.
    pub fn layers(&self) -> &[LayerCache] {
        &self.layers
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

    /// What is stored, of each layer what `stored` gives: a device may hold it.
    ///
    /// # Errors
    /// Those of `stored`.
    pub fn snapshot(
        &self,
        stored: impl Fn(usize, &LayerCache) -> Result<LayerState<Vec<u8>>>,
    ) -> Result<Snapshot> {
        let layers = self.layers.iter().enumerate().map(|(index, layer)| stored(index, layer));
        Ok(Snapshot { kind: self.kind, layers: layers.collect::<Result<_>>()? })
    }

    /// Replaces everything by `snapshot`, of this cache or one with the same layers; it is stored as it was then, by
    /// `store`.
    ///
    /// # Errors
    /// As [`KvCache::new`] and `store`; then the cache is empty.
    pub fn restore(
        &mut self,
        isa: Isa,
        snapshot: &Snapshot,
        store: impl Fn(usize, &mut LayerCache, &LayerState<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        self.truncate(0);
        if snapshot.layers.len() != self.layers.len() {
            let message = format!("{} layers in a cache of {}", snapshot.layers.len(), self.layers.len());
            return Err(Error::Numeric(message));
        }
        self.convert(snapshot.kind, |_, layer| layer.convert(isa, snapshot.kind))?;
        for (index, (layer, state)) in self.layers.iter_mut().zip(&snapshot.layers).enumerate() {
            let LayerState { first, len, ref keys, ref values } = *state;
            if let Err(error) = store(index, layer, &LayerState { first, len, keys, values }) {
                self.truncate(0);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stores what is here as `kind` from now on, layer by layer by `convert`, so that the old rows of one layer only are in
    /// memory beside the new ones: a device may hold them. Tokens that follow are stored so too.
    ///
    /// # Errors
    /// Those of `convert`; layers before the one that failed are converted, and all are whole.
    pub fn convert(
        &mut self,
        kind: CacheType,
        convert: impl Fn(usize, &mut LayerCache) -> Result<()>,
    ) -> Result<()> {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            convert(index, layer)?;
        }
        self.kind = kind;
        Ok(())
    }
}

/// What one layer holds, byte for byte: what a snapshot or a file keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerState<B> {
    /// Position of the first row.
    pub first: usize,
    /// Position after the last row.
    pub len: usize,
    /// Rows of the keys, one head after the other.
    pub keys: B,
    /// Rows of the values.
    pub values: B,
}

/// What a whole cache holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    kind: CacheType,
    layers: Vec<LayerState<Vec<u8>>>,
}

/// Keys and values of one layer, a contiguous run of rows per head.
#[derive(Debug)]
pub struct LayerCache {
    shape: LayerShape,
    kind: CacheType,
    /// Rows that fit; of a window fewer than tokens.
    capacity: usize,
    /// Position of the first row kept; above zero only after a window has slid.
    first: usize,
    /// Tokens seen; rows kept are `first..len`.
    len: usize,
    keys: Rows,
    values: Rows,
    /// Where a device keeps rows, if they are not here: position p in row p % capacity.
    slot: Slot,
}

/// Rows beyond the window that are kept before the oldest are dropped: dropping moves the rest, so it is done
/// seldom, and a chat can step back this far without computing its past again.
const WINDOW_SLACK: usize = 512;

impl LayerCache {
    pub(crate) fn new(shape: LayerShape, kind: CacheType, context: usize) -> Result<Self> {
        let (kind, capacity) = (shape.kind(kind), shape.capacity(context));
        let [keys, values] = kind.stores();
        Ok(LayerCache {
            shape,
            kind,
            capacity,
            first: 0,
            len: 0,
            keys: Rows::new(keys, shape, capacity)?,
            values: Rows::new(values, shape, capacity)?,
            slot: Slot::default(),
        })
    }

    /// Bytes of one token.
    pub fn token_bytes(&self) -> usize {
        self.shape.heads * (self.keys.row_bytes() + self.values.row_bytes())
    }

    /// Bytes that it takes when it is full.
    pub fn bytes(&self) -> u64 {
        (self.token_bytes() * self.capacity) as u64
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
    pub fn kind(&self) -> CacheType {
        self.kind
    }

    /// How rows of keys are stored.
    pub fn key_store(&self) -> Store {
        self.keys.store()
    }

    /// How rows of values are stored.
    pub fn value_store(&self) -> Store {
        self.values.store()
    }

    /// Appends rows of keys and values, each tokens × (heads · dim).
    ///
    /// # Errors
    /// [`Error::Format`] if the lengths are no whole rows.
    pub fn append(&mut self, isa: Isa, keys: &[f32], values: &[f32]) -> Result<()> {
        self.slide();
        self.keys.append(isa, keys)?;
        self.values.append(isa, values)?;
        self.len += keys.len() / (self.shape.heads * self.shape.dim);
        Ok(())
    }

    /// Drops rows that no later query sees, once there are enough of them.
    fn slide(&mut self) {
        let Some(window) = self.shape.window else { return };
        let needed_from = self.len.saturating_sub(window + WINDOW_SLACK);
        if needed_from >= self.first + WINDOW_SLACK {
            self.keys.drop_first(needed_from - self.first);
            self.values.drop_first(needed_from - self.first);
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
        self.keys.truncate(tokens.saturating_sub(self.first));
        self.values.truncate(tokens.saturating_sub(self.first));
        self.len = tokens;
    }

    /// What is stored, one slice a head; `None` if a device holds it.
    pub fn state(&self) -> Option<LayerState<Vec<&[u8]>>> {
        let (first, len) = (self.first, self.len);
        let here = self.keys.len() == len - first && self.values.len() == len - first;
        here.then(|| LayerState { first, len, keys: self.keys.heads(), values: self.values.heads() })
    }

    /// Positions of the rows that are kept.
    pub fn positions(&self) -> Range<usize> {
        self.first..self.len
    }

    /// Replaces what is stored by what [`LayerCache::state`] of a layer with the same shape and kind gave.
    ///
    /// # Errors
    /// [`Error::Numeric`] if it can't be from such a layer: then nothing has changed.
    pub fn restore(&mut self, state: &LayerState<&[u8]>) -> Result<()> {
        self.check(state)?;
        self.keys.restore(state.keys);
        self.values.restore(state.values);
        (self.first, self.len) = (state.first, state.len);
        Ok(())
    }

    /// Counts the positions of `state`, of which a device holds the rows, or the last ones that it has room for.
    ///
    /// # Errors
    /// As [`LayerCache::restore`].
    pub fn restore_positions(&mut self, state: &LayerState<&[u8]>) -> Result<()> {
        self.check(state)?;
        self.truncate(0);
        (self.first, self.len) = (state.first.max(state.len.saturating_sub(self.capacity)), state.len);
        Ok(())
    }

    /// Whether `state` may be of a layer with this shape and kind.
    fn check(&self, state: &LayerState<&[u8]>) -> Result<()> {
        let &LayerState { first, len, keys, values } = state;
        let rows = len.checked_sub(first).filter(|_| match self.shape.window {
            Some(window) => (len + 1).saturating_sub(window) >= first,
            None => first == 0 && len <= self.capacity,
        });
        if !rows.is_some_and(|rows| self.keys.fits(keys, rows) && self.values.fits(values, rows)) {
            let bytes = keys.len() + values.len();
            let message = format!("{bytes} bytes for positions {first}..{len} are no rows of {}", self.kind);
            return Err(Error::Numeric(message));
        }
        Ok(())
    }

    /// The same positions stored as `kind` by a device, which does not hold their rows yet.
    ///
    /// # Errors
    /// As [`KvCache::new`].
    pub fn elsewhere(&self, kind: CacheType) -> Result<LayerCache> {
        let &LayerCache { shape, capacity, first, len, .. } = self;
        let kind = shape.kind(kind);
        let [keys, values] = kind.stores();
        let (keys, values) = (Rows::new(keys, shape, capacity)?, Rows::new(values, shape, capacity)?);
        Ok(LayerCache { shape, kind, capacity, first, len, keys, values, slot: Slot::default() })
    }

    /// Stores the rows that are here as `kind` from now on.
    ///
    /// # Errors
    /// As [`KvCache::new`]; then nothing has changed.
    pub fn convert(&mut self, isa: Isa, kind: CacheType) -> Result<()> {
        let kind = self.shape.kind(kind);
        let [keys, values] = kind.stores();
        let keys = self.keys.convert(isa, keys, self.shape, self.capacity)?;
        self.values = self.values.convert(isa, values, self.shape, self.capacity)?;
        (self.keys, self.kind) = (keys, kind);
        self.slot = Slot::default();
        Ok(())
    }

    /// The first position that the query at `position` sees.
    pub fn first_visible(&self, position: usize) -> usize {
        self.shape.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// The stored key rows of `head` for `positions`.
    pub fn keys(&self, head: usize, positions: Range<usize>) -> &[u8] {
        self.keys.get(head, positions.start - self.first..positions.end - self.first)
    }

    /// The stored value rows of `head` for `positions`.
    pub fn values(&self, head: usize, positions: Range<usize>) -> &[u8] {
        self.values.get(head, positions.start - self.first..positions.end - self.first)
    }
}

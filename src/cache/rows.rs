//! The stored rows of one layer's keys or values.

use std::ops::Range;

use super::{LayerShape, Store};
use crate::error::{Error, Result};
use crate::quant::turbo;
use crate::simd::Isa;

/// Rows of one layer, keys or values: for each head a contiguous run.
#[derive(Debug)]
pub(super) struct Rows {
    store: Store,
    dim: usize,
    row_bytes: usize,
    heads: Vec<Vec<u8>>,
}

impl Rows {
    /// None yet, with memory for `capacity` a head.
    pub fn new(store: Store, shape: LayerShape, capacity: usize) -> Result<Self> {
        let row_bytes = store.row_bytes(shape.dim)?;
        let head = |_| {
            let mut rows = Vec::new();
            let reserved = rows.try_reserve_exact(capacity.saturating_mul(row_bytes));
            reserved.map_err(|_| {
                Error::option("--ctx-size", format!("no memory for the cache of {capacity} tokens"))
            })?;
            Ok(rows)
        };
        let heads = (0..shape.heads).map(head).collect::<Result<_>>()?;
        Ok(Rows { store, dim: shape.dim, row_bytes, heads })
    }

    pub fn store(&self) -> Store {
        self.store
    }

    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Rows of each head.
    pub fn len(&self) -> usize {
        self.heads.first().map_or(0, |rows| rows.len() / self.row_bytes)
    }

    /// Encodes tokens × (heads · dim).
    pub fn append(&mut self, isa: Isa, rows: &[f32]) -> Result<()> {
        for row in rows.chunks_exact(self.heads.len() * self.dim) {
            for (head, row) in row.chunks_exact(self.dim).enumerate() {
                self.push(isa, head, row)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, isa: Isa, head: usize, row: &[f32]) -> Result<()> {
        let rows = &mut self.heads[head];
        let at = rows.len();
        rows.resize(at + self.row_bytes, 0);
        if !self.store.turned {
            return self.store.format.quantize(isa, row, &mut rows[at..]);
        }
        let mut turned = [0.0; turbo::LARGEST_DIM];
        let turned = &mut turned[..self.dim];
        turned.copy_from_slice(row);
        turbo::rotate(isa, turned);
        self.store.format.quantize(isa, turned, &mut rows[at..])
    }

    /// Drops the oldest `rows` of each head.
    pub fn drop_first(&mut self, rows: usize) {
        let bytes = rows * self.row_bytes;
        self.heads.iter_mut().for_each(|head| drop(head.drain(..bytes)));
    }

    /// Keeps the oldest `rows` of each head.
    pub fn truncate(&mut self, rows: usize) {
        let bytes = rows * self.row_bytes;
        self.heads.iter_mut().for_each(|head| head.truncate(bytes));
    }

    /// The stored bytes of some rows, counted from the oldest one.
    pub fn get(&self, head: usize, rows: Range<usize>) -> &[u8] {
        &self.heads[head][rows.start * self.row_bytes..rows.end * self.row_bytes]
    }

    /// All stored bytes of each head.
    pub fn heads(&self) -> Vec<&[u8]> {
        self.heads.iter().map(Vec::as_slice).collect()
    }

    /// Whether `bytes` are `rows` rows of all heads, one head after the other.
    pub fn fits(&self, bytes: &[u8], rows: usize) -> bool {
        rows.checked_mul(self.row_bytes * self.heads.len()) == Some(bytes.len())
    }

    /// Replaces all rows by `bytes`, which [`Rows::fits`] and are the heads' one after the other.
    pub fn restore(&mut self, bytes: &[u8]) {
        let head_bytes = bytes.len() / self.heads.len();
        for (index, head) in self.heads.iter_mut().enumerate() {
            head.clear();
            head.extend_from_slice(&bytes[index * head_bytes..(index + 1) * head_bytes]);
        }
    }

    /// The numbers of row `row` of `head`, as they went in.
    fn decode(&self, isa: Isa, head: usize, row: usize, out: &mut [f32]) {
        self.store.format.reader(isa).call(self.get(head, row..row + 1), out);
        if self.store.turned {
            turbo::rotate_back(isa, out);
        }
    }

    /// The same rows as `store` says, with memory for `capacity`.
    pub fn convert(&self, isa: Isa, store: Store, shape: LayerShape, capacity: usize) -> Result<Rows> {
        let mut converted = Rows::new(store, shape, capacity)?;
        let mut numbers = vec![0.0; self.dim];
        for head in 0..self.heads.len() {
            for row in 0..self.len() {
                self.decode(isa, head, row, &mut numbers);
                converted.push(isa, head, &numbers)?;
            }
        }
        Ok(converted)
    }
}

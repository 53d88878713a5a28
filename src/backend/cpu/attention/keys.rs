//! How queries meet stored keys: as floats, or as integers with keys that stay packed.

use super::products;
use crate::backend::cpu::{Activations, Cpu};
use crate::cache::{LayerCache, Store};
use crate::quant::panel::Multiply;
use crate::quant::{Format, Reader, RowDot, turbo};
use crate::simd::Isa;

/// The scores of one cache's keys.
#[derive(Clone, Copy)]
pub struct Keys {
    isa: Isa,
    dim: usize,
    store: Store,
    reader: Reader,
    /// For kinds that are multiplied as stored: the dot, and what the query is rounded to.
    packed: Option<(RowDot, &'static Format)>,
    /// Multiplies keys with several queries at once, which are ready one behind the other.
    panel: Option<Multiply>,
}

impl Keys {
    pub fn new(cpu: &Cpu, cache: &LayerCache) -> Self {
        let store = cache.key_store();
        let input = store.format.dot.as_ref().map(|dot| dot.input);
        let rounded = input.filter(|input| input.block_len > 1 && cpu.activations == Activations::Quantized);
        let mut keys = Keys {
            isa: cpu.isa,
            dim: cache.shape().dim,
            store,
            reader: store.format.reader(cpu.isa),
            packed: store.format.row_dot(cpu.isa).zip(rounded),
            panel: None,
        };
        if cpu.repack && keys.packed.is_some_and(|(_, input)| keys.bytes_of(input) == 4 * keys.query_len()) {
            keys.panel = store.format.multiply(cpu.isa);
        }
        keys
    }

    /// Bytes of a query that is rounded to `input`.
    fn bytes_of(&self, input: &Format) -> usize {
        self.dim / input.block_len * input.block_bytes
    }

    /// How `count` queries are multiplied with keys that are taken apart for all of them; `None` if they had better be
    /// multiplied one by one.
    pub fn panel(&self, count: usize) -> Option<Multiply> {
        /// With three queries (one token of SmolLM2) attention over 8192 keys of turbo8 took 1.2 times as long.
        const WORTH_UNPACKING: usize = 12;
        self.panel.filter(|_| count >= WORTH_UNPACKING)
    }

    /// Floats of memory that a query takes once it is ready; 0 if it is used as it is.
    pub fn query_len(&self) -> usize {
        match self.packed {
            Some((_, input)) => self.bytes_of(input).div_ceil(4),
            None if self.store.turned => self.dim,
            None => 0,
        }
    }

    /// Writes `query` as keys are multiplied with it to `out`, which has [`Keys::query_len`].
    pub fn prepare(&self, query: &[f32], out: &mut [f32]) {
        let mut turned = [0.0; turbo::LARGEST_DIM];
        let query = if self.store.turned {
            let turned = &mut turned[..self.dim];
            turned.copy_from_slice(query);
            turbo::rotate(self.isa, turned);
            turned
        } else {
            query
        };
        match self.packed {
            Some((_, input)) => {
                let out = &mut bytemuck::cast_slice_mut(out)[..self.bytes_of(input)];
                input.quantize(self.isa, query, out).expect("whole blocks of a format with an encoder");
            }
            None => out.copy_from_slice(query),
        }
    }

    /// Makes floats of a chunk of keys, unless they are multiplied as stored.
    pub fn read(&self, rows: &[u8], out: &mut [f32]) {
        if self.packed.is_none() {
            self.reader.call(rows, out);
        }
    }

    /// The dots of a query with as many keys as `scores`: `rows` as stored, `floats` as [`Keys::read`] made them.
    pub fn dots(&self, query: &[f32], rows: &[u8], floats: &[f32], scores: &mut [f32]) {
        let Some((dot, input)) = self.packed else {
            return products::dots(self.isa, query, floats, scores);
        };
        let query = &bytemuck::cast_slice(query)[..self.bytes_of(input)];
        let row_bytes = rows.len() / scores.len();
        let (fours, rest) = scores.as_chunks_mut::<4>();
        let (keys, rest_keys) = rows.split_at(4 * fours.len() * row_bytes);
        for (scores, keys) in fours.iter_mut().zip(keys.chunks_exact(4 * row_bytes)) {
            let row = |i: usize| &keys[i * row_bytes..(i + 1) * row_bytes];
            *scores = dot.rows4([row(0), row(1), row(2), row(3)], query);
        }
        for (score, key) in rest.iter_mut().zip(rest_keys.chunks_exact(row_bytes)) {
            *score = dot.call(key, query);
        }
    }
}

//! Attention over the cache: softmax(scale · q kᵀ) v in one pass over the keys, whose scores are never all in memory
//! (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax").
//!
//! Order, the same for every batch and thread count: keys come in chunks of [`CHUNK`] positions and chunks in segments
//! of [`SEGMENT`], both counted from position 0. Each segment has a state of its own, to which the visible
//! keys of a chunk are added at once; states are merged in ascending order. So a row takes the same steps whichever
//! rows are beside it and whoever computes its segments.
//!
//! Packed keys are multiplied as stored where their format has an integer dot. Values become floats a chunk at a time;
//! turned ones are summed turned, and what comes out is turned back once a row.

use std::ops::Range;

use super::Cpu;
use super::matrix::Matrix;
use crate::backend::{AttentionShape, Hidden, Span};
use crate::cache::LayerCache;
use crate::error::{Error, Result};
use crate::quant::{Reader, turbo};
use keys::Keys;
use softmax::{CHUNK, state_len};

mod keys;
mod products;
mod softmax;
#[cfg(test)]
mod tests;

/// Positions whose softmax is computed apart from the others'.
const SEGMENT: usize = 512;
/// Query rows that read a chunk of keys together.
const ROW_TILE: usize = 16;

/// `query`: rows at `at` × (heads · dim). The result has the same shape.
pub fn attention(
    cpu: &Cpu,
    query: &Hidden,
    cache: &LayerCache,
    at: Span,
    shape: AttentionShape,
) -> Result<Hidden> {
    let kv = cache.shape();
    if !shape.heads.is_multiple_of(kv.heads)
        || query.columns() != shape.heads * kv.dim
        || query.rows() != at.len
        || at.len == 0
    {
        let message = format!(
            "{} rows of {} columns for {} rows of {} heads of {}",
            query.rows(),
            query.columns(),
            at.len,
            shape.heads,
            kv.dim
        );
        return Err(Error::Numeric(message));
    }
    let mut output = cpu.spares.take(query.rows(), query.columns());
    Attention::new(cpu, query, cache, at, shape).run(cpu, &mut output);
    Ok(output)
}

/// One operation with what is decided before its loops.
#[derive(Clone, Copy)]
struct Attention<'a> {
    query: &'a Hidden,
    cache: &'a LayerCache,
    keys: Keys,
    values: Reader,
    at: Span,
    shape: AttentionShape<'a>,
    /// Query heads of a part; all of them read the same key/value head.
    heads: usize,
    /// Segments that any row sees.
    segments: (usize, usize),
}

/// What one thread computes: some rows and heads, over all segments or one.
struct Part {
    rows: Range<usize>,
    heads: Range<usize>,
    segments: Range<usize>,
}

impl<'a> Attention<'a> {
    fn new(cpu: &Cpu, query: &'a Hidden, cache: &'a LayerCache, at: Span, shape: AttentionShape<'a>) -> Self {
        let segments = (cache.first_visible(at.start) / SEGMENT, (at.start + at.len - 1) / SEGMENT + 1);
        let group = shape.heads / cache.shape().heads;
        let (keys, values) = (Keys::new(cpu, cache), cache.value_store().format.reader(cpu.isa));
        let mut this = Attention { query, cache, keys, values, at, shape, heads: group, segments };
        // Heads that share keys read them together, unless that leaves threads without work.
        if this.parts() * this.segment_count() < 2 * cpu.threads() {
            this.heads = 1;
        }
        this
    }

    fn dim(&self) -> usize {
        self.cache.shape().dim
    }

    fn segment_count(&self) -> usize {
        self.segments.1 - self.segments.0
    }

    /// Parts over all segments.
    fn parts(&self) -> usize {
        self.at.len.div_ceil(ROW_TILE) * (self.shape.heads / self.heads)
    }

    /// Part `index` of [`Attention::parts`].
    fn part(&self, index: usize) -> Part {
        // Late rows see more keys and take longest: they come first.
        let tiles = self.at.len.div_ceil(ROW_TILE);
        let (tile, head) = (tiles - 1 - index % tiles, index / tiles * self.heads);
        let rows = tile * ROW_TILE..self.at.len.min((tile + 1) * ROW_TILE);
        Part { rows, heads: head..head + self.heads, segments: self.segments.0..self.segments.1 }
    }

    fn run(&self, cpu: &Cpu, output: &mut Hidden) {
        let (parts, segments) = (self.parts(), self.segment_count());
        let rows = ROW_TILE.min(self.at.len) * self.heads;
        let scratch = self.fixed_scratch() + 2 * rows * state_len(self.dim());
        let mut scratch = cpu.spares.take(cpu.threads(), scratch);
        if segments == 1 || cpu.threads() == 1 || parts >= 4 * cpu.threads() {
            let output = Matrix::new(output);
            return cpu.pool.run_with(scratch.values_mut(), parts, |scratch, part| {
                self.whole(cpu, &self.part(part), scratch, &output);
            });
        }
        let mut states = cpu.spares.take(self.at.len * self.shape.heads, segments * state_len(self.dim()));
        let matrix = Matrix::new(&mut states);
        cpu.pool.run_with(scratch.values_mut(), parts * segments, |scratch, index| {
            let segment = self.segments.0 + index % segments;
            let part = Part { segments: segment..segment + 1, ..self.part(index / segments) };
            self.segment(cpu, &part, scratch, &matrix);
        });
        self.merge(cpu, &mut states, output);
    }

    /// Floats of scratch before the states: two chunks of rows, then the queries of a part.
    fn fixed_scratch(&self) -> usize {
        let queries = ROW_TILE.min(self.at.len) * self.heads;
        2 * CHUNK * self.dim() + queries * self.keys.query_len()
    }

    /// A part over all segments, one after the other.
    fn whole(&self, cpu: &Cpu, part: &Part, scratch: &mut [f32], output: &Matrix) {
        let (dim, len) = (self.dim(), state_len(self.dim()));
        let (chunks, states) = scratch.split_at_mut(self.fixed_scratch());
        self.prepare(part, chunks);
        let used = part.rows.len() * part.heads.len() * len;
        let (totals, rest) = states.split_at_mut(used);
        let partials = &mut rest[..used];
        totals.chunks_exact_mut(len).for_each(softmax::clear);
        for segment in part.segments.clone() {
            partials.chunks_exact_mut(len).for_each(softmax::clear);
            self.add_segment(cpu, part, segment, chunks, partials);
            for (total, partial) in totals.chunks_exact_mut(len).zip(partials.chunks_exact(len)) {
                softmax::merge(cpu.isa, total, partial);
            }
        }
        let columns = part.heads.start * dim..part.heads.end * dim;
        // SAFETY: parts have different rows or heads, and each is run once.
        let mut out = unsafe { output.block(part.rows.clone(), columns) };
        for (index, total) in totals.chunks_exact_mut(len).enumerate() {
            let (row, head) = (index / part.heads.len(), index % part.heads.len());
            let sink = self.shape.sinks.map(|sinks| sinks[part.heads.start + head]);
            self.finish(cpu, total, sink, &mut out.row(row)[head * dim..(head + 1) * dim]);
        }
    }

    /// A part over its one segment: the states go to `matrix`, rows · heads × segments.
    fn segment(&self, cpu: &Cpu, part: &Part, scratch: &mut [f32], matrix: &Matrix) {
        let len = state_len(self.dim());
        let (chunks, states) = scratch.split_at_mut(self.fixed_scratch());
        self.prepare(part, chunks);
        let states = &mut states[..part.rows.len() * part.heads.len() * len];
        states.chunks_exact_mut(len).for_each(softmax::clear);
        self.add_segment(cpu, part, part.segments.start, chunks, states);
        let column = (part.segments.start - self.segments.0) * len;
        for (row, states) in part.rows.clone().zip(states.chunks_exact(part.heads.len() * len)) {
            let first = row * self.shape.heads;
            let rows = first + part.heads.start..first + part.heads.end;
            // SAFETY: parts have different rows, heads or segments, and each is run once.
            let mut block = unsafe { matrix.block(rows, column..column + len) };
            for (head, state) in states.chunks_exact(len).enumerate() {
                block.row(head).copy_from_slice(state);
            }
        }
    }

    /// The results of all rows and heads from the states of their segments.
    fn merge(&self, cpu: &Cpu, states: &mut Hidden, output: &mut Hidden) {
        let (dim, len, columns) = (self.dim(), state_len(self.dim()), states.columns());
        let outputs = output.values_mut().chunks_exact_mut(dim);
        let mut total = cpu.spares.take(1, len);
        for (index, (states, out)) in states.values().chunks_exact(columns).zip(outputs).enumerate() {
            softmax::clear(total.values_mut());
            for state in states.chunks_exact(len) {
                softmax::merge(cpu.isa, total.values_mut(), state);
            }
            let sink = self.shape.sinks.map(|sinks| sinks[index % self.shape.heads]);
            self.finish(cpu, total.values_mut(), sink, out);
        }
    }

    fn finish(&self, cpu: &Cpu, state: &mut [f32], sink: Option<f32>, out: &mut [f32]) {
        softmax::finish(cpu.isa, state, sink, out);
        if self.cache.value_store().turned {
            turbo::rotate_back(cpu.isa, out);
        }
    }

    /// Makes the queries of `part` ready for the keys, behind the two chunks.
    fn prepare(&self, part: &Part, scratch: &mut [f32]) {
        let (dim, len) = (self.dim(), self.keys.query_len());
        if len == 0 {
            return;
        }
        let mut out = scratch[2 * CHUNK * dim..].chunks_exact_mut(len);
        for row in part.rows.clone() {
            let queries = self.query.row(row)[part.heads.start * dim..part.heads.end * dim].chunks_exact(dim);
            queries.zip(&mut out).for_each(|(query, out)| self.keys.prepare(query, out));
        }
    }

    /// Adds what the rows and heads of `part` see of `segment` to their `states`. `scratch` is two chunks of rows and the
    /// queries that are ready.
    fn add_segment(&self, cpu: &Cpu, part: &Part, segment: usize, scratch: &mut [f32], states: &mut [f32]) {
        let first = self.cache.first_visible(self.at.start + part.rows.start).max(segment * SEGMENT);
        let end = (self.at.start + part.rows.end).min((segment + 1) * SEGMENT);
        let mut from = first;
        while from < end {
            let to = end.min((from / CHUNK + 1) * CHUNK);
            self.add_chunk(cpu, part, from..to, scratch, states);
            from = to;
        }
    }

    /// Adds what the rows and heads of `part` see of the `chunk` of positions.
    fn add_chunk(
        &self,
        cpu: &Cpu,
        part: &Part,
        chunk: Range<usize>,
        scratch: &mut [f32],
        states: &mut [f32],
    ) {
        let (dim, len, query_len) = (self.dim(), state_len(self.dim()), self.keys.query_len());
        let kv_head = part.heads.start / (self.shape.heads / self.cache.shape().heads);
        let (chunks, queries) = scratch.split_at_mut(2 * CHUNK * dim);
        let (keys, values) = chunks.split_at_mut(CHUNK * dim);
        let stored = self.cache.keys(kv_head, chunk.clone());
        self.keys.read(stored, &mut keys[..chunk.len() * dim]);
        self.values.call(self.cache.values(kv_head, chunk.clone()), &mut values[..chunk.len() * dim]);
        let row_bytes = stored.len() / chunk.len();
        for (index, states) in states.chunks_exact_mut(part.heads.len() * len).enumerate() {
            let row = part.rows.start + index;
            let position = self.at.start + row;
            let visible = self.cache.first_visible(position).max(chunk.start)..chunk.end.min(position + 1);
            if visible.is_empty() {
                continue;
            }
            let rows = visible.start - chunk.start..visible.end - chunk.start;
            let range = rows.start * dim..rows.end * dim;
            let stored = &stored[rows.start * row_bytes..rows.end * row_bytes];
            for (head, state) in states.chunks_exact_mut(len).enumerate() {
                let query = if query_len == 0 {
                    &self.query.row(row)[(part.heads.start + head) * dim..][..dim]
                } else {
                    &queries[(index * part.heads.len() + head) * query_len..][..query_len]
                };
                let scores = |out: &mut [f32]| self.keys.dots(query, stored, &keys[range.clone()], out);
                let AttentionShape { scale, softcap, .. } = self.shape;
                softmax::add(cpu.isa, state, rows.len(), scores, &values[range.clone()], scale, softcap);
            }
        }
    }
}

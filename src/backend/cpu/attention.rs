//! Attention over the cache: softmax(scale · q kᵀ) v in one pass over the keys, whose scores are never all in memory
//! (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax").
//!
//! Order, the same for every batch and thread count: keys come in chunks of [`CHUNK`] positions and chunks in segments
//! of [`SEGMENT`], both counted from position 0. Each segment has a state of its own, to which the visible
//! keys of a chunk are added at once; states are merged in ascending order. So a row takes the same steps whichever
//! rows are beside it and whoever computes its segments.
//!
//! Packed keys are multiplied as stored where their format has an integer dot, with several queries as weights are with
//! several inputs: a chunk is taken apart once for all of them. Values become floats a chunk at a time; turned ones are
//! summed turned, and what comes out is turned back once a row.

use std::ops::Range;

use super::matrix::Matrix;
use super::{Cpu, Workspace};
use crate::backend::{AttentionShape, Hidden, Span};
use crate::cache::LayerCache;
use crate::error::{Error, Result};
use crate::quant::panel::{self, Inputs, Scratch};
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

const _: () = assert!(CHUNK <= panel::ROWS, "a chunk of keys is multiplied in one call");

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

impl Part {
    fn queries(&self) -> usize {
        self.rows.len() * self.heads.len()
    }
}

/// What a thread works in.
struct Room<'a> {
    /// A chunk of keys, if they are not multiplied as stored.
    keys: &'a mut [f32],
    /// A chunk of values.
    values: &'a mut [f32],
    /// The queries of a part, if keys can't be multiplied with them as they are.
    queries: &'a mut [f32],
    /// Those queries again, where they are multiplied together.
    inputs: &'a mut Inputs,
    panel: &'a mut Scratch,
    /// Twice the states of a part.
    states: &'a mut [f32],
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
        let mut scratch = cpu.scratch();
        scratch.iter_mut().for_each(|scratch| scratch.floats.resize(self.floats(), 0.0));
        if segments == 1 || cpu.threads() == 1 || parts >= 4 * cpu.threads() {
            let output = Matrix::new(output);
            return cpu.pool.run_with(&mut scratch, parts, |scratch, part| {
                self.whole(cpu, &self.part(part), self.room(&mut scratch[0]), &output);
            });
        }
        let mut states = cpu.spares.take(self.at.len * self.shape.heads, segments * state_len(self.dim()));
        let matrix = Matrix::new(&mut states);
        cpu.pool.run_with(&mut scratch, parts * segments, |scratch, index| {
            let segment = self.segments.0 + index % segments;
            let part = Part { segments: segment..segment + 1, ..self.part(index / segments) };
            self.segment(cpu, &part, self.room(&mut scratch[0]), &matrix);
        });
        self.merge(cpu, &mut states, output);
    }

    /// Queries of a part, at most.
    fn queries(&self) -> usize {
        ROW_TILE.min(self.at.len) * self.heads
    }

    /// Floats of a [`Room`].
    fn floats(&self) -> usize {
        2 * CHUNK * self.dim() + self.queries() * (self.keys.query_len() + 2 * state_len(self.dim()))
    }

    fn room<'w>(&self, scratch: &'w mut Workspace) -> Room<'w> {
        let (keys, rest) = scratch.floats.split_at_mut(CHUNK * self.dim());
        let (values, rest) = rest.split_at_mut(CHUNK * self.dim());
        let (queries, states) = rest.split_at_mut(self.queries() * self.keys.query_len());
        Room { keys, values, queries, inputs: &mut scratch.queries, panel: &mut scratch.panel, states }
    }

    /// A part over all segments, one after the other.
    fn whole(&self, cpu: &Cpu, part: &Part, mut room: Room, output: &Matrix) {
        let (dim, len) = (self.dim(), state_len(self.dim()));
        self.prepare(part, &mut room);
        let used = part.queries() * len;
        let (totals, rest) = std::mem::take(&mut room.states).split_at_mut(used);
        let partials = &mut rest[..used];
        totals.chunks_exact_mut(len).for_each(softmax::clear);
        for segment in part.segments.clone() {
            partials.chunks_exact_mut(len).for_each(softmax::clear);
            self.add_segment(cpu, part, segment, &mut room, partials);
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
    fn segment(&self, cpu: &Cpu, part: &Part, mut room: Room, matrix: &Matrix) {
        let len = state_len(self.dim());
        self.prepare(part, &mut room);
        let states = &mut std::mem::take(&mut room.states)[..part.queries() * len];
        states.chunks_exact_mut(len).for_each(softmax::clear);
        self.add_segment(cpu, part, part.segments.start, &mut room, states);
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

    /// Makes the queries of `part` ready for the keys.
    fn prepare(&self, part: &Part, room: &mut Room) {
        let (dim, len) = (self.dim(), self.keys.query_len());
        if len == 0 {
            return;
        }
        let mut out = room.queries.chunks_exact_mut(len);
        for row in part.rows.clone() {
            let queries = self.query.row(row)[part.heads.start * dim..part.heads.end * dim].chunks_exact(dim);
            queries.zip(&mut out).for_each(|(query, out)| self.keys.prepare(query, out));
        }
        if let Some(panel) = self.keys.panel(part.queries()) {
            panel.prepare_in(room.inputs, part.queries(), dim);
            room.inputs.runs_mut().for_each(|mut run| run.fill(bytemuck::cast_slice(room.queries)));
        }
    }

    /// Adds what the rows and heads of `part` see of `segment` to their `states`.
    fn add_segment(&self, cpu: &Cpu, part: &Part, segment: usize, room: &mut Room, states: &mut [f32]) {
        let first = self.cache.first_visible(self.at.start + part.rows.start).max(segment * SEGMENT);
        let end = (self.at.start + part.rows.end).min((segment + 1) * SEGMENT);
        let mut from = first;
        while from < end {
            let to = end.min((from / CHUNK + 1) * CHUNK);
            self.add_chunk(cpu, part, from..to, room, states);
            from = to;
        }
    }

    /// Adds what the rows and heads of `part` see of the `chunk` of positions.
    fn add_chunk(&self, cpu: &Cpu, part: &Part, chunk: Range<usize>, room: &mut Room, states: &mut [f32]) {
        let (dim, len, query_len) = (self.dim(), state_len(self.dim()), self.keys.query_len());
        let kv_head = part.heads.start / (self.shape.heads / self.cache.shape().heads);
        let values = &mut room.values[..chunk.len() * dim];
        self.values.call(self.cache.values(kv_head, chunk.clone()), values);
        let stored = self.cache.keys(kv_head, chunk.clone());
        if let Some(panel) = self.keys.panel(part.queries()) {
            return panel.run(stored, room.inputs, room.panel, |index, dots| {
                let state = &mut states[index * len..(index + 1) * len];
                let scores = |rows: Range<usize>, out: &mut [f32]| out.copy_from_slice(&dots[rows]);
                self.add_query(cpu, part, index, &chunk, scores, values, state);
            });
        }
        let keys = &mut room.keys[..chunk.len() * dim];
        self.keys.read(stored, keys);
        let row_bytes = stored.len() / chunk.len();
        for (index, state) in states.chunks_exact_mut(len).enumerate() {
            let query = if query_len == 0 {
                let (row, head) = (index / part.heads.len(), index % part.heads.len());
                &self.query.row(part.rows.start + row)[(part.heads.start + head) * dim..][..dim]
            } else {
                &room.queries[index * query_len..][..query_len]
            };
            let scores = |rows: Range<usize>, out: &mut [f32]| {
                let stored = &stored[rows.start * row_bytes..rows.end * row_bytes];
                self.keys.dots(query, stored, &keys[rows.start * dim..rows.end * dim], out);
            };
            self.add_query(cpu, part, index, &chunk, scores, values, state);
        }
    }

    /// Adds what query `index` of `part` sees of the `chunk` of positions, whose `values` are floats, to its `state`.
    /// `scores` writes the query's products with some of the chunk's keys.
    #[allow(clippy::too_many_arguments, reason = "all of it changes from one call to the next")]
    #[inline]
    fn add_query(
        &self,
        cpu: &Cpu,
        part: &Part,
        index: usize,
        chunk: &Range<usize>,
        scores: impl FnOnce(Range<usize>, &mut [f32]),
        values: &[f32],
        state: &mut [f32],
    ) {
        let position = self.at.start + part.rows.start + index / part.heads.len();
        let visible = self.cache.first_visible(position).max(chunk.start)..chunk.end.min(position + 1);
        if visible.is_empty() {
            return;
        }
        let (rows, dim) = (visible.start - chunk.start..visible.end - chunk.start, self.dim());
        let AttentionShape { scale, softcap, .. } = self.shape;
        let values = &values[rows.start * dim..rows.end * dim];
        softmax::add(cpu.isa, state, rows.len(), |out| scores(rows, out), values, scale, softcap);
    }
}

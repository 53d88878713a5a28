//! The running softmax of one query.

use crate::math::{self, per_isa};

/// Positions whose scores are computed together.
pub const CHUNK: usize = 64;

/// Numbers of a state: the sum of weight · value, the sum of the weights, and the highest score so far, which is
/// subtracted from all: weight = e^(score - highest).
pub const fn state_len(dim: usize) -> usize {
    dim + 2
}

/// The state before any key.
pub fn clear(state: &mut [f32]) {
    state.fill(0.0);
    if let Some(max) = state.last_mut() {
        *max = f32::NEG_INFINITY;
    }
}

/// The parts of a state.
#[inline(always)]
fn parts(state: &mut [f32]) -> (&mut [f32], &mut f32, &mut f32) {
    match state {
        [values @ .., sum, max] => (values, sum, max),
        _ => unreachable!("a state has two numbers or more"),
    }
}

/// Raises the highest score to `to`, if that is higher.
#[inline(always)]
fn raise(values: &mut [f32], sum: &mut f32, max: &mut f32, to: f32) {
    if to > *max {
        let factor = math::exp(*max - to);
        *max = to;
        *sum *= factor;
        values.iter_mut().for_each(|value| *value *= factor);
    }
}

per_isa! {
    /// Adds up to [`CHUNK`] keys and values, rows of as many numbers as `query` has. Scores are dots in the order of
    /// the f32 format, scaled, then capped; the weights are summed in 8 lanes, the values added key by key.
    pub fn add(
        state: &mut [f32],
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        scale: f32,
        softcap: Option<f32>,
    ) {
        let count = keys.len() / query.len();
        // What is not filled has the weight 0.
        let mut scores = [f32::NEG_INFINITY; CHUNK];
        let seen = &mut scores[..count];
        dots(query, keys, seen);
        seen.iter_mut().for_each(|score| *score *= scale);
        if let Some(cap) = softcap {
            seen.iter_mut().for_each(|score| *score = cap * math::tanh(*score / cap));
        }
        let eights = &mut scores.as_chunks_mut::<8>().0[..count.div_ceil(8)];
        let (sums, sum, max) = parts(state);
        raise(sums, sum, max, highest(eights));
        *sum += math::exp_scores(eights, *max);
        add_weighted(sums, &scores[..count], values);
    }
}

per_isa! {
    /// Adds the keys of another state, which come after those of this one.
    pub fn merge(state: &mut [f32], other: &[f32]) {
        let (sums, sum, max) = parts(state);
        let [other_sums @ .., other_sum, other_max] = other else { return };
        if *other_max == f32::NEG_INFINITY && *other_sum == 0.0 {
            return; // No key of it is visible.
        }
        raise(sums, sum, max, *other_max);
        let factor = math::exp(*other_max - *max);
        *sum += other_sum * factor;
        for (sum, other) in sums.iter_mut().zip(other_sums) {
            *sum += other * factor;
        }
    }
}

per_isa! {
    /// out = sum of weight · value / sum of weights, to which e^sink is added.
    pub fn finish(state: &mut [f32], sink: Option<f32>, out: &mut [f32]) {
        let (sums, sum, max) = parts(state);
        if let Some(sink) = sink {
            raise(sums, sum, max, sink);
            *sum += math::exp(sink - *max);
        }
        let inverse = 1.0 / *sum;
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = *sum * inverse;
        }
    }
}

#[inline(always)]
fn highest(scores: &[[f32; 8]]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 8];
    for scores in scores {
        for lane in 0..8 {
            lanes[lane] = if scores[lane] > lanes[lane] { scores[lane] } else { lanes[lane] };
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Eight keys at a time: eight independent sums, and the query is read once.
#[inline(always)]
fn dots(query: &[f32], keys: &[f32], scores: &mut [f32]) {
    let dim = query.len();
    let (eights, rest) = scores.as_chunks_mut::<8>();
    let mut keys = keys.chunks_exact(8 * dim);
    for scores in eights {
        let Some(keys) = keys.next() else { return };
        *scores = dot_rows(query, keys);
    }
    for (score, key) in rest.iter_mut().zip(keys.remainder().chunks_exact(dim)) {
        [*score] = dot_rows(query, key);
    }
}

/// The dots of `query` with `N` rows of its length.
#[inline(always)]
fn dot_rows<const N: usize>(query: &[f32], rows: &[f32]) -> [f32; N] {
    let (query, rest) = query.as_chunks::<8>();
    let dim = 8 * query.len() + rest.len();
    let keys: [_; N] = std::array::from_fn(|row| &rows[row * dim..(row + 1) * dim]);
    // Slices of one length: no index below is checked.
    let chunks = keys.map(|key| &key.as_chunks::<8>().0[..query.len()]);
    let mut lanes = [[0.0f32; 8]; N];
    for index in 0..query.len() {
        for row in 0..N {
            for lane in 0..8 {
                lanes[row][lane] += query[index][lane] * chunks[row][index][lane];
            }
        }
    }
    if !rest.is_empty() {
        // Lanes without an element add 0 · 0. An index that is no constant would keep all lanes out of registers.
        let query = math::padded(rest, 0.0);
        for row in 0..N {
            let key = math::padded(&keys[row][dim - rest.len()..], 0.0);
            for lane in 0..8 {
                lanes[row][lane] += query[lane] * key[lane];
            }
        }
    }
    lanes.map(math::sum_lanes)
}

/// sums += weight · row, row by row, in blocks of columns that stay in registers.
#[inline(always)]
fn add_weighted(sums: &mut [f32], weights: &[f32], rows: &[f32]) {
    let dim = sums.len();
    let mut from = 0;
    while from + 64 <= dim {
        add_block::<8>(&mut sums[from..from + 64], weights, &rows[from..], dim);
        from += 64;
    }
    while from + 8 <= dim {
        add_block::<1>(&mut sums[from..from + 8], weights, &rows[from..], dim);
        from += 8;
    }
    for column in from..dim {
        for (weight, row) in weights.iter().zip(rows.chunks_exact(dim)) {
            sums[column] += weight * row[column];
        }
    }
}

/// The `8 · N` columns that `sums` has; `rows` begins at the first of them, rows are `dim` apart.
#[inline(always)]
fn add_block<const N: usize>(sums: &mut [f32], weights: &[f32], rows: &[f32], dim: usize) {
    let (sums, _) = sums.as_chunks_mut::<8>();
    let mut lanes = [[0.0f32; 8]; N];
    lanes.copy_from_slice(sums);
    for (index, &weight) in weights.iter().enumerate() {
        let row = &rows[index * dim..][..8 * N];
        for block in 0..N {
            for lane in 0..8 {
                lanes[block][lane] += weight * row[block * 8 + lane];
            }
        }
    }
    sums.copy_from_slice(&lanes);
}

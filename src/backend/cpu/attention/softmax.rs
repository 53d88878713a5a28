//! The running softmax of one query.

use super::products;
use crate::math::{self, per_isa};
use crate::simd::Isa;

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

/// Adds `count` keys, at most [`CHUNK`], and their values, rows of as many numbers as the state sums. `dots` writes the
/// products of query and keys, which are scaled, then capped; the weights are summed in 8 lanes, the values added key by
/// key.
pub fn add(
    isa: Isa,
    state: &mut [f32],
    count: usize,
    dots: impl FnOnce(&mut [f32]),
    values: &[f32],
    scale: f32,
    softcap: Option<f32>,
) {
    // What is not filled has the weight 0.
    let mut scores = [f32::NEG_INFINITY; CHUNK];
    dots(&mut scores[..count]);
    weigh(isa, state, &mut scores, count, scale, softcap);
    products::add_weighted(isa, parts(state).0, &scores[..count], values);
}

per_isa! {
    /// Turns `count` scores into weights and adds them to the state's sum of weights.
    fn weigh(state: &mut [f32], scores: &mut [f32; CHUNK], count: usize, scale: f32, softcap: Option<f32>) {
        let seen = &mut scores[..count];
        seen.iter_mut().for_each(|score| *score *= scale);
        if let Some(cap) = softcap {
            seen.iter_mut().for_each(|score| *score = cap * math::tanh(*score / cap));
        }
        let eights = &mut scores.as_chunks_mut::<8>().0[..count.div_ceil(8)];
        let (sums, sum, max) = parts(state);
        raise(sums, sum, max, highest(eights));
        *sum += math::exp_scores(eights, *max);
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

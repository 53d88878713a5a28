//! What is done to a row or a head by itself. Sums run in 8 lanes.

use crate::backend::{Gate, RmsNorm};
use crate::math::{self, per_isa};

per_isa! {
    /// out = row / rms(row) · weight.
    pub fn norm(out: &mut [f32], row: &[f32], norm: &RmsNorm) {
        let scale = inverse_rms(row, norm.eps);
        for ((out, value), weight) in out.iter_mut().zip(row).zip(norm.weight.iter()) {
            *out = (*value * scale) * weight;
        }
    }
}

per_isa! {
    /// [`norm`] of every head of a row, in place.
    pub fn norm_heads(row: &mut [f32], norm: &RmsNorm) {
        for head in row.chunks_exact_mut(norm.weight.len()) {
            let scale = inverse_rms(head, norm.eps);
            for (value, weight) in head.iter_mut().zip(norm.weight.iter()) {
                *value = (*value * scale) * weight;
            }
        }
    }
}

per_isa! {
    /// x += [`norm`] of y.
    pub fn add_normed(x: &mut [f32], y: &[f32], norm: &RmsNorm) {
        let scale = inverse_rms(y, norm.eps);
        for ((x, y), weight) in x.iter_mut().zip(y).zip(norm.weight.iter()) {
            *x += (*y * scale) * weight;
        }
    }
}

#[inline(always)]
fn inverse_rms(row: &[f32], eps: f32) -> f32 {
    let mut lanes = [0.0f32; 8];
    let (chunks, rest) = row.as_chunks::<8>();
    for chunk in chunks {
        for lane in 0..8 {
            lanes[lane] += chunk[lane] * chunk[lane];
        }
    }
    let rest = math::padded(rest, 0.0);
    for lane in 0..8 {
        lanes[lane] += rest[lane] * rest[lane];
    }
    1.0 / (math::sum_lanes(lanes) / row.len() as f32 + eps).sqrt()
}

per_isa! {
    /// Turns the pairs at the start of every head of `dim` elements. `turns`: their cosines, then their sines.
    pub fn rotate(row: &mut [f32], dim: usize, turns: &[f32], interleaved: bool) {
        let pairs = turns.len() / 2;
        let (cos, sin) = turns.split_at(pairs);
        for head in row.chunks_exact_mut(dim) {
            let (low, high) = head[..2 * pairs].split_at_mut(pairs);
            let turns = cos.iter().zip(sin);
            if interleaved {
                for (pair, (&cos, &sin)) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                    *pair = [pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos];
                }
            } else {
                for ((x, y), (&cos, &sin)) in low.iter_mut().zip(high).zip(turns) {
                    (*x, *y) = (*x * cos - *y * sin, *x * sin + *y * cos);
                }
            }
        }
    }
}

per_isa! {
    /// out = gate(a) · b.
    pub fn gated(out: &mut [f32], gate: Gate, a: &[f32], b: &[f32]) {
        let rows = out.iter_mut().zip(a).zip(b);
        match gate {
            Gate::Silu => rows.for_each(|((out, a), b)| *out = math::silu(*a) * b),
            Gate::Gelu => rows.for_each(|((out, a), b)| *out = math::gelu(*a) * b),
        }
    }
}

per_isa! {
    pub fn softcap(values: &mut [f32], cap: f32) {
        for value in values {
            *value = cap * math::tanh(*value / cap);
        }
    }
}

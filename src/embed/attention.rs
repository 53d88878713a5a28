//! Attention of rows that all see each other: naive, in f32, as texts are short.

use crate::backend::Hidden;
use crate::math;

/// The sizes of one attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub heads: usize,
    /// A divisor of `heads`.
    pub kv_heads: usize,
    pub dim: usize,
    /// Scores are multiplied by this.
    pub scale: f32,
    /// Rows see those that are nearer than this.
    pub window: Option<usize>,
}

/// tokens × (heads · dim).
pub(super) fn attend(query: &Hidden, key: &Hidden, value: &Hidden, shape: Shape) -> Hidden {
    let Shape { heads, kv_heads, dim, scale, window } = shape;
    let rows = query.rows();
    let mut out = vec![0.0; rows * heads * dim];
    let mut scores = Vec::with_capacity(rows);
    for (row, out) in out.chunks_exact_mut(heads * dim).enumerate() {
        let (first, end) = match window {
            Some(window) => (row.saturating_sub(window - 1), rows.min(row + window)),
            None => (0, rows),
        };
        for (head, out) in out.chunks_exact_mut(dim).enumerate() {
            let own = head * kv_heads / heads * dim;
            let q = &query.row(row)[head * dim..][..dim];
            let score = |other: usize| {
                let k = &key.row(other)[own..][..dim];
                q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>() * scale
            };
            scores.clear();
            scores.extend((first..end).map(score));
            let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores.iter_mut().for_each(|score| *score = math::exp(*score - most));
            let total: f32 = scores.iter().sum();
            for (weight, other) in scores.iter().zip(first..end) {
                let v = &value.row(other)[own..][..dim];
                out.iter_mut().zip(v).for_each(|(out, v)| *out += weight / total * v);
            }
        }
    }
    Hidden::new(out, heads * dim)
}

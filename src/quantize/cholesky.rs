//! The Cholesky factor of a symmetric, positive definite matrix, in blocks of columns and on all threads. Every sum runs in
//! one order, so that files do not depend on the machine that made them, as they would with a library that has kernels for
//! each instruction set.

use crate::backend::cpu::pool::Pool;
use crate::math::per_isa;
use crate::simd::Isa;

/// Columns of a block: what it makes of a row stays in the first-level cache.
const BLOCK: usize = 64;

/// Replaces the lower half of `matrix`, n × n, by L with L L^T = matrix; what is above the diagonal becomes zero. `None` if
/// the matrix is not positive definite.
pub(super) fn factor(pool: &Pool, isa: Isa, matrix: &mut [f64], n: usize) -> Option<()> {
    for start in (0..n).step_by(BLOCK) {
        let end = (start + BLOCK).min(n);
        let (above, below) = matrix.split_at_mut(end * n);
        let diagonal = &mut above[start * n..];
        factor_diagonal(diagonal, start, n)?;
        let diagonal = &*diagonal;
        pool.chunks_mut(below, n, 16, |_, row| solve(&mut row[start..end], diagonal, start, n));
        // Transposed, so that a row is updated by whole rows: columns of the block × rows below.
        let rows = n - end;
        let mut panel = vec![0.0; BLOCK * rows];
        for (r, row) in below.chunks_exact(n).enumerate() {
            (start..end).for_each(|c| panel[(c - start) * rows + r] = row[c]);
        }
        pool.chunks_mut(below, n, 16, |r, row| {
            let (done, rest) = row.split_at_mut(end);
            update(isa, &mut rest[..=r], &done[start..], &panel, rows);
        });
    }
    (0..n).for_each(|i| matrix[i * n + i + 1..(i + 1) * n].fill(0.0));
    Some(())
}

/// The block on the diagonal, whose rows begin at column 0.
fn factor_diagonal(rows: &mut [f64], start: usize, n: usize) -> Option<()> {
    for i in 0..rows.len() / n {
        let (done, row) = rows.split_at_mut(i * n);
        let row = &mut row[start..=start + i];
        solve(&mut row[..i], done, start, n);
        let (before, last) = row.split_at_mut(i);
        let square = last[0] - before.iter().map(|value| value * value).sum::<f64>();
        if !(square > 0.0 && square.is_finite()) {
            return None;
        }
        last[0] = square.sqrt();
    }
    Some(())
}

/// Replaces a row x by the solution y of L y = x, where L are `rows` from column `start` on.
fn solve(row: &mut [f64], rows: &[f64], start: usize, n: usize) {
    for j in 0..row.len() {
        let other = &rows[j * n + start..][..=j];
        let known: f64 = row[..j].iter().zip(other).map(|(a, b)| a * b).sum();
        row[j] = (row[j] - known) / other[j];
    }
}

per_isa! {
    /// row -= factors × panel, whose rows are `stride` apart; four of them a pass. Blocks with rows below are whole.
    fn update(row: &mut [f64], factors: &[f64], panel: &[f64], stride: usize) {
        let n = row.len();
        for (factors, panel) in factors.as_chunks::<4>().0.iter().zip(panel.chunks_exact(4 * stride)) {
            let [p, q, r, s] = [0, 1, 2, 3].map(|i| &panel[i * stride..][..n]);
            let [a, b, c, d] = *factors;
            for i in 0..n {
                row[i] -= (a * p[i] + b * q[i]) + (c * r[i] + d * s[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factor of A A^T + I, for sizes around whole blocks: its square is the matrix again, with any threads.
    #[test]
    fn the_square_of_the_factor_is_the_matrix() {
        let mut random = fastrand::Rng::with_seed(3);
        for n in [1, 7, 64, 65, 200] {
            let a: Vec<f64> = (0..n * n).map(|_| random.f64() - 0.5).collect();
            let dot = |i: usize, j: usize| -> f64 { (0..n).map(|k| a[i * n + k] * a[j * n + k]).sum() };
            let value = |i: usize, j: usize| dot(i, j) + if i == j { 1.0 } else { 0.0 };
            let matrix: Vec<f64> = (0..n * n).map(|at| value(at / n, at % n)).collect();
            let factors = [1, 3].map(|threads| {
                let mut lower = matrix.clone();
                factor(&Pool::new(threads).unwrap(), Isa::Scalar, &mut lower, n).unwrap();
                lower
            });
            assert_eq!(factors[0], factors[1], "{n}");
            let mut best = matrix.clone();
            factor(&Pool::new(2).unwrap(), Isa::detect().unwrap(), &mut best, n).unwrap();
            assert_eq!(factors[0], best, "{n}");
            let lower = &best;
            for (at, value) in matrix.iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let found: f64 = (0..n).map(|k| lower[i * n + k] * lower[j * n + k]).sum();
                assert!((found - value).abs() < 1e-12 * n as f64, "{n}: {i}, {j}");
            }
        }
    }

    #[test]
    fn what_is_not_positive_has_no_factor() {
        let pool = Pool::new(1).unwrap();
        for wrong in [-1.0, 0.0, f64::NAN, f64::INFINITY] {
            let mut matrix = vec![0.0; 100 * 100];
            (0..100).for_each(|i| matrix[i * 101] = if i == 80 { wrong } else { 1.0 });
            assert!(factor(&pool, Isa::Scalar, &mut matrix, 100).is_none(), "{wrong}");
        }
    }
}

//! LDLQ with blocks (QuIP#, QTIP): the blocks of a row are encoded from the last one to the first, and what is lost in a block is
//! made up for by those before it, as far as their inputs go together. H = L D L^T with unit blocks on L's diagonal; block b
//! becomes the encoding of `w_b + sum over later columns j of (w_j - ŵ_j) L[j, b]`.
//!
//! Any format's encoder fits: the block is the unit that it encodes at once.

use crate::error::Result;
use crate::quant::Format;

/// The factor L of one matrix.
#[derive(Clone, Debug)]
pub struct Feedback {
    columns: usize,
    block: usize,
    /// columns × columns, read below the diagonal blocks only.
    factor: Vec<f32>,
}

/// Tries: each adds ten times as much to the diagonal, beginning with a hundredth of its mean.
const DAMPING: [f64; 5] = [1e-2, 1e-1, 1.0, 10.0, 100.0];
/// A factor above this came of a matrix that is all but singular.
const LARGEST: f64 = 1e4;
/// Numbers may be so many times larger than the row's largest.
const PEAK: f32 = 4.0;

impl Feedback {
    /// Of the matrix whose inputs have the products `hessian`, `columns` × `columns`, of which the lower half is read.
    /// `None` if it has no factor even with much damping, as where inputs are not finite or all zero, or if rows are no
    /// whole number of blocks.
    pub fn new(hessian: &[f64], columns: usize, block: usize) -> Option<Feedback> {
        if block == 0 || columns == 0 || !columns.is_multiple_of(block) {
            return None;
        }
        let mean = (0..columns).map(|i| hessian[i * columns + i]).sum::<f64>() / columns as f64;
        if !(mean > 0.0 && mean.is_finite()) {
            return None;
        }
        let mut lower = DAMPING.into_iter().find_map(|damping| {
            let mut matrix: Vec<f64> = hessian.iter().map(|value| value / mean).collect();
            (0..columns).for_each(|i| matrix[i * columns + i] += damping);
            cholesky(&mut matrix, columns)?;
            matrix.iter().all(|value| value.abs() < LARGEST).then_some(matrix)
        })?;
        unit_blocks(&mut lower, columns, block);
        Some(Feedback { columns, block, factor: lower.into_iter().map(|value| value as f32).collect() })
    }

    /// Encodes a row as `format`, whose blocks are those of the factor. A row whose errors run away is encoded as if there
    /// were no factor.
    ///
    /// # Errors
    /// Those of [`Format::encode_for_file`].
    pub fn encode_row(
        &self,
        format: &Format,
        row: &[f32],
        importance: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<()> {
        let block_bytes = format.bytes_for(self.block)?;
        let stable = self.each_block(row, |index, wanted, found| {
            let out = &mut out[index * block_bytes..(index + 1) * block_bytes];
            let importance = importance.map(|all| &all[index * self.block..(index + 1) * self.block]);
            format.encode_for_file(wanted, importance, out)?;
            format.decode(out, found)
        })?;
        if stable { Ok(()) } else { format.encode_for_file(row, importance, out) }
    }

    /// Calls `encode` with the index of each block of `row`, from the last to the first, the numbers that it should
    /// have, and where it has to write those that it gets. Whether that went well: false, and no more blocks, once numbers
    /// are four times the row's largest, which is what errors that run away come to.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn each_block(
        &self,
        row: &[f32],
        mut encode: impl FnMut(usize, &[f32], &mut [f32]) -> Result<()>,
    ) -> Result<bool> {
        let largest = row.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let mut errors = vec![0.0f32; self.columns];
        let (mut wanted, mut found) = (vec![0.0f32; self.block], vec![0.0f32; self.block]);
        for index in (0..self.columns / self.block).rev() {
            let range = index * self.block..(index + 1) * self.block;
            wanted.copy_from_slice(&row[range.clone()]);
            for later in range.end..self.columns {
                let (error, factors) = (errors[later], &self.factor[later * self.columns..][range.clone()]);
                wanted.iter_mut().zip(factors).for_each(|(wanted, factor)| *wanted += error * factor);
            }
            if !wanted.iter().all(|value| value.abs() <= PEAK * largest) {
                return Ok(false);
            }
            encode(index, &wanted, &mut found)?;
            for (error, (value, found)) in errors[range.clone()].iter_mut().zip(row[range].iter().zip(&found))
            {
                *error = value - found;
            }
        }
        Ok(true)
    }
}

/// The lower factor of a positive definite matrix in place: L L^T. `None` if it is none.
fn cholesky(matrix: &mut [f64], n: usize) -> Option<()> {
    for i in 0..n {
        let (done, row) = matrix.split_at_mut(i * n);
        let row = &mut row[..n];
        for j in 0..i {
            let other = &done[j * n..j * n + n];
            row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
        }
        let square = row[i] - dot(&row[..i], &row[..i]);
        if !(square > 0.0 && square.is_finite()) {
            return None;
        }
        row[i] = square.sqrt();
        row[i + 1..].fill(0.0);
    }
    Some(())
}

/// In eight lanes, so that it is vectorized, and the same everywhere.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, b_rest) = b.as_chunks::<8>();
    for (a, b) in a8.iter().zip(b8) {
        for lane in 0..8 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f64>() + rest
}

/// Multiplies each block of columns by the inverse of its block on the diagonal: X B = L, row by row from its last column.
fn unit_blocks(lower: &mut [f64], n: usize, block: usize) {
    for start in (0..n).step_by(block) {
        let diagonal: Vec<f64> =
            (0..block).flat_map(|i| lower[(start + i) * n + start..][..block].to_vec()).collect();
        for row in start + block..n {
            let row = &mut lower[row * n + start..][..block];
            for j in (0..block).rev() {
                row[j] /= diagonal[j * block + j];
                let (before, own) = row.split_at_mut(j);
                let factors = &diagonal[j * block..j * block + j];
                before.iter_mut().zip(factors).for_each(|(value, factor)| *value -= own[0] * factor);
            }
        }
    }
}

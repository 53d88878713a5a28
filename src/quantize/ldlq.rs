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

    /// Encodes rows as `format`, whose blocks are those of the factor, side by side. Rows whose errors run away are encoded as if
    /// there were no factor.
    ///
    /// # Errors
    /// Those of [`Format::encode_for_file`]; the index of a number that is not finite is that in its block.
    pub fn encode_rows(
        &self,
        format: &Format,
        rows: &[f32],
        importance: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<()> {
        let block_bytes = format.bytes_for(self.block)?;
        let row_bytes = format.bytes_for(self.columns)?;
        let mut encoded = Vec::new();
        let stable = self.each_block(rows, |index, rows, wanted, found| {
            let importance = importance.map(|all| &all[index * self.block..(index + 1) * self.block]);
            encoded.resize(rows.len() * block_bytes, 0);
            format.encode_for_file(wanted, importance, &mut encoded)?;
            for (row, bytes) in rows.iter().zip(encoded.chunks_exact(block_bytes)) {
                out[row * row_bytes + index * block_bytes..][..block_bytes].copy_from_slice(bytes);
            }
            format.decode(&encoded, found)
        })?;
        let alone = stable.iter().zip(rows.chunks_exact(self.columns)).zip(out.chunks_exact_mut(row_bytes));
        for ((_, row), out) in alone.filter(|((stable, _), _)| !**stable) {
            format.encode_for_file(row, importance, out)?;
        }
        Ok(())
    }

    /// Goes through `rows` from their last block to the first. `encode` is told the index of the block, the rows that go on, the
    /// numbers that each of these should have there, and where it has to write those that they get. Which rows went
    /// well: the others end once a number is four times their largest, which is what errors that run away come to.
    ///
    /// # Errors
    /// Those of `encode`.
    pub fn each_block(
        &self,
        rows: &[f32],
        mut encode: impl FnMut(usize, &[usize], &[f32], &mut [f32]) -> Result<()>,
    ) -> Result<Vec<bool>> {
        let Feedback { columns, block, .. } = *self;
        let largest = |row: &[f32]| row.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let limits: Vec<f32> = rows.chunks_exact(columns).map(|row| PEAK * largest(row)).collect();
        let mut going: Vec<usize> = (0..limits.len()).collect();
        let mut errors = vec![0.0f32; rows.len()];
        for index in (0..columns / block).rev() {
            let mut wanted = self.wanted(index, rows, &errors, &going);
            let fits =
                |(row, wanted): (&usize, &[f32])| wanted.iter().all(|value| value.abs() <= limits[*row]);
            let fitting: Vec<bool> = going.iter().zip(wanted.chunks_exact(block)).map(fits).collect();
            if fitting.contains(&false) {
                let mut fits = fitting.iter();
                going.retain(|_| *fits.next().unwrap_or(&false));
                wanted = self.wanted(index, rows, &errors, &going);
            }
            let mut found = vec![0.0; wanted.len()];
            encode(index, &going, &wanted, &mut found)?;
            for (row, found) in going.iter().zip(found.chunks_exact(block)) {
                let range = row * columns + index * block..row * columns + (index + 1) * block;
                for (error, (value, found)) in
                    errors[range.clone()].iter_mut().zip(rows[range].iter().zip(found))
                {
                    *error = value - found;
                }
            }
        }
        Ok((0..limits.len()).map(|row| going.contains(&row)).collect())
    }

    /// The block `index` of the rows `going`, one after the other, with what makes up for the errors in later blocks.
    fn wanted(&self, index: usize, rows: &[f32], errors: &[f32], going: &[usize]) -> Vec<f32> {
        let range = index * self.block..(index + 1) * self.block;
        let block = |row: &usize| rows[row * self.columns..][range.clone()].iter().copied();
        let mut wanted: Vec<f32> = going.iter().flat_map(block).collect();
        for later in range.end..self.columns {
            let factors = &self.factor[later * self.columns..][range.clone()];
            for (row, wanted) in going.iter().zip(wanted.chunks_exact_mut(self.block)) {
                let error = errors[row * self.columns + later];
                wanted.iter_mut().zip(factors).for_each(|(wanted, factor)| *wanted += error * factor);
            }
        }
        wanted
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

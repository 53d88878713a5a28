//! Feedback of errors: what is lost in a column of a matrix is made up for by the columns that are encoded later, as far as
//! their inputs go together. With H = L D L^T, L with a unit diagonal, and columns encoded from the last one to the first,
//! column k becomes the encoding of `w_k + sum over columns j done of (w_j - ŵ_j) L[j, k]`. Two methods:
//!
//! - LDLQ with blocks (QuIP#, QTIP): a block of columns is what a format's encoder takes at once, any encoder; L has unit blocks on
//!   its diagonal.
//! - GPTQ: when a block is reached, its scales are fixed by what it should be then; its columns are encoded one after the other,
//!   with feedback among them. It goes from the first column to the last, so H is turned around. The published form has the
//!   Cholesky factor U of H^-1 and changes what is left of the weights after each column; U is the inverse of L's mirror image, and
//!   the results are the same (QuIP, theorem 6), without an inverse.

use crate::backend::cpu::pool::Pool;
use crate::error::Result;
use crate::quant::Format;
use crate::quant::levels::Levels;
use crate::simd::Isa;

use super::cholesky;

/// How errors are made up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Block by block, from the last to the first.
    Ldlq,
    /// Column by column, from the first to the last. Formats whose weights have no codes of their own: block by block.
    Gptq,
}

impl Method {
    /// As it is written in files and commands.
    pub fn name(self) -> &'static str {
        match self {
            Method::Ldlq => "ldlq",
            Method::Gptq => "gptq",
        }
    }
}

/// The factor L of one matrix.
#[derive(Clone, Debug)]
pub struct Feedback {
    columns: usize,
    block: usize,
    method: Method,
    /// columns × columns: what an error of column j (row) adds to column k, which is encoded later. Within blocks, of GPTQ
    /// only, errors are those of what the block should be when it is reached.
    factor: Vec<f32>,
    levels: Option<Levels>,
    damping: f64,
}

/// Tries: each adds ten times as much to the diagonal, beginning with a hundredth of its mean.
pub(super) const DAMPING: [f64; 5] = [1e-2, 1e-1, 1.0, 10.0, 100.0];
/// A factor above this came of a matrix that is all but singular.
const LARGEST: f64 = 1e4;
/// Numbers may be so many times larger than the row's largest.
const PEAK: f32 = 4.0;

impl Feedback {
    /// LDLQ for the matrix whose inputs have the products `hessian`, `columns` × `columns`, of which the lower half is read.
    /// `None` if it has no factor even with much damping, as where inputs are not finite or all zero, or if rows are no
    /// whole number of blocks.
    pub fn ldlq(pool: &Pool, hessian: &[f64], columns: usize, block: usize) -> Option<Feedback> {
        DAMPING
            .into_iter()
            .find_map(|damping| Feedback::damped(pool, Method::Ldlq, damping, hessian, columns, block))
    }

    /// GPTQ for a matrix that becomes `format`; otherwise as [`Feedback::ldlq`].
    pub fn gptq(pool: &Pool, hessian: &[f64], columns: usize, format: &'static Format) -> Option<Feedback> {
        let block = format.block_len;
        let feedback = DAMPING
            .into_iter()
            .find_map(|damping| Feedback::damped(pool, Method::Gptq, damping, hessian, columns, block))?;
        feedback.choosing(format).ok()
    }

    /// With `damping` times the mean of the diagonal added to it.
    pub(super) fn damped(
        pool: &Pool,
        method: Method,
        damping: f64,
        hessian: &[f64],
        n: usize,
        block: usize,
    ) -> Option<Feedback> {
        if block == 0 || n == 0 || !n.is_multiple_of(block) {
            return None;
        }
        let mean = (0..n).map(|i| hessian[i * n + i]).sum::<f64>() / n as f64;
        if !(mean > 0.0 && mean.is_finite()) {
            return None;
        }
        let mut lower = vec![0.0; n * n];
        pool.chunks_mut(&mut lower, n, 16, |i, row| {
            for (j, value) in row[..=i].iter_mut().enumerate() {
                *value = match method {
                    Method::Ldlq => hessian[i * n + j],
                    Method::Gptq => hessian[(n - 1 - j) * n + (n - 1 - i)],
                } / mean;
            }
            row[i] += damping;
        });
        let isa = Isa::detect().unwrap_or(Isa::Scalar);
        cholesky::factor(pool, isa, &mut lower, n)?;
        if !lower.iter().all(|value| value.abs() < LARGEST) {
            return None;
        }
        unit_blocks(pool, &mut lower, n, block);
        let mut factor: Vec<f32> = lower.into_iter().map(|value| value as f32).collect();
        if method == Method::Gptq {
            // Row and column n - 1 - i become i.
            factor.reverse();
        }
        Some(Feedback { columns: n, block, method, factor, levels: None, damping })
    }

    /// Chooses codes of `format` one by one, where it has such.
    pub(super) fn choosing(self, format: &'static Format) -> Result<Feedback> {
        let levels = if self.method == Method::Gptq { Levels::of(format)? } else { None };
        Ok(Feedback { levels, ..self })
    }

    /// What was added to the diagonal, as a share of its mean.
    pub fn damping(&self) -> f64 {
        self.damping
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
            if let Some(levels) = &self.levels {
                let goals = self.choose(levels, index, wanted, &mut encoded)?;
                // Scales of later groups were fixed before it was known what earlier ones would leave to them.
                if levels.groups && goals.iter().all(|goal| goal.is_finite()) {
                    format.encode_for_file(&goals, importance, &mut encoded)?;
                    self.choose(levels, index, wanted, &mut encoded)?;
                }
            }
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

    /// Chooses the codes of the block `index` of some rows anew, column by column; scales stay. What each column should have been
    /// when it was reached.
    fn choose(&self, levels: &Levels, index: usize, wanted: &[f32], encoded: &mut [u8]) -> Result<Vec<f32>> {
        let (block, first, count) = (self.block, index * self.block, levels.count());
        let (mut table, mut goals) = (vec![0.0; block * count], wanted.to_vec());
        let bytes = (encoded.len() / (wanted.len() / block).max(1)).max(1);
        let rows = wanted.chunks_exact(block).zip(goals.chunks_exact_mut(block));
        for ((wanted, goal), encoded) in rows.zip(encoded.chunks_exact_mut(bytes)) {
            levels.read(encoded, &mut table)?;
            for (k, values) in table.chunks_exact(count).enumerate() {
                let code = nearest(values, goal[k]);
                levels.write(encoded, k, code);
                let error = wanted[k] - values[code];
                let factors = &self.factor[(first + k) * self.columns + first..][k + 1..block];
                goal[k + 1..].iter_mut().zip(factors).for_each(|(goal, factor)| *goal += error * factor);
            }
        }
        Ok(goals)
    }

    /// Goes through `rows` block by block, in the method's order. `encode` is told the index of the block, the rows that go on, the
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
        let blocks = columns / block;
        for step in 0..blocks {
            let index = if self.method == Method::Ldlq { blocks - 1 - step } else { step };
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

    /// The block `index` of the rows `going`, one after the other, with what makes up for the errors of blocks that are done.
    fn wanted(&self, index: usize, rows: &[f32], errors: &[f32], going: &[usize]) -> Vec<f32> {
        let range = index * self.block..(index + 1) * self.block;
        let block = |row: &usize| rows[row * self.columns..][range.clone()].iter().copied();
        let mut wanted: Vec<f32> = going.iter().flat_map(block).collect();
        let done = match self.method {
            Method::Ldlq => range.end..self.columns,
            Method::Gptq => 0..range.start,
        };
        for done in done {
            let factors = &self.factor[done * self.columns..][range.clone()];
            for (row, wanted) in going.iter().zip(wanted.chunks_exact_mut(self.block)) {
                let error = errors[row * self.columns + done];
                wanted.iter_mut().zip(factors).for_each(|(wanted, factor)| *wanted += error * factor);
            }
        }
        wanted
    }
}

/// The index of the value nearest to `goal`; of equal ones the first. What is not finite is never taken.
fn nearest(values: &[f32], goal: f32) -> usize {
    let mut best = (0, f32::INFINITY);
    for (index, value) in values.iter().enumerate() {
        let distance = (value - goal).abs();
        if distance < best.1 {
            best = (index, distance);
        }
    }
    best.0
}

/// Multiplies each block of columns by the inverse of its block on the diagonal: X B = L, row by row from its last column.
/// Blocks on the diagonal get a unit diagonal.
fn unit_blocks(pool: &Pool, lower: &mut [f64], n: usize, block: usize) {
    let diagonal = |at: usize| &lower[at * n + at / block * block..][..block];
    let diagonals: Vec<f64> = (0..n).flat_map(|row| diagonal(row).to_vec()).collect();
    pool.chunks_mut(lower, n, 16, |index, row| {
        let (own, blocks) = (index / block, diagonals.chunks_exact(block * block));
        for (row, diagonal) in row.chunks_exact_mut(block).zip(blocks).take(own) {
            for j in (0..block).rev() {
                row[j] /= diagonal[j * block + j];
                let (before, own) = row.split_at_mut(j);
                let factors = &diagonal[j * block..j * block + j];
                before.iter_mut().zip(factors).for_each(|(value, factor)| *value -= own[0] * factor);
            }
        }
        for column in own * block..=index {
            row[column] /= diagonals[column * block + column % block];
        }
    });
}

//! The CPU: rows are split over a thread pool, dots are taken from the weights' [`Format`].
//! Every result is the same bits for any number of threads, any batch and any instruction set.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::hidden::Spares;
use super::{AttentionShape, Backend, Heads, Hidden, Linear, RmsNorm, Rotation, Source, Span};
use crate::cache::{CacheType, LayerCache};
use crate::error::{Error, Result};
use crate::quant::Format;
use crate::quant::panel::{Inputs, Multiply, Scratch};
use crate::simd::Isa;
use crate::tensor::Tensor;

mod attention;
mod matmul;
mod matrix;
pub mod pool;
mod rows;
mod source;
#[cfg(test)]
mod tests;

use matmul::Before;
use pool::Pool;

/// What weights are multiplied with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// Rounded to 8 bits a block, as the weights' format asks: fast.
    #[default]
    Quantized,
    /// f32 against decoded weights: slow, the reference.
    Float,
}

/// A thread pool, memory to use again and the choices that hold for a whole run.
#[derive(Debug)]
pub struct Cpu {
    pool: Pool,
    spares: Spares,
    isa: Isa,
    activations: Activations,
    repack: bool,
    /// One a thread.
    scratch: Mutex<Vec<Workspace>>,
}

/// Memory of a thread that lasts from one operation to the next.
#[derive(Debug, Default)]
struct Workspace {
    panel: Scratch,
    /// Of attention: the queries that panels of keys are multiplied with.
    queries: Inputs,
    /// Of attention.
    floats: Vec<f32>,
}

impl Cpu {
    /// # Errors
    /// [`Error::Option`] if `threads` is zero or the system refuses them, if the CPU lacks `isa`, or if `HADAL_ISA`
    /// names no known set.
    pub fn new(threads: Option<usize>, isa: Option<Isa>, activations: Activations) -> Result<Self> {
        let isa = match isa {
            Some(isa) if !isa.is_available() => {
                return Err(Error::option("isa", format!("this CPU has no {}", isa.name())));
            }
            Some(isa) => isa,
            None => Isa::detect()?,
        };
        let threads = match threads {
            Some(0) => return Err(Error::option("--threads", "0 threads: at least 1 is needed")),
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let pool = Pool::new(threads)
            .map_err(|error| Error::option("--threads", format!("{threads} threads: {error}")))?;
        Ok(Cpu { pool, spares: Spares::default(), isa, activations, repack: true, scratch: Mutex::default() })
    }

    /// Whether weights are repacked for products with many tokens, some rows at a time and for no longer than the
    /// product lasts. Without, prompts are read more slowly; the results are the same bits.
    #[must_use]
    pub fn with_repack(mut self, repack: bool) -> Self {
        self.repack = repack;
        self
    }

    /// The kernel that repacks weights of `format` for a product with `tokens`; `None` if they are multiplied as stored.
    pub fn panel(&self, format: &'static Format, tokens: usize) -> Option<Multiply> {
        /// For fewer tokens unpacking takes longer than it saves.
        const WORTH_UNPACKING: usize = 4;
        match self.activations {
            Activations::Float if format.block_len > 1 => Some(format.multiply_decoded(self.isa)),
            _ if tokens >= WORTH_UNPACKING && self.repack => format.multiply(self.isa),
            _ => None,
        }
    }

    /// Bytes of repacked weights and of what else the kernels for many tokens keep.
    pub fn repack_bytes(&self) -> usize {
        self.scratch().iter().map(|scratch| scratch.panel.bytes() + scratch.queries.bytes()).sum()
    }

    /// Scratch of every thread.
    fn scratch(&self) -> MutexGuard<'_, Vec<Workspace>> {
        // Its numbers are written before they are read, whatever panicked while it was locked.
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        scratch.resize_with(self.pool.threads(), Workspace::default);
        scratch
    }

    /// `look` at every row of `source`, in order.
    pub fn each_source_row(&self, source: Source, mut look: impl FnMut(&[f32])) {
        let mut scratch = self.spares.take(1, source.columns());
        (0..source.rows()).for_each(|row| look(source.row(self.isa, row, scratch.values_mut())));
    }

    /// What the work is shared with.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Threads of the pool.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Rows of a part of work on every element of `rows` rows; a few rows are one part, which the caller does.
    fn rows_per_part(&self, rows: usize, columns: usize) -> usize {
        const ELEMENTS_WORTH_A_PART: usize = 8 * 1024;
        rows.div_ceil(4 * self.threads()).max(ELEMENTS_WORTH_A_PART / columns).max(1)
    }

    /// `work` on every row, with its index.
    fn each_row(&self, x: &mut Hidden, work: impl Fn(usize, &mut [f32]) + Sync) {
        let (rows, columns) = (x.rows(), x.columns());
        self.pool.chunks_mut(x.values_mut(), columns, self.rows_per_part(rows, columns), work);
    }
}

impl Backend for Cpu {
    fn blank(&self, rows: usize, columns: usize) -> Hidden {
        self.spares.take(rows, columns)
    }

    fn embed(&self, table: &Tensor, tokens: &[u32], scale: f32) -> Result<Hidden> {
        let mut x = self.blank(tokens.len(), table.columns());
        for (out, &token) in x.values_mut().chunks_exact_mut(table.columns()).zip(tokens) {
            let row = token as usize;
            if row >= table.rows() {
                return Err(Error::Tokenizer(format!(
                    "token {token} is not in the model's {} rows",
                    table.rows()
                )));
            }
            table.format().decode(table.row(row), out)?;
            out.iter_mut().for_each(|value| *value *= scale);
        }
        Ok(x)
    }

    fn linear(&self, source: Source, layers: &[&Linear], out: &mut [Hidden]) -> Result<()> {
        matmul::linear(self, source, layers, out, Before::Replaced)
    }

    fn add_linear(
        &self,
        x: &mut Hidden,
        source: Source,
        layer: &Linear,
        norm: Option<&RmsNorm>,
    ) -> Result<()> {
        let Some(norm) = norm else {
            return matmul::linear(self, source, &[layer], std::slice::from_mut(x), Before::AddedTo);
        };
        let mut y = [Hidden::empty()];
        matmul::linear(self, source, &[layer], &mut y, Before::Replaced)?;
        self.each_row(x, |row, x| rows::add_normed(self.isa, x, y[0].row(row), norm));
        Ok(())
    }

    fn append(
        &self,
        cache: &mut LayerCache,
        rows: &mut Heads,
        norms: [Option<&RmsNorm>; 2],
        rotation: &Rotation,
    ) -> Result<()> {
        let dim = cache.shape().dim;
        for (heads, norm) in [&mut rows.query, &mut rows.key].into_iter().zip(norms) {
            self.each_row(heads, |index, row| {
                if let Some(norm) = norm {
                    rows::norm_heads(self.isa, row, norm);
                }
                rows::rotate(self.isa, row, dim, rotation.turns.row(index), rotation.interleaved);
            });
        }
        cache.append(self.isa, rows.key.values(), rows.value.values())
    }

    fn convert(&self, cache: &mut LayerCache, kind: CacheType) -> Result<()> {
        cache.convert(self.isa, kind)
    }

    fn attention(
        &self,
        query: &Hidden,
        cache: &LayerCache,
        at: Span,
        shape: AttentionShape,
    ) -> Result<Hidden> {
        attention::attention(self, query, cache, at, shape)
    }

    fn softcap(&self, x: &mut Hidden, cap: f32) -> Result<()> {
        self.each_row(x, |_, row| rows::softcap(self.isa, row, cap));
        Ok(())
    }

    fn scratch_bytes(&self) -> u64 {
        let floats: usize = self.scratch().iter().map(|scratch| size_of_val(&scratch.floats[..])).sum();
        (self.repack_bytes() + floats) as u64 + self.spares.bytes()
    }
}

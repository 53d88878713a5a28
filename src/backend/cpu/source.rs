//! What matrices read: rows as they are, normalized or gated, as blocks of the format that the weights are multiplied with.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Cpu, rows};
use crate::backend::{Hidden, Source};
use crate::error::Result;
use crate::quant::Format;
use crate::quant::panel::{Inputs, Multiply};
use crate::simd::Isa;

/// Rows of a [`Source`] in blocks of `format`.
pub struct Input {
    pub format: &'static Format,
    blocks: Hidden,
    rows: usize,
    row_bytes: usize,
    /// What products are to be multiplied with, one number a row, where rows were made smaller to fit.
    factors: Option<Vec<f32>>,
    /// The rows as the kernels for many tokens read them, of which there are two kinds.
    panels: [Option<Inputs>; 2],
}

impl Input {
    /// One row is done by the caller: the threads would take longer to begin.
    pub fn quantize(cpu: &Cpu, format: &'static Format, source: Source) -> Result<Self> {
        let (rows, columns) = (source.rows(), source.columns());
        let row_bytes = format.bytes_for(columns)?;
        let mut blocks = cpu.spares.take(1, (rows * row_bytes).div_ceil(size_of::<f32>()));
        let mut scratch = cpu.spares.take(cpu.threads(), columns);
        let bytes = &mut bytemuck::cast_slice_mut(blocks.values_mut())[..rows * row_bytes];
        let too_large = AtomicBool::new(false);
        let quantize = |values: &[f32], bytes: &mut [u8]| {
            format.quantize(cpu.isa, values, bytes).expect("an encoder, and as many bytes as it writes");
        };
        cpu.pool.chunks_with(
            scratch.values_mut(),
            bytes,
            row_bytes,
            cpu.rows_per_part(rows, columns),
            |scratch, row, bytes| {
                let values = source.row(cpu.isa, row, scratch);
                if format.largest < f32::INFINITY && exceeds(values, format.largest) {
                    too_large.store(true, Ordering::Relaxed);
                }
                quantize(values, bytes);
            },
        );
        let mut factors = None;
        if too_large.into_inner() {
            let scratch = &mut scratch.values_mut()[..columns];
            let shrink = |(row, bytes)| {
                let mut values = source.row(cpu.isa, row, scratch).to_vec();
                let factor = shrink(&mut values, format.largest);
                quantize(&values, bytes);
                factor
            };
            factors = Some(bytes.chunks_exact_mut(row_bytes).enumerate().map(shrink).collect());
        }
        Ok(Input { format, blocks, rows, row_bytes, factors, panels: [None, None] })
    }

    /// What products with row `row` are to be multiplied with.
    #[inline]
    pub fn factor(&self, row: usize) -> f32 {
        self.factors.as_ref().map_or(1.0, |factors| factors[row])
    }

    /// Prepares the rows for `panel`, if that was not done for another.
    pub fn prepare(&mut self, cpu: &Cpu, panel: Multiply, columns: usize) {
        if self.panel(panel).is_some() {
            return;
        }
        let mut inputs = panel.prepare(self.rows, columns);
        let bytes = self.bytes();
        let runs = inputs.runs_mut();
        let per_part = runs.len().div_ceil(4 * cpu.threads());
        let mut runs: Vec<_> = runs.collect();
        cpu.pool.chunks_mut(&mut runs, 1, per_part, |_, run| run[0].fill(bytes));
        drop(runs);
        let free = self.panels.iter_mut().find(|panels| panels.is_none());
        *free.expect("a kernel is of one of two kinds") = Some(inputs);
    }

    /// The rows as `panel` reads them, once prepared.
    pub fn panel(&self, panel: Multiply) -> Option<&Inputs> {
        self.panels.iter().flatten().find(|inputs| panel.takes(inputs))
    }

    /// Tokens.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The blocks of row `row`.
    #[inline]
    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes()[row * self.row_bytes..(row + 1) * self.row_bytes]
    }

    /// All rows, one after the other.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(self.blocks.values())[..self.rows * self.row_bytes]
    }
}

/// Whether a value's magnitude is above `largest`, or it is no number.
fn exceeds(values: &[f32], largest: f32) -> bool {
    let largest = largest.to_bits();
    // Magnitudes are ordered as their bits are, and integers are compared many at a time.
    values.iter().fold(false, |found, value| found | (value.abs().to_bits() > largest))
}

/// Divides `values` by the power of two, which is given, that brings all finite ones to `largest` or below. The product
/// of what is left with anything is the true one over that power, to the bit.
fn shrink(values: &mut [f32], largest: f32) -> f32 {
    let finite = values.iter().map(|value| value.abs()).filter(|value| value.is_finite());
    let most = finite.fold(0.0, f32::max);
    let mut factor = 1.0;
    while most / factor > largest {
        factor *= 2.0;
    }
    values.iter_mut().for_each(|value| *value /= factor);
    factor
}

impl Source<'_> {
    /// Row `row`, in `scratch` if it is not there already.
    pub(super) fn row<'s>(&'s self, isa: Isa, row: usize, scratch: &'s mut [f32]) -> &'s [f32] {
        match self {
            Source::Plain(x) => return x.row(row),
            Source::Normed(x, norm) => rows::norm(isa, scratch, x.row(row), norm),
            Source::Gated(gate, a, b) => rows::gated(isa, scratch, *gate, a.row(row), b.row(row)),
        }
        scratch
    }
}

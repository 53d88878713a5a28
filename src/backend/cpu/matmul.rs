//! Weights × activations: `output[token, row] = weights[row, :] · input[token, :]`.
//!
//! One region multiplies all matrices of a source: its tasks are runs of weight rows, each with all tokens.

use std::ops::Range;

use super::matrix::{Block, Matrix};
use super::source::Input;
use super::{Activations, Cpu, rows};
use crate::backend::{Hidden, Linear, MOST_TOGETHER, Source};
use crate::error::{Error, Result};
use crate::quant::{Format, RowDot, f32};
use crate::tensor::Tensor;

/// Tokens that pass over a run of weight rows together: their quantized rows stay in the second-level cache.
const TOKEN_TILE: usize = 32;
/// Weight rows of a task are a multiple of this.
const ROW_STEP: usize = 16;
/// Bytes of weights of a task: half a second-level cache or less, and microseconds of work.
const TASK_BYTES: usize = 64 * 1024;

/// The products of `layers` with `source`, written to `out`; that of the first layer is added to `add_to`.
pub fn linear(
    cpu: &Cpu,
    source: Source,
    layers: &[&Linear],
    out: &mut [Hidden],
    mut add_to: Option<&mut Hidden>,
) -> Result<()> {
    assert!(layers.len() == out.len() && out.len() <= MOST_TOGETHER, "one output a layer");
    let tokens = source.rows();
    // One for each input format that the layers ask for.
    let mut inputs = [const { None::<Input> }; MOST_TOGETHER];
    for layer in layers {
        let product = Product::new(cpu, layer, &source)?;
        let known =
            inputs.iter().position(|i| i.as_ref().is_none_or(|i| std::ptr::eq(i.format, product.input)));
        let slot = &mut inputs[known.expect("no more formats than layers")];
        if slot.is_none() {
            *slot = Some(Input::quantize(cpu, product.input, source)?);
        }
    }
    let mut jobs = [const { None::<Job> }; MOST_TOGETHER];
    for ((job, layer), out) in jobs.iter_mut().zip(layers).zip(out) {
        *out = cpu.spares.take(tokens, layer.weight.rows());
        let product = Product::new(cpu, layer, &source)?;
        let input = inputs.iter().flatten().find(|input| std::ptr::eq(input.format, product.input));
        let input = input.expect("quantized above");
        let add_to = add_to.take().map(Matrix::new);
        let per_task = rows_per_task(&layer.weight, tokens, cpu.threads());
        *job = Some(Job { product, input, out: Matrix::new(out), add_to, per_task });
    }
    run(cpu, &jobs, source.columns());
    Ok(())
}

/// Enough tasks to balance, enough work in each to be worth its start.
fn rows_per_task(weight: &Tensor, tokens: usize, threads: usize) -> usize {
    let share = weight.rows().div_ceil(4 * threads);
    let cached = if tokens > 1 { 64 } else { TASK_BYTES / weight.row_bytes().max(1) };
    share.min(cached).max(1).next_multiple_of(ROW_STEP)
}

/// All tasks of all jobs as one region.
fn run(cpu: &Cpu, jobs: &[Option<Job>; MOST_TOGETHER], columns: usize) {
    let parts = jobs.iter().flatten().map(Job::tasks).sum();
    let decodes = jobs.iter().flatten().any(|job| job.product.decodes);
    let mut scratch = cpu.spares.take(cpu.threads(), if decodes { 2 * columns } else { 0 });
    cpu.pool.run_with(scratch.values_mut(), parts, |scratch, part| {
        let mut task = part;
        for job in jobs.iter().flatten() {
            if task < job.tasks() {
                return job.run(cpu, task, scratch);
            }
            task -= job.tasks();
        }
    });
}

/// A matrix, what it is multiplied with, and where the result goes.
struct Job<'a> {
    product: Product<'a>,
    input: &'a Input,
    out: Matrix<'a>,
    add_to: Option<Matrix<'a>>,
    /// Weight rows.
    per_task: usize,
}

impl Job<'_> {
    fn tasks(&self) -> usize {
        self.product.weight.rows().div_ceil(self.per_task)
    }

    /// Task `task` of this job, once in a region.
    fn run(&self, cpu: &Cpu, task: usize, scratch: &mut [f32]) {
        let first = task * self.per_task;
        let rows = first..self.product.weight.rows().min(first + self.per_task);
        let tokens = self.input.rows();
        // SAFETY: tasks have different rows of the weights, which are columns here, and each is run once.
        let mut out = unsafe { self.out.block(0..tokens, rows.clone()) };
        self.product.multiply(rows.clone(), self.input, &mut out, scratch);
        if let Some(bias) = self.product.bias {
            (0..tokens).for_each(|token| rows::add(cpu.isa, out.row(token), &bias[rows.clone()]));
        }
        if let Some(x) = &self.add_to {
            // SAFETY: as above; it is another matrix.
            let mut x = unsafe { x.block(0..tokens, rows) };
            (0..tokens).for_each(|token| rows::add(cpu.isa, x.row(token), out.row(token)));
        }
    }
}

/// One matrix with everything that is decided before its loops.
struct Product<'a> {
    weight: &'a Tensor,
    row_bytes: usize,
    bias: Option<&'a [f32]>,
    input: &'static Format,
    dot: RowDot,
    /// Whether weight rows are decoded to f32 first.
    decodes: bool,
}

impl<'a> Product<'a> {
    fn new(cpu: &Cpu, layer: &'a Linear, source: &Source) -> Result<Self> {
        let weight = &layer.weight;
        if weight.columns() != source.columns() {
            let message = format!("takes {} columns, the input has {}", weight.columns(), source.columns());
            return Err(Error::tensor(weight.name(), message));
        }
        let format = weight.format();
        let unusable = || Error::tensor(weight.name(), format!("{} is not a type of weights", format.name));
        let decodes = cpu.activations == Activations::Float && format.block_len > 1;
        let multiplied = if decodes { &f32::FORMAT } else { format };
        let dot = multiplied.row_dot(cpu.isa).ok_or_else(unusable)?;
        let input = multiplied.dot.as_ref().ok_or_else(unusable)?.input;
        let (row_bytes, bias) = (weight.row_bytes(), layer.bias.as_deref());
        Ok(Product { weight, row_bytes, bias, input, dot, decodes })
    }

    /// The weight rows `rows` with all tokens: `out` is tokens × rows.
    fn multiply(&self, rows: Range<usize>, input: &Input, out: &mut Block, scratch: &mut [f32]) {
        if input.rows() == 1 {
            let (input, out) = (input.row(0), out.row(0));
            for (out, row) in out.iter_mut().zip(rows) {
                *out = self.dot.call(self.weight_row(row, scratch), input);
            }
            return;
        }
        for from in (0..input.rows()).step_by(TOKEN_TILE) {
            let tokens = from..input.rows().min(from + TOKEN_TILE);
            for (column, row) in rows.clone().enumerate() {
                let weights = self.weight_row(row, scratch);
                self.dots(weights, input, tokens.clone(), column, out);
            }
        }
    }

    /// One weight row with some tokens, four at a time.
    fn dots(&self, weights: &[u8], input: &Input, tokens: Range<usize>, column: usize, out: &mut Block) {
        let mut token = tokens.start;
        while token + 4 <= tokens.end {
            let row = |i: usize| input.row(token + i);
            let dots = self.dot.call4(weights, [row(0), row(1), row(2), row(3)]);
            for (i, dot) in dots.into_iter().enumerate() {
                out.row(token + i)[column] = dot;
            }
            token += 4;
        }
        for token in token..tokens.end {
            out.row(token)[column] = self.dot.call(weights, input.row(token));
        }
    }

    /// The row as `dot` wants it. `scratch` holds twice a row if the product decodes.
    fn weight_row<'s>(&self, row: usize, scratch: &'s mut [f32]) -> &'s [u8]
    where
        'a: 's,
    {
        let stored = &self.weight.bytes()[row * self.row_bytes..][..self.row_bytes];
        if !self.decodes {
            return stored;
        }
        let (values, bytes) = scratch.split_at_mut(self.weight.columns());
        let bytes = bytemuck::cast_slice_mut(&mut bytes[..values.len()]);
        self.weight.format().decode(stored, values).expect("a tensor's rows are whole blocks");
        f32::FORMAT.quantize(self.dot.isa(), values, bytes).expect("four bytes a number");
        bytes
    }
}

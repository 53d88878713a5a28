//! Weights × activations: `output[token, row] = weights[row, :] · input[token, :]`.
//!
//! One region multiplies all matrices of a source: its tasks are runs of weight rows, each with all tokens.

use std::ops::Range;

use super::Cpu;
use super::matrix::{Block, Matrix};
use super::source::Input;
use crate::backend::{Hidden, Linear, MOST_TOGETHER, Source};
use crate::error::{Error, Result};
use crate::quant::panel::{self, Multiply, Scratch};
use crate::quant::{Format, RowDot};
use crate::tensor::Tensor;

/// Weight rows of a task are a multiple of this.
const ROW_STEP: usize = 16;
/// Bytes of weights of a task: half a second-level cache or less, and microseconds of work.
const TASK_BYTES: usize = 64 * 1024;

/// What becomes of the numbers that were where a product goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Before {
    /// They are replaced: the place is made for the product.
    Replaced,
    /// The product is added to them.
    AddedTo,
}

/// The products of `layers` with `source`, written to `out`.
pub fn linear(
    cpu: &Cpu,
    source: Source,
    layers: &[&Linear],
    out: &mut [Hidden],
    before: Before,
) -> Result<()> {
    assert!(layers.len() == out.len() && out.len() <= MOST_TOGETHER, "one output a layer");
    let tokens = source.rows();
    // One for each input format that the layers ask for.
    let mut inputs = [const { None::<Input> }; MOST_TOGETHER];
    let mut products = [const { None::<Product> }; MOST_TOGETHER];
    for (kept, layer) in products.iter_mut().zip(layers) {
        let product = kept.insert(Product::new(cpu, layer, &source)?);
        let known =
            inputs.iter().position(|i| i.as_ref().is_none_or(|i| std::ptr::eq(i.format, product.input)));
        let slot = &mut inputs[known.expect("no more formats than layers")];
        if slot.is_none() {
            *slot = Some(Input::quantize(cpu, product.input, source)?);
        }
        if let (Some(input), Some(panel)) = (slot, product.panel) {
            input.prepare(cpu, panel, source.columns());
        }
    }
    let mut jobs = [const { None::<Job> }; MOST_TOGETHER];
    for ((job, product), out) in jobs.iter_mut().zip(products.into_iter().flatten()).zip(out) {
        if before == Before::Replaced {
            *out = cpu.spares.take(tokens, product.weight.rows());
        }
        let input = inputs.iter().flatten().find(|input| std::ptr::eq(input.format, product.input));
        let input = input.expect("quantized above");
        let per_task = rows_per_task(product.weight, tokens, cpu.threads());
        *job = Some(Job { product, input, out: Matrix::new(out), before, per_task });
    }
    run(cpu, &jobs);
    Ok(())
}

/// Enough tasks to balance, enough work in each to be worth its start.
fn rows_per_task(weight: &Tensor, tokens: usize, threads: usize) -> usize {
    let share = weight.rows().div_ceil(4 * threads);
    let cached = if tokens > 1 { 64 } else { TASK_BYTES / weight.row_bytes().max(1) };
    share.min(cached).max(1).next_multiple_of(ROW_STEP)
}

/// All tasks of all jobs as one region.
fn run(cpu: &Cpu, jobs: &[Option<Job>; MOST_TOGETHER]) {
    let parts = jobs.iter().flatten().map(Job::tasks).sum();
    let mut scratch = cpu.scratch();
    cpu.pool.run_with(&mut scratch, parts, |scratch, part| {
        let mut task = part;
        for job in jobs.iter().flatten() {
            if task < job.tasks() {
                return job.run(task, &mut scratch[0].panel);
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
    before: Before,
    /// Weight rows.
    per_task: usize,
}

impl Job<'_> {
    fn tasks(&self) -> usize {
        self.product.weight.rows().div_ceil(self.per_task)
    }

    /// Task `task` of this job, once in a region.
    fn run(&self, task: usize, scratch: &mut Scratch) {
        let first = task * self.per_task;
        let rows = first..self.product.weight.rows().min(first + self.per_task);
        let tokens = self.input.rows();
        // SAFETY: tasks have different rows of the weights, which are columns here, and each is run once.
        let block = unsafe { self.out.block(0..tokens, rows.clone()) };
        let bias = self.product.bias.map(|bias| &bias[rows.clone()]);
        let mut out = Target { block, bias, before: self.before, input: self.input };
        self.product.multiply(rows, self.input, &mut out, scratch);
    }
}

/// Where the products of a task go.
struct Target<'a> {
    /// Tokens × rows of weights.
    block: Block<'a>,
    bias: Option<&'a [f32]>,
    before: Before,
    input: &'a Input,
}

impl Target<'_> {
    /// Takes the `dots` of `token` with the rows from `first` on, once: before + (dot * factor + bias).
    #[inline]
    fn put(&mut self, token: usize, first: usize, dots: &[f32]) {
        let out = &mut self.block.row(token)[first..][..dots.len()];
        let factor = self.input.factor(token);
        let place = |out: &mut f32, sum: f32| {
            *out = if self.before == Before::AddedTo { *out + sum } else { sum };
        };
        match self.bias {
            None => out.iter_mut().zip(dots).for_each(|(out, dot)| place(out, dot * factor)),
            Some(bias) => {
                let biased = dots.iter().zip(&bias[first..]).map(|(dot, bias)| dot * factor + bias);
                out.iter_mut().zip(biased).for_each(|(out, sum)| place(out, sum));
            }
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
    /// For many tokens, or for weights that are decoded to f32 first.
    panel: Option<Multiply>,
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
        let dot = format.row_dot(cpu.isa).ok_or_else(unusable)?;
        let panel = cpu.panel(format, source.rows());
        let input = match panel {
            Some(panel) => panel.input(),
            None => format.dot.as_ref().ok_or_else(unusable)?.input,
        };
        let (row_bytes, bias) = (weight.row_bytes(), layer.bias.as_deref());
        Ok(Product { weight, row_bytes, bias, input, dot, panel })
    }

    /// The weight rows `rows` with all tokens.
    fn multiply(&self, rows: Range<usize>, input: &Input, out: &mut Target, scratch: &mut Scratch) {
        let first = rows.start;
        let weights = &self.weight.bytes()[first * self.row_bytes..rows.end * self.row_bytes];
        if let Some((panel, inputs)) = self.panel.and_then(|panel| Some((panel, input.panel(panel)?))) {
            for (i, weights) in weights.chunks(panel::ROWS * self.row_bytes).enumerate() {
                panel.run(weights, inputs, scratch, |token, dots| out.put(token, i * panel::ROWS, dots));
            }
            return;
        }
        for token in 0..input.rows() {
            self.dots(weights, input.row(token), |first, dots| out.put(token, first, dots));
        }
    }

    /// All of `weights` with one input, four rows at a time: `out(row, dots)` is called in order of the rows.
    fn dots(&self, weights: &[u8], input: &[u8], mut out: impl FnMut(usize, &[f32])) {
        let mut first = 0;
        let mut fours = weights.chunks_exact(4 * self.row_bytes);
        for weights in &mut fours {
            let row = |i: usize| &weights[i * self.row_bytes..][..self.row_bytes];
            out(first, &self.dot.rows4([row(0), row(1), row(2), row(3)], input));
            first += 4;
        }
        for weights in fours.remainder().chunks_exact(self.row_bytes) {
            out(first, &[self.dot.call(weights, input)]);
            first += 1;
        }
    }
}

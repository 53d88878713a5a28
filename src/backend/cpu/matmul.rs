//! Weights × activations: `output[token, row] = weights[row, :] · input[token, :]`.

use std::borrow::Cow;

use rayon::prelude::*;

use super::Activations;
use crate::backend::{Hidden, Linear};
use crate::error::{Error, Result};
use crate::quant::{Format, RowDot, f32};
use crate::simd::Isa;
use crate::tensor::Tensor;

/// All `layers` of the same input, which is quantized once for each input format that they ask for.
pub fn linear(isa: Isa, activations: Activations, input: &Hidden, layers: &[&Linear]) -> Result<Vec<Hidden>> {
    let mut quantized: Vec<(&'static Format, Vec<u8>)> = Vec::new();
    let mut outputs = Vec::with_capacity(layers.len());
    for layer in layers {
        let weight = &layer.weight;
        if weight.columns() != input.columns() {
            let message = format!("takes {} columns, the input has {}", weight.columns(), input.columns());
            return Err(Error::tensor(weight.name(), message));
        }
        let product = Product::new(isa, activations, weight)?;
        if !quantized.iter().any(|(format, _)| std::ptr::eq(*format, product.input)) {
            quantized.push((product.input, quantize(isa, product.input, input)?));
        }
        let rows = quantized.iter().find(|(format, _)| std::ptr::eq(*format, product.input));
        let (_, rows) = rows.expect("pushed above");
        let mut output = product.run(rows, input.rows());
        if let Some(bias) = &layer.bias {
            for row in output.chunks_exact_mut(bias.len()) {
                row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
            }
        }
        outputs.push(Hidden::new(output, weight.rows()));
    }
    Ok(outputs)
}

/// Rows of activations as blocks of `format`, one after the other.
fn quantize(isa: Isa, format: &'static Format, input: &Hidden) -> Result<Vec<u8>> {
    let row_bytes = format.bytes_for(input.columns())?;
    let mut rows = vec![0; row_bytes * input.rows()];
    let values = input.values().par_chunks_exact(input.columns());
    rows.par_chunks_exact_mut(row_bytes)
        .zip(values)
        .try_for_each(|(row, values)| format.quantize(isa, values, row))?;
    Ok(rows)
}

/// One matrix with everything that is decided before its loops.
struct Product<'a> {
    weight: &'a Tensor,
    input: &'static Format,
    dot: RowDot,
    /// Whether weight rows are decoded to f32 first.
    decodes: bool,
}

impl<'a> Product<'a> {
    fn new(isa: Isa, activations: Activations, weight: &'a Tensor) -> Result<Self> {
        let format = weight.format();
        let unusable = || Error::tensor(weight.name(), format!("{} is not a type of weights", format.name));
        let decodes = activations == Activations::Float && format.block_len > 1;
        let multiplied = if decodes { &f32::FORMAT } else { format };
        let dot = multiplied.row_dot(isa).ok_or_else(unusable)?;
        let input = multiplied.dot.as_ref().ok_or_else(unusable)?.input;
        Ok(Product { weight, input, dot, decodes })
    }

    /// `rows` holds `tokens` input rows; the result is tokens × weight rows.
    fn run(&self, rows: &[u8], tokens: usize) -> Vec<f32> {
        let outputs = self.weight.rows();
        let row_bytes = rows.len() / tokens;
        // Rows a task: enough tasks to balance, enough work in each to be worth its start.
        let rows_per_task = outputs.div_ceil(4 * rayon::current_num_threads()).max(16);
        let mut transposed = vec![0.0; outputs * tokens];
        transposed.par_chunks_mut(rows_per_task * tokens).enumerate().for_each(|(task, out)| {
            let first = task * rows_per_task;
            let mut r = 0;
            if tokens == 1 && !self.decodes {
                for out in out.as_chunks_mut::<4>().0 {
                    let weights = std::array::from_fn(|i| self.weight.row(first + r + i));
                    *out = self.dot.rows4(weights, rows);
                    r += 4;
                }
            }
            for (r, out) in out.chunks_exact_mut(tokens).enumerate().skip(r) {
                let weights = self.weight_row(first + r);
                for (out, input) in out.iter_mut().zip(rows.chunks_exact(row_bytes)) {
                    *out = self.dot.call(&weights, input);
                }
            }
        });
        if tokens == 1 { transposed } else { transpose(&transposed, tokens) }
    }

    fn weight_row(&self, row: usize) -> Cow<'a, [u8]> {
        let stored = self.weight.row(row);
        if !self.decodes {
            return Cow::Borrowed(stored);
        }
        let mut values = vec![0.0f32; self.weight.columns()];
        self.weight.format().decode(stored, &mut values).expect("a tensor's rows are whole blocks");
        Cow::Owned(values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }
}

/// rows × columns to columns × rows.
fn transpose(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    let mut out = vec![0.0; values.len()];
    out.par_chunks_exact_mut(rows).enumerate().for_each(|(column, out)| {
        for (row, out) in out.iter_mut().enumerate() {
            *out = values[row * columns + column];
        }
    });
    out
}

//! What matrices read, as sums of products: H = sum of x x^T over the inputs x of a text. To first order the squared error of a
//! layer's outputs is tr(E H E^T), where E is the error of its weights (GPTQ, QuIP).

use std::sync::Arc;

use indexmap::IndexMap;

use crate::backend::cpu::Cpu;
use crate::backend::{Backend, Hidden, Linear, Source};
use crate::error::Result;
use crate::quant::f32;
use crate::tensor::{Bytes, Tensor};

/// Of matrices that were looked at. Those with one input share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Hessians {
    /// By a matrix's name, which of `sums`.
    names: IndexMap<String, usize>,
    sums: Vec<Products>,
}

/// The lower half of H.
#[derive(Clone, Debug)]
pub(super) struct Products {
    columns: usize,
    /// columns × columns; above the diagonal nothing is added.
    pub values: Vec<f64>,
    /// Inputs that were left out, as they are not finite: nothing could be made of them.
    pub skipped: usize,
}

impl Products {
    pub fn new(columns: usize) -> Products {
        Products { columns, values: vec![0.0; columns * columns], skipped: 0 }
    }

    /// Elements of an input.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The sum of the diagonal: of the squares of all inputs.
    pub fn trace(&self) -> f64 {
        self.values.iter().step_by(self.columns + 1).sum()
    }

    /// Adds inputs, rows of `columns` numbers. Products of one call are summed in f32, as matrix products are.
    pub fn add(&mut self, cpu: &Cpu, inputs: &[f32]) -> Result<()> {
        /// Columns whose products are in memory at once.
        const COLUMNS: usize = 256;
        let n = self.columns;
        let finite = |row: &[f32]| row.iter().all(|value| value.is_finite());
        let rows: Vec<&[f32]> = inputs.chunks_exact(n).filter(|row| finite(row)).collect();
        self.skipped += inputs.len() / n - rows.len();
        if rows.is_empty() {
            return Ok(());
        }
        // Columns as rows: their products with each other are what is asked for.
        let turned: Vec<f32> = (0..n).flat_map(|column| rows.iter().map(move |row| row[column])).collect();
        let bytes: Arc<Vec<u8>> = Arc::new(turned.iter().flat_map(|value| value.to_le_bytes()).collect());
        for first in (0..n).step_by(COLUMNS) {
            let end = (first + COLUMNS).min(n);
            let data = Bytes::Shared(Arc::clone(&bytes), 0..end * rows.len() * 4);
            let weight = Tensor::new("inputs", vec![end, rows.len()], &f32::FORMAT, data)?;
            let some = Hidden::new(turned[first * rows.len()..end * rows.len()].to_vec(), rows.len());
            let mut out = [Hidden::empty()];
            cpu.linear(Source::Plain(&some), &[&Linear { weight, bias: None }], &mut out)?;
            for row in first..end {
                let sums = self.values[row * n..=row * n + row].iter_mut();
                sums.zip(out[0].row(row - first)).for_each(|(sum, value)| *sum += f64::from(*value));
            }
        }
        Ok(())
    }
}

impl Hessians {
    /// The sums that matrices of the same input share.
    pub fn shared<'a>(&mut self, names: impl Iterator<Item = &'a str>, columns: usize) -> &mut Products {
        let names: Vec<&str> = names.collect();
        let known = names.first().and_then(|name| self.names.get(*name)).copied();
        let index = known.unwrap_or_else(|| {
            self.sums.push(Products::new(columns));
            self.sums.len() - 1
        });
        for name in names {
            self.names.insert(name.into(), index);
        }
        &mut self.sums[index]
    }

    /// Of what the matrix `name` read, if it read anything.
    pub fn of(&self, name: &str) -> Option<&Products> {
        self.names.get(name).map(|&index| &self.sums[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Activations;

    #[test]
    fn products_are_those_of_the_columns() {
        let mut random = fastrand::Rng::with_seed(5);
        let cpu = Cpu::new(Some(2), None, Activations::Float).unwrap();
        let n = 300;
        let mut products = Products::new(n);
        let mut expected = vec![0.0; n * n];
        for rows in [1, 3, 40] {
            let mut inputs: Vec<f32> = (0..rows * n).map(|_| random.f32() - 0.5).collect();
            for row in inputs.chunks(n) {
                for at in 0..n * n {
                    expected[at] += f64::from(row[at / n]) * f64::from(row[at % n]);
                }
            }
            // Left out.
            inputs.extend((0..n).map(|i| if i == 7 { f32::INFINITY } else { 1.0 }));
            products.add(&cpu, &inputs).unwrap();
        }
        assert_eq!(products.skipped, 3);
        for (at, (found, expected)) in products.values.iter().zip(&expected).enumerate() {
            let expected = if at % n <= at / n { *expected } else { 0.0 };
            assert!((found - expected).abs() < 1e-4, "{at}: {found}, {expected}");
        }
    }
}

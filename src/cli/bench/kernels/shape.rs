//! The matrices that are multiplied: their shape, and enough of them.

use hadal::backend::Linear;
use hadal::quant::Format;
use hadal::tensor::{Bytes, Tensor};
use hadal::{Error, Result};

/// Weights that no cache holds: a walk over so many bytes reads them from memory.
const UNCACHED_BYTES: usize = 160 << 20;

/// Rows that are made; the others repeat them. What lies in memory twice is still read twice.
const MADE_ROWS: usize = 61;

/// Elements of weights and of activations that are taken on at most.
const MAX_ELEMENTS: usize = 1 << 30;

/// outputs × inputs of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub outputs: usize,
    pub inputs: usize,
}

/// `NxK`, like 2048x8192.
pub fn shape(text: &str) -> Result<Shape, String> {
    let sizes = text.split_once('x').and_then(|(n, k)| Some((n.parse().ok()?, k.parse().ok()?)));
    match sizes {
        Some((outputs @ 1.., inputs @ 1..)) => Ok(Shape { outputs, inputs }),
        _ => Err("must be two whole numbers of at least 1, like 2048x8192".into()),
    }
}

impl Shape {
    /// # Errors
    /// [`Error::Option`] if rows of `format` cannot be this long, or the numbers are more than fits in memory.
    pub fn check(self, format: &Format, tokens: usize) -> Result<()> {
        let Shape { outputs, inputs } = self;
        format.bytes_for(inputs).map_err(|error| Error::option("--shape", error.to_string()))?;
        for (name, rows, columns) in
            [("--shape", outputs, inputs), ("--rows", tokens, inputs), ("--rows", tokens, outputs)]
        {
            if rows.checked_mul(columns).is_none_or(|elements| elements > MAX_ELEMENTS) {
                let message = format!("{rows} x {columns} numbers, at most {MAX_ELEMENTS}");
                return Err(Error::option(name, message));
            }
        }
        Ok(())
    }

    /// Matrices of this shape: one, or as many as no cache holds.
    pub fn matrices(self, format: &'static Format, cached: bool) -> Result<Vec<Linear>> {
        let Shape { outputs, inputs } = self;
        let row_bytes = format.bytes_for(inputs)?;
        let made = rows(format, MADE_ROWS, inputs)?;
        let count = if cached { 1 } else { UNCACHED_BYTES.div_ceil(outputs * row_bytes) };
        let matrix = |_| {
            let bytes: Vec<u8> = made.iter().copied().cycle().take(outputs * row_bytes).collect();
            let weight = Tensor::new("weight", vec![outputs, inputs], format, Bytes::Owned(bytes.into()))?;
            Ok(Linear { weight, bias: None })
        };
        (0..count).map(matrix).collect()
    }
}

/// Rows of random weights.
fn rows(format: &Format, rows: usize, columns: usize) -> Result<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut bytes = vec![0; format.bytes_for(rows * columns)?];
    if format.has_encoder() {
        let values: Vec<f32> = (0..rows * columns).map(|_| 0.1 * (rng.f32() - 0.5)).collect();
        format.encode(&values, &mut bytes)?;
    } else {
        // Without bit 6 in a byte no f16 scale is an infinity or a NaN, and codes are still of every kind.
        bytes.fill_with(|| rng.u8(..) & !0x40);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hadal::quant::FORMATS;

    #[test]
    fn shapes_are_read_or_refused() {
        assert_eq!(shape("3x256"), Ok(Shape { outputs: 3, inputs: 256 }));
        for text in ["", "x", "3", "3x", "x3", "0x3", "3x0", "-1x3", "3x3x3"] {
            assert!(shape(text).is_err(), "{text}");
        }
    }

    #[test]
    fn matrices_are_finite_and_many() {
        let shape = Shape { outputs: 100, inputs: 256 };
        for format in FORMATS.iter().copied().filter(|format| format.dot.is_some()) {
            let matrices = shape.matrices(format, true).unwrap();
            let values = matrices[0].weight.to_f32().unwrap();
            assert!(matrices.len() == 1 && values.iter().all(|value| value.is_finite()), "{}", format.name);
            assert!(values.iter().any(|&value| value != values[0]), "{}", format.name);
        }
        let matrices = Shape { outputs: 2048, inputs: 8192 }.matrices(FORMATS[0], false).unwrap();
        let bytes: usize = matrices.iter().map(|matrix| matrix.weight.bytes().len()).sum();
        assert!(bytes >= UNCACHED_BYTES, "{bytes}");
    }
}

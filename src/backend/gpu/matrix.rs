//! Weights on the device: some layers' matrices one above the other, cut into chunks that a binding can hold.

use std::ops::Range;
use std::sync::Arc;

use super::device::Device;
use super::record::{Buffer, Work};
use crate::backend::Linear;
use crate::error::{Error, Result};
use crate::quant::Format;
use crate::tensor::Tensor;

/// Rows of weights of one format.
#[derive(Debug)]
pub struct Matrix {
    pub format: &'static Format,
    pub columns: usize,
    /// Layers in it.
    pub parts: usize,
    pub chunks: Vec<Chunk>,
    /// Whether some layer has a bias.
    pub biased: bool,
    /// The format's codebook.
    pub grid: Option<Arc<Buffer>>,
}

/// Rows that are bound together.
#[derive(Debug)]
pub struct Chunk {
    pub buffer: Arc<Buffer>,
    pub first_row: usize,
    pub rows: usize,
    /// Of these rows.
    pub bias: Option<Arc<Buffer>>,
}

impl Chunk {
    /// Of a product of `rows` of its rows with `tokens` rows of inputs.
    pub fn work(&self, rows: usize, columns: usize, tokens: usize) -> Work {
        let bytes = self.buffer.bytes * rows as u64 / self.rows as u64;
        Work { bytes, macs: (rows * columns * tokens) as u64 }
    }
}

/// Shaders read a word behind the last one.
const PADDING: u64 = 8;
/// Rows of a chunk: workgroups of at least 16 rows are not more than the 65,535 of a dimension.
const MOST_ROWS: u64 = 1 << 20;

/// `rows` in pieces that a binding of `binding` bytes holds; `None` if it holds no row.
fn cut(rows: usize, row_bytes: u64, binding: u64) -> Option<impl Iterator<Item = Range<usize>>> {
    let most = (binding.checked_sub(PADDING)? / row_bytes.max(1)).min(MOST_ROWS) as usize;
    let pieces = (0..rows).step_by(most.max(1)).map(move |from| from..rows.min(from + most));
    (most > 0).then_some(pieces)
}

impl Matrix {
    /// Uploads the matrices of `layers`, which have the same format and columns.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the format has no shader or columns are no multiple of 32.
    pub fn upload(device: &Device, layers: &[&Linear]) -> Result<Matrix> {
        let tensors: Vec<&Tensor> = layers.iter().map(|layer| &layer.weight).collect();
        let bias = layers.iter().any(|layer| layer.bias.is_some()).then(|| {
            let bias = |layer: &&Linear| match &layer.bias {
                Some(bias) => bias.to_vec(),
                None => vec![0.0; layer.weight.rows()],
            };
            layers.iter().flat_map(bias).collect::<Vec<f32>>()
        });
        Matrix::from_tensors(device, &tensors, bias.as_deref())
    }

    /// Uploads one matrix.
    ///
    /// # Errors
    /// As [`Matrix::upload`].
    pub fn upload_tensor(device: &Device, tensor: &Tensor) -> Result<Matrix> {
        Matrix::from_tensors(device, &[tensor], None)
    }

    /// Of all layers.
    pub fn rows(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.rows).sum()
    }

    /// How many inputs share a scale where they are multiplied as signed bytes; `None` for weights that are numbers.
    pub fn input_group(&self) -> Option<u32> {
        let input = self.format.dot.as_ref()?.input;
        (input.block_len > 1).then_some(input.block_len as u32)
    }

    /// What every kernel binds of the weights: a chunk, and the codebook if there is one.
    pub fn bindings(&self, chunk: &Chunk) -> Vec<(u32, Arc<Buffer>)> {
        let mut bindings = vec![(1, Arc::clone(&chunk.buffer))];
        bindings.extend(self.grid.iter().map(|grid| (7, Arc::clone(grid))));
        bindings
    }

    fn from_tensors(device: &Device, tensors: &[&Tensor], bias: Option<&[f32]>) -> Result<Matrix> {
        let first = tensors[0];
        let format: &'static Format = first.format();
        if format.shader.is_none() || !first.columns().is_multiple_of(32) {
            let message =
                format!("{}: no shader for {} with {} columns", first.name(), format.name, first.columns());
            return Err(Error::gpu(device.name(), message));
        }
        let row_bytes = first.row_bytes() as u64;
        let total = tensors.iter().map(|tensor| tensor.rows()).sum();
        let pieces = cut(total, row_bytes, device.binding_bytes()).ok_or_else(|| {
            let message = format!("{}: a row of {row_bytes} bytes, more than a binding holds", first.name());
            Error::gpu(device.name(), message)
        })?;
        let mut chunks = Vec::new();
        for rows in pieces {
            let buffer = Buffer::new(rows.len() as u64 * row_bytes + PADDING);
            write_rows(device, &buffer, tensors, rows.clone())?;
            let upload = |bias: &[f32]| device.upload(bytemuck::cast_slice(&bias[rows.clone()]));
            let bias = bias.map(upload).transpose()?;
            chunks.push(Chunk { buffer, first_row: rows.start, rows: rows.len(), bias });
        }
        let grid = format.codebook.map(|grid| device.upload(grid.bytes())).transpose()?;
        Ok(Matrix {
            format,
            columns: first.columns(),
            parts: tensors.len(),
            chunks,
            biased: bias.is_some(),
            grid,
        })
    }
}

/// Copies rows of the tensors, as if one stood above the other, in pieces of whole words.
fn write_rows(device: &Device, buffer: &Buffer, tensors: &[&Tensor], rows: Range<usize>) -> Result<()> {
    let mut bytes = Vec::new();
    let (mut first, mut at) = (0, 0);
    for tensor in tensors {
        let from = rows.start.clamp(first, first + tensor.rows()) - first;
        let to = rows.end.clamp(first, first + tensor.rows()) - first;
        let row_bytes = tensor.row_bytes();
        tensor.data().pieces(from * row_bytes..to * row_bytes, 1 << 22, |piece| {
            bytes.extend_from_slice(piece);
            let whole = bytes.len() / 4 * 4;
            device.write(buffer, at, &bytes[..whole])?;
            at += whole as u64;
            bytes.drain(..whole);
            Ok(())
        })?;
        first += tensor.rows();
    }
    if !bytes.is_empty() {
        bytes.resize(4, 0);
        device.write(buffer, at, &bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_cut_where_a_binding_ends() {
        let floor = 128 << 20;
        // A vocabulary of 262144 × 2048 in Q8_0; 11 GB of f16, which no 32 bits count; more rows than workgroups.
        let cases = [
            (262_144, 2176, floor, 5),
            (1 << 20, 10_752, floor, 85),
            (1 << 20, 10_752, u64::from(u32::MAX), 3),
            (5 << 20, 18, floor, 5),
            (3, 1 << 20, floor, 1),
            (0, 34, floor, 0),
        ];
        for (rows, row_bytes, binding, count) in cases {
            let pieces: Vec<_> = cut(rows, row_bytes, binding).expect("rows that fit").collect();
            assert_eq!(pieces.len(), count, "{rows} × {row_bytes}");
            let fits = |piece: &Range<usize>| piece.len() as u64 * row_bytes + PADDING <= binding;
            assert!(pieces.iter().all(|piece| !piece.is_empty() && fits(piece)));
            let ends = pieces.windows(2).all(|pair| pair[0].end == pair[1].start);
            assert!(ends && pieces.last().map_or(0, |last| last.end) == rows);
        }
        assert!(cut(1, floor, floor).is_none() && cut(1, 1, 4).is_none());
    }
}

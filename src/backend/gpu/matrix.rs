//! Weights on the device: some layers' matrices one above the other, cut into chunks that a binding can hold.

use std::sync::Arc;

use super::device::Device;
use super::record::Buffer;
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

/// Shaders read a word behind the last one.
const PADDING: usize = 8;

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

    /// Whether weights are numbers, not blocks of codes.
    pub fn is_float(&self) -> bool {
        self.format.block_len == 1
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
        let row_bytes = first.row_bytes();
        let most = (device.binding_bytes() as usize - PADDING) / row_bytes;
        let total: usize = tensors.iter().map(|tensor| tensor.rows()).sum();
        let mut chunks = Vec::new();
        let mut from = 0;
        while from < total {
            let rows = most.min(total - from);
            let buffer = Buffer::new((rows * row_bytes + PADDING) as u64);
            write_rows(device, &buffer, tensors, from..from + rows);
            let bias = bias.map(|bias| device.upload(bytemuck::cast_slice(&bias[from..from + rows])));
            chunks.push(Chunk { buffer, first_row: from, rows, bias });
            from += rows;
        }
        let grid = format.codebook.map(|grid| device.upload(grid.bytes()));
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
fn write_rows(device: &Device, buffer: &Buffer, tensors: &[&Tensor], rows: std::ops::Range<usize>) {
    let mut bytes = Vec::new();
    let (mut first, mut at) = (0, 0);
    for tensor in tensors {
        let from = rows.start.clamp(first, first + tensor.rows()) - first;
        let to = rows.end.clamp(first, first + tensor.rows()) - first;
        let row_bytes = tensor.row_bytes();
        for piece in tensor.bytes()[from * row_bytes..to * row_bytes].chunks(1 << 22) {
            bytes.extend_from_slice(piece);
            let whole = bytes.len() / 4 * 4;
            device.write(buffer, at, &bytes[..whole]);
            at += whole as u64;
            bytes.drain(..whole);
        }
        first += tensor.rows();
    }
    if !bytes.is_empty() {
        bytes.resize(4, 0);
        device.write(buffer, at, &bytes);
    }
}

//! Importance of a matrix's columns: the mean squares of its inputs over a text, by which errors of its weights are
//! weighed. Stored as llama.cpp's `llama-imatrix` does, in GGUF: `NAME.in_sum2` (matrices × columns) and `NAME.counts`
//! (matrices × 1), where a tensor has one matrix, or one an expert.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use crate::error::{Error, Result};
use crate::file::gguf::{Declared, Plan, Writer};
use crate::file::metadata::Array;
use crate::file::{Metadata, Value, Weights};
use crate::quant::f32;

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// Importance for the matrices of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// Where it was read from.
    pub path: Option<PathBuf>,
    /// The texts it was measured with.
    pub datasets: Vec<String>,
    /// Chunks of text.
    pub chunks: u32,
    /// Tokens of a chunk.
    pub chunk_size: u32,
    /// By the matrix's name.
    pub entries: IndexMap<String, Sums>,
}

/// Inputs of one tensor's matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// Sums of squares, matrices × columns.
    pub squares: Vec<f32>,
    /// Inputs of each matrix.
    pub counts: Vec<f32>,
    /// Means of squares, matrices × columns.
    means: Vec<f32>,
}

impl Sums {
    /// `squares` has the same number of columns for each of `counts`.
    pub fn new(squares: Vec<f32>, counts: Vec<f32>) -> Sums {
        let columns = squares.len() / counts.len().max(1);
        let mut means = squares.clone();
        for (means, &count) in means.chunks_mut(columns.max(1)).zip(&counts) {
            // An expert that no token came to: all its columns count alike.
            means.iter_mut().for_each(|mean| *mean = if count > 0.0 { *mean / count } else { 1.0 });
        }
        Sums { squares, counts, means }
    }
}

impl Imatrix {
    /// Reads a file of `llama-imatrix`, or one of ours.
    ///
    /// # Errors
    /// Those of [`Weights::open`], and [`Error::Tensor`] for sums without counts or of another shape.
    pub fn open(path: &Path) -> Result<Imatrix> {
        let weights = Weights::open(path)?;
        if weights.metadata.str("general.type")? != Some("imatrix") {
            let message = "is no GGUF file of importance (general.type is not imatrix)".into();
            return Err(Error::File { path: path.into(), message });
        }
        let mut entries = IndexMap::new();
        for name in weights.tensors.keys().filter_map(|name| name.strip_suffix(SUMS)) {
            let squares = weights.tensor(&format!("{name}{SUMS}"))?;
            let counts = weights.tensor(&format!("{name}{COUNTS}"))?.to_f32()?;
            let (matrices, squares) = (squares.rows(), squares.to_f32()?);
            let positive = |value: &f32| value.is_finite() && *value >= 0.0;
            if counts.len() != matrices || !squares.iter().chain(&counts).all(positive) {
                let message = format!("{matrices} matrices of sums of squares and {} counts", counts.len());
                return Err(Error::tensor(name, message));
            }
            entries.insert(name.to_owned(), Sums::new(squares, counts));
        }
        let datasets = weights.metadata.strs("imatrix.datasets")?;
        let datasets = datasets.into_iter().flat_map(|texts| texts.iter().map(str::to_owned)).collect();
        Ok(Imatrix {
            path: Some(path.into()),
            datasets,
            chunks: weights.metadata.u32("imatrix.chunk_count")?.unwrap_or(0),
            chunk_size: weights.metadata.u32("imatrix.chunk_size")?.unwrap_or(0),
            entries,
        })
    }

    /// Writes a file that `llama-quantize` reads too.
    ///
    /// # Errors
    /// Those of [`Writer`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut metadata = Metadata::default();
        metadata.set("general.type", Value::String("imatrix".into()));
        metadata.set("imatrix.datasets", Value::Array(Array::String(self.datasets.iter().collect())));
        metadata.set("imatrix.chunk_count", Value::U32(self.chunks));
        metadata.set("imatrix.chunk_size", Value::U32(self.chunk_size));
        let mut tensors = Vec::new();
        for (name, sums) in &self.entries {
            let matrices = sums.counts.len();
            let shape = [matrices, sums.squares.len() / matrices.max(1)];
            tensors.push(Declared::new(format!("{name}{SUMS}"), &shape, &f32::FORMAT)?);
            tensors.push(Declared::new(format!("{name}{COUNTS}"), &[matrices, 1], &f32::FORMAT)?);
        }
        let plan = Plan { metadata, parts: vec![tensors.len()], tensors };
        let mut writer = Writer::create(path, &plan)?;
        for sums in self.entries.values() {
            for values in [&sums.squares, &sums.counts] {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                writer.tensor(&bytes)?;
            }
        }
        writer.finish()
    }

    /// Importance of the columns of the tensor `name`, of several matrices one after the other.
    pub fn columns(&self, name: &str) -> Option<&[f32]> {
        self.entries.get(name).map(|sums| &sums.means[..])
    }

    /// Adds to a quantized file's metadata what it was weighed with.
    pub(super) fn describe(&self, metadata: &mut Metadata) {
        if let Some(path) = &self.path {
            metadata.set("quantize.imatrix.file", Value::String(path.display().to_string()));
        }
        if let Some(dataset) = self.datasets.first() {
            metadata.set("quantize.imatrix.dataset", Value::String(dataset.clone()));
        }
        metadata.set("quantize.imatrix.entries_count", Value::U32(self.entries.len() as u32));
        metadata.set("quantize.imatrix.chunks_count", Value::U32(self.chunks));
    }
}

/// Refuses importance that does not fit a tensor of `shape`.
pub(super) fn check(name: &str, shape: &[usize], importance: &[f32]) -> Result<()> {
    let columns = shape.last().copied().unwrap_or(1);
    let experts = shape.iter().rev().skip(2).product::<usize>();
    if importance.len() == columns || importance.len() == columns * experts {
        return Ok(());
    }
    let message = format!("{shape:?}, but the importance is of {} columns", importance.len());
    Err(Error::tensor(name, message))
}

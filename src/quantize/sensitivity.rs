//! How much each matrix counts: what a model's predictions lose when this matrix alone has another format. Measured on a text, kept
//! as JSON, and what formats are chosen by under a budget.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::plan::{conversion, is_matrix};
use super::run::{Rows, named, pool};
use crate::error::{Error, Result};
use crate::file::{Entry, Weights, output};
use crate::quant::Format;
use crate::tensor::Bytes;

/// Losses by matrix and format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// What they were measured on.
    pub text: String,
    /// Windows of 512 tokens that were read of it.
    pub windows: usize,
    /// Of a tensor, of a format: the mean Kullback-Leibler divergence from the model without it, in nats.
    pub tensors: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Sensitivity {
    /// Reads what [`Sensitivity::save`] wrote.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::File`] if it is something else.
    pub fn open(path: &Path) -> Result<Sensitivity> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
        let wrong = |message: String| Error::File { path: path.into(), message };
        let found: Sensitivity = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        for (name, losses) in &found.tensors {
            if let Some((format, loss)) = losses.iter().find(|(_, loss)| !loss.is_finite()) {
                return Err(wrong(format!("{name} as {format}: {loss} is no finite number")));
            }
        }
        Ok(found)
    }

    /// Writes JSON.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("texts and finite numbers");
        output::write(path, format!("{text}\n").as_bytes())
    }

    /// The loss with `name` as `format`.
    pub fn of(&self, name: &str, format: &Format) -> Option<f64> {
        self.tensors.get(name)?.get(format.name).copied()
    }

    /// The same, for what must be known.
    pub(super) fn expect(&self, name: &str, format: &Format) -> Result<f64> {
        let missing =
            || Error::option("--sensitivity", format!("{name} was not measured as {}", format.name));
        self.of(name, format).ok_or_else(missing)
    }
}

/// The formats that matrices may get under a budget if `recipe` is asked for, from small to large.
pub use super::allocate::ladder;

/// The matrices of a model, which are what formats are chosen for.
pub fn matrices(weights: &Weights) -> impl Iterator<Item = &str> {
    let matrices = weights.tensors.iter().filter(|(name, entry)| is_matrix(name, entry));
    matrices.map(|(name, _)| name.as_str())
}

/// The matrix `name` as `format`, or what takes its place where rows are no whole number of blocks. `None` if that is what the
/// matrix has already.
///
/// # Errors
/// [`Error::Tensor`] if there is none of that name, or if it can't be made.
pub fn replacement(
    weights: &Weights,
    name: &str,
    format: &'static Format,
    threads: Option<usize>,
) -> Result<Option<Entry>> {
    let entry = weights.tensors.get(name).ok_or_else(|| Error::tensor(name, "is not in the file"))?;
    let made = conversion(name, entry, Some(format))?;
    let (Some(from), Some(to)) = (entry.format, made.to) else { return Ok(None) };
    let columns = entry.shape.last().copied().unwrap_or(1);
    let count = made.weights() as usize / columns.max(1);
    let rows = Rows { from, to, columns, count, importance: None, order: None, feedback: None };
    let bytes = rows.encode(&pool(threads)?, &entry.data.unshared()).map_err(named(name, columns))?;
    Ok(Some(Entry {
        type_name: made.type_name(),
        type_id: to.gguf_id,
        format: Some(to),
        data: Bytes::Owned(bytes.into()),
        ..entry.clone()
    }))
}

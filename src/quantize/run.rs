//! The work: each tensor is decoded row by row, encoded on all cores and written.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::feedback::Feedback;
use super::journal::Journal;
use super::{Conversion, Plan};
use crate::backend::cpu::pool::Pool;
use crate::convert::RowOrder;
use crate::error::{Error, Result};
use crate::file::Entry;
use crate::file::gguf::Writer;
use crate::quant::{Format, f32};
use crate::simd::Isa;
use crate::tensor::Bytes;

/// Where the work begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first tensor, whatever an earlier run left.
    Anew,
    /// Where an earlier run of the same plan was stopped, or at the first tensor if there was none.
    Resume,
}

/// The conversion of a file, one tensor a step. Dropped before [`Run::finish`] it can be resumed.
#[derive(Debug)]
pub struct Run<'a> {
    plan: &'a Plan<'a>,
    writer: Writer<'a>,
    journal: Journal,
    pool: Pool,
}

impl<'a> Run<'a> {
    /// Begins to write `path` with `threads` threads, by default one a core.
    ///
    /// # Errors
    /// [`Error::File`] if `path` is a part of the source, or if another source was begun there and is to be resumed;
    /// those of [`Writer::create`]; [`Error::Option`] if the system refuses the threads.
    pub fn new(plan: &'a Plan, path: &Path, threads: Option<usize>, start: Start) -> Result<Run<'a>> {
        refuse_source(plan, path)?;
        let pool = pool(threads)?;
        let parts = plan.weights.parts.iter().map(|part| part.path.as_path());
        let imatrix = plan.imatrix.and_then(|imatrix| imatrix.path.as_deref());
        let mut journal = Journal::new(&plan.file.paths(path)[0], parts.chain(imatrix));
        let mut resumed = None;
        if start == Start::Resume && journal.resume()? {
            resumed = Writer::resume(path, &plan.file, journal.done())?;
        }
        let mut writer = match resumed {
            Some(writer) => writer,
            None => {
                journal.restart();
                Writer::create(path, &plan.file)?
            }
        };
        writer.keep();
        Ok(Run { plan, writer, journal, pool })
    }

    /// Tensors that are done.
    pub fn done(&self) -> usize {
        self.writer.done()
    }

    /// Gives the files their names.
    ///
    /// # Errors
    /// Those of [`Writer::finish`].
    pub fn finish(self) -> Result<()> {
        self.writer.finish()?;
        self.journal.remove();
        Ok(())
    }

    /// Leaves everything on the disk, to be resumed. Without it up to a second's work would be done again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn pause(mut self) -> Result<()> {
        self.journal.write(self.writer.done(), || self.writer.sync())
    }

    fn step(&mut self, index: usize) -> Result<&'a Conversion> {
        let conversion = &self.plan.conversions[index];
        let entry = &self.plan.weights.tensors[index];
        let bytes = convert(&self.pool, self.plan, entry, conversion)?;
        self.writer.tensor(&bytes)?;
        if self.journal.is_due() {
            self.journal.write(self.writer.done(), || self.writer.sync())?;
        }
        Ok(conversion)
    }
}

impl<'a> Iterator for Run<'a> {
    type Item = Result<&'a Conversion>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.done();
        (index < self.plan.conversions.len()).then(|| self.step(index))
    }
}

/// Bytes of the tensor as the file will have them.
fn convert<'a>(pool: &Pool, plan: &Plan, entry: &'a Entry, conversion: &Conversion) -> Result<Cow<'a, [u8]>> {
    let name = &conversion.name;
    let order = RowOrder::of(plan.weights, name);
    let fold = plan.rotation.and_then(|rotation| Some((rotation, rotation.fold(name)?)));
    let (Some(from), to) = (entry.format, conversion.to.or(entry.format)) else {
        return Ok(Cow::Borrowed(&entry.data));
    };
    let to = to.expect("as there is one to begin with");
    if conversion.to.is_none() && order.is_none() && fold.is_none() {
        return Ok(match &entry.data {
            // Put together for this alone.
            woven @ Bytes::Woven(_) => Cow::Owned(woven.unshared().to_vec()),
            bytes => Cow::Borrowed(bytes),
        });
    }
    let columns = match (&entry.shape[..], order) {
        // Rows of a bias are single numbers.
        ([_], Some(_)) => 1,
        (shape, _) => shape.last().copied().unwrap_or(1),
    };
    let rows = Rows {
        from,
        to,
        columns,
        count: conversion.weights() as usize / columns.max(1),
        importance: plan.imatrix.and_then(|imatrix| imatrix.columns(name)),
        order,
        feedback: None,
    };
    // What is put together for this is gone behind it.
    let data = entry.data.unshared();
    let encoded = match fold {
        None => rows.encode(pool, &data),
        Some((rotation, fold)) => {
            let norm = fold.norm.map(|norm| norm_weights(plan, name, norm)).transpose()?;
            let decoded = Rows { to: &f32::FORMAT, importance: None, ..rows };
            let mut bytes = decoded.encode(pool, &data).map_err(named(name, columns))?;
            let mut values = vec![0.0; conversion.weights() as usize];
            f32::FORMAT.decode(&bytes, &mut values)?;
            rotation.apply(pool, name, columns, norm.as_deref(), &mut values);
            f32::FORMAT.quantize(Isa::Scalar, &values, &mut bytes)?;
            let turned = Rows { from: &f32::FORMAT, order: None, ..rows };
            turned.encode(pool, &bytes)
        }
    };
    encoded.map(Cow::Owned).map_err(named(name, columns))
}

/// An error that says in which tensor it is.
pub(super) fn named(name: &str, columns: usize) -> impl Fn(Error) -> Error {
    move |error| match error {
        Error::NonFinite { index, value, .. } => {
            let (row, column) = (index / columns, index % columns);
            Error::tensor(name, format!("row {row}, column {column} is {value}, no finite number"))
        }
        other => Error::tensor(name, other.to_string()),
    }
}

/// The weights of the norm whose output `name` reads: one of its layer, or one of its own.
fn norm_weights(plan: &Plan, name: &str, norm: &str) -> Result<Vec<f32>> {
    let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let norm = layer.map_or_else(|| norm.to_owned(), |(layer, _)| format!("blk.{layer}.{norm}"));
    let entry = plan.weights.tensors.get(&norm);
    let missing = || Error::tensor(&norm, format!("is not in the file, and {name} reads it"));
    let (entry, format) = entry.and_then(|entry| Some((entry, entry.format?))).ok_or_else(missing)?;
    let mut values = vec![0.0; entry.shape.iter().product()];
    format.decode(&entry.data, &mut values).map_err(named(&norm, values.len().max(1)))?;
    Ok(values)
}

/// Rows of one format that become rows of another.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub from: &'static Format,
    pub to: &'static Format,
    pub columns: usize,
    pub count: usize,
    /// Of every column; of several matrices (experts) one after the other.
    pub importance: Option<&'a [f32]>,
    pub order: Option<RowOrder>,
    /// Where the errors of a row's blocks go.
    pub feedback: Option<&'a Feedback>,
}

impl Rows<'_> {
    pub fn encode(&self, pool: &Pool, bytes: &[u8]) -> Result<Vec<u8>> {
        /// Weights that take some milliseconds.
        const WEIGHTS_A_PART: usize = 64 * 1024;
        let row_bytes = self.to.bytes_for(self.columns)?;
        let mut out = vec![0; row_bytes * self.count];
        if out.is_empty() {
            return Ok(out);
        }
        let per_part = WEIGHTS_A_PART.div_ceil(self.columns).min(self.count);
        let mut scratch = vec![0.0; per_part * self.columns * pool.threads()];
        let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        pool.chunks_with(&mut scratch, &mut out, row_bytes * per_part, 1, |values, part, out| {
            let first = part * per_part;
            let values = &mut values[..out.len() / row_bytes * self.columns];
            if let Err((row, error)) = self.encode_part(bytes, values, first, out) {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                // The first row in order is told, whichever thread was first.
                if failed.as_ref().is_none_or(|(first, _)| row < *first) {
                    *failed = Some((row, error));
                }
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(out),
            Some((row, Error::NonFinite { format, index, value })) => {
                Err(Error::NonFinite { format, index: row * self.columns + index, value })
            }
            Some((_, error)) => Err(error),
        }
    }

    /// The rows from `first` on. An error comes with the row that it counts columns from.
    fn encode_part(
        &self,
        bytes: &[u8],
        values: &mut [f32],
        first: usize,
        out: &mut [u8],
    ) -> std::result::Result<(), (usize, Error)> {
        let [from, to] = [self.from, self.to].map(|format| format.bytes_for(self.columns));
        let (from, to) = from.and_then(|from| Ok((from, to?))).map_err(|error| (first, error))?;
        let rows = values.chunks_exact_mut(self.columns).zip(out.chunks_exact_mut(to));
        for (row, (values, out)) in (first..).zip(rows) {
            let source = self.order.map_or(row, |order| order.source(row));
            let stored = &bytes[source * from..(source + 1) * from];
            match self.from.name == self.to.name {
                true => out.copy_from_slice(stored),
                false => self.from.decode(stored, values).map_err(|error| (row, error))?,
            }
        }
        if self.from.name == self.to.name {
            return Ok(());
        }
        let mut row = first;
        let end = first + values.len() / self.columns;
        while row < end {
            let (importance, matrix_end) = self.importance_of(row);
            let next = matrix_end.min(end);
            let values = &values[(row - first) * self.columns..(next - first) * self.columns];
            let out = &mut out[(row - first) * to..(next - first) * to];
            let encoded = match self.feedback {
                Some(feedback) => feedback.encode_rows(self.to, values, importance, out),
                None => self.to.encode_for_file(values, importance, out),
            };
            encoded.map_err(|error| (row, error))?;
            row = next;
        }
        Ok(())
    }

    /// Of the columns of the matrix that `row` is of, and where that matrix ends.
    fn importance_of(&self, row: usize) -> (Option<&[f32]>, usize) {
        let Some(importance) = self.importance else { return (None, self.count) };
        let matrices = importance.len() / self.columns;
        let rows = self.count.div_ceil(matrices);
        let matrix = row / rows;
        (Some(&importance[matrix * self.columns..(matrix + 1) * self.columns]), (matrix + 1) * rows)
    }
}

pub(super) fn pool(threads: Option<usize>) -> Result<Pool> {
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    Pool::new(threads).map_err(|error| Error::option("--threads", format!("{threads} threads: {error}")))
}

/// A file can't be its own source: nothing could be resumed from what it becomes.
fn refuse_source(plan: &Plan, path: &Path) -> Result<()> {
    for target in plan.file.paths(path) {
        let Ok(target) = target.canonicalize() else { continue };
        if plan.weights.parts.iter().any(|part| part.path.canonicalize().is_ok_and(|part| part == target)) {
            let message = "is the source: give the result another name".into();
            return Err(Error::File { path: target, message });
        }
    }
    Ok(())
}

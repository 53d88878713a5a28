//! Writing GGUF, version 3: a [`Plan`] says what a file holds, then tensors are given one after the other, so that no
//! more than one is in memory. Metadata keep their order and types and tensors theirs: a file that was written so and is
//! read and written again is the same bytes.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::{DEFAULT_ALIGNMENT, MAGIC, MAX_ALIGNMENT};
use crate::error::{Error, Result};
use crate::file::output::Output;
use crate::file::{Entry, Metadata, Value, Weights};
use crate::quant::Format;
use split::Part;

pub(super) mod split;
mod value;

const VERSION: u32 = 3;

/// A tensor that will be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The name in the file.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// GGUF's number of the type.
    pub type_id: u32,
    /// Bytes of its data.
    pub bytes: u64,
}

impl Declared {
    /// A tensor of one of our formats.
    ///
    /// # Errors
    /// [`Error::Tensor`] if GGUF has no type for `format`, a row is no whole number of blocks or the size overflows.
    pub fn new(name: impl Into<String>, shape: &[usize], format: &Format) -> Result<Declared> {
        let name = name.into();
        let error = |message| Error::tensor(&name, message);
        let type_id = format.gguf_id.ok_or_else(|| error(format!("GGUF has no type for {}", format.name)))?;
        let (columns, rows) = shape.split_last().unwrap_or((&1, &[]));
        let row = format.bytes_for(*columns).map_err(|cause| error(cause.to_string()))? as u64;
        let bytes = rows.iter().try_fold(row, |bytes, &dim| bytes.checked_mul(dim as u64));
        let bytes = bytes.ok_or_else(|| error(format!("{shape:?}: size overflow")))?;
        Ok(Declared { shape: shape.into(), type_id, bytes, name })
    }

    /// A tensor as it stands in another file.
    ///
    /// # Errors
    /// [`Error::Tensor`] if GGUF has no type for it, or its size is unknown.
    pub fn of(name: &str, entry: &Entry) -> Result<Declared> {
        let type_id = entry.type_id.or_else(|| entry.format?.gguf_id);
        let known = entry.format.is_some() || !entry.data.is_empty() || entry.shape.contains(&0);
        match type_id.filter(|_| known) {
            Some(type_id) => Ok(Declared {
                name: name.into(),
                shape: entry.shape.clone(),
                type_id,
                bytes: entry.data.len() as u64,
            }),
            None => Err(Error::tensor(name, format!("{} can't be written to GGUF", entry.type_name))),
        }
    }
}

/// What a model file holds: everything but the bytes of the tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Keys and values in file order. `general.alignment` is heeded; `split.*` are kept up to date.
    pub metadata: Metadata,
    /// Tensors in file order.
    pub tensors: Vec<Declared>,
    /// How many of the tensors each file takes; one number for a model that isn't split.
    pub parts: Vec<usize>,
}

impl Plan {
    /// `weights` as they are, in as many parts as they have.
    ///
    /// # Errors
    /// As [`Declared::of`].
    pub fn of(weights: &Weights) -> Result<Plan> {
        let tensors = weights.tensors.iter().map(|(name, entry)| Declared::of(name, entry));
        let mut parts = vec![0; weights.parts.len().max(1)];
        for entry in weights.tensors.values() {
            parts[entry.part] += 1;
        }
        Ok(Plan { metadata: weights.metadata.clone(), tensors: tensors.collect::<Result<_>>()?, parts })
    }

    /// Begins a new part wherever one would take more than `limit` bytes of tensors; a tensor above it has its own.
    pub fn split(&mut self, limit: u64) {
        self.parts = split::by_size(&self.tensors, limit);
    }

    /// One file, whatever there was.
    pub fn join(&mut self) {
        self.parts = vec![self.tensors.len()];
    }

    /// Bytes of all files.
    ///
    /// # Errors
    /// [`Error::Key`] if the alignment makes no sense.
    pub fn bytes(&self) -> Result<u64> {
        let parts = split::parts(self)?;
        Ok(parts.iter().map(|part| part.end(part.tensors.len())).sum())
    }

    /// The names of the files of a model called `path`.
    pub fn paths(&self, path: &Path) -> Vec<PathBuf> {
        split::paths(path, self.parts.len())
    }

    /// The file in memory. `data` gives the bytes of each tensor.
    ///
    /// # Errors
    /// As [`Writer::create`] and [`Writer::tensor`]; [`Error::Option`] if the plan has several parts.
    pub fn to_bytes<'a>(&self, data: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>> {
        let parts = split::parts(self)?;
        let [part] = &parts[..] else {
            return Err(Error::option("split", "parts are written to files"));
        };
        let mut out = part.header.clone();
        let mut data = data.into_iter();
        for tensor in part.tensors {
            let bytes = data.next().unwrap_or_default();
            check(tensor, bytes)?;
            out.extend_from_slice(bytes);
            out.resize(out.len().next_multiple_of(part.alignment as usize), 0);
        }
        Ok(out)
    }
}

/// Writes the tensors of a plan in order. The files have their names only after [`Writer::finish`].
#[derive(Debug)]
pub struct Writer<'a> {
    parts: Vec<Part<'a>>,
    paths: Vec<PathBuf>,
    /// Those that are begun, the last one being written.
    outputs: Vec<Output>,
    /// Tensors of the last part that are written.
    in_part: usize,
    done: usize,
}

impl<'a> Writer<'a> {
    /// Begins the files of a model called `path`; parts are named `NAME-00001-of-0000N.gguf`.
    ///
    /// # Errors
    /// [`Error::Key`] if the alignment makes no sense, [`Error::Option`] if there are more parts than names, and those
    /// of [`Output::create`].
    pub fn create(path: &Path, plan: &'a Plan) -> Result<Writer<'a>> {
        let parts = split::parts(plan)?;
        let mut writer = Writer { parts, paths: plan.paths(path), outputs: Vec::new(), in_part: 0, done: 0 };
        writer.begin_part()?;
        Ok(writer)
    }

    /// Continues files of which the first `done` tensors were written; `None` if they are not there, or begin otherwise.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn resume(path: &Path, plan: &'a Plan, done: usize) -> Result<Option<Writer<'a>>> {
        let (parts, paths) = (split::parts(plan)?, plan.paths(path));
        let (mut outputs, mut left) = (Vec::new(), done);
        for (index, part) in parts.iter().enumerate() {
            let in_part = left.min(part.tensors.len());
            let Some(output) = Output::resume(&paths[index], &part.header, part.end(in_part))? else {
                return Ok(None);
            };
            outputs.push(output);
            if left <= part.tensors.len() {
                break;
            }
            left -= in_part;
        }
        Ok(Some(Writer { parts, paths, outputs, in_part: left, done }))
    }

    /// Tensors written so far.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Writes the next tensor.
    ///
    /// # Errors
    /// [`Error::Tensor`] if `bytes` is not what was declared or no tensor is left; [`Error::Io`], which names the file.
    pub fn tensor(&mut self, bytes: &[u8]) -> Result<()> {
        while self.in_part == self.part().tensors.len() && self.outputs.len() < self.parts.len() {
            self.begin_part()?;
        }
        let part = self.part();
        let Some(tensor) = part.tensors.get(self.in_part) else {
            return Err(Error::tensor("", "one more than were declared"));
        };
        check(tensor, bytes)?;
        let padding = vec![0; part.padding(tensor.bytes)];
        let output = self.outputs.last_mut().expect("a part was begun");
        let written = output.write_all(bytes).and_then(|()| output.write_all(&padding));
        written.map_err(|error| Error::io(output.path(), error))?;
        self.in_part += 1;
        self.done += 1;
        Ok(())
    }

    /// Brings everything so far to the disk, so that it can be continued after a crash.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&self) -> Result<()> {
        self.outputs.last().map_or(Ok(()), Output::sync)
    }

    /// Leaves what was written where it is when the writer is dropped, to be continued with [`Writer::resume`].
    pub fn keep(&mut self) {
        self.outputs.iter_mut().for_each(Output::keep);
    }

    /// Gives the files their names.
    ///
    /// # Errors
    /// [`Error::Tensor`] names the first tensor that was not given; [`Error::Io`].
    pub fn finish(mut self) -> Result<()> {
        while self.in_part == self.part().tensors.len() && self.outputs.len() < self.parts.len() {
            self.begin_part()?;
        }
        if let Some(missing) = self.part().tensors.get(self.in_part) {
            return Err(Error::tensor(&missing.name, "was declared and not written"));
        }
        // All are on the disk before the first has its name.
        self.outputs.iter().try_for_each(Output::sync)?;
        self.outputs.into_iter().try_for_each(Output::commit)
    }

    fn part(&self) -> &Part<'a> {
        &self.parts[self.outputs.len() - 1]
    }

    fn begin_part(&mut self) -> Result<()> {
        let index = self.outputs.len();
        let mut output = Output::create(&self.paths[index])?;
        output.write_all(&self.parts[index].header).map_err(|error| Error::io(output.path(), error))?;
        if self.outputs.last().is_some_and(Output::is_kept) {
            output.keep();
        }
        self.outputs.push(output);
        self.in_part = 0;
        Ok(())
    }
}

/// Writes `weights` to `path` as they are.
///
/// # Errors
/// As [`Plan::of`] and [`Writer`].
pub fn write(path: &Path, weights: &Weights) -> Result<()> {
    let plan = Plan::of(weights)?;
    let mut writer = Writer::create(path, &plan)?;
    weights.tensors.values().try_for_each(|entry| writer.tensor(&entry.data))?;
    writer.finish()
}

fn check(tensor: &Declared, bytes: &[u8]) -> Result<()> {
    if bytes.len() as u64 == tensor.bytes {
        return Ok(());
    }
    Err(Error::tensor(&tensor.name, format!("{} bytes were declared, {} given", tensor.bytes, bytes.len())))
}

fn alignment(metadata: &Metadata) -> Result<u64> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.u64(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        return Err(Error::key(KEY, format!("{alignment} is no power of two between 1 and {MAX_ALIGNMENT}")));
    }
    Ok(alignment)
}

/// Everything before the data, padded.
fn header(metadata: &Metadata, tensors: &[Declared], alignment: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.0.len() as u64).to_le_bytes());
    for (key, value) in &metadata.0 {
        value::text(&mut out, key);
        value::value(&mut out, value);
    }
    let mut offset = 0u64;
    for tensor in tensors {
        value::text(&mut out, &tensor.name);
        // A scalar is a row of one: GGUF has one dimension or more.
        let dims = if tensor.shape.is_empty() { &[1][..] } else { &tensor.shape };
        out.extend((dims.len() as u32).to_le_bytes());
        dims.iter().rev().for_each(|&dim| out.extend((dim as u64).to_le_bytes()));
        out.extend(tensor.type_id.to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset += tensor.bytes.next_multiple_of(alignment);
    }
    out.resize(out.len().next_multiple_of(alignment as usize), 0);
    out
}

/// The keys of a model that isn't split, or of its part `no` of `count`: only the first has the model's own.
fn part_metadata(whole: &Metadata, no: usize, count: usize, tensors: usize) -> Metadata {
    let mut metadata = if no == 0 { whole.clone() } else { Metadata::default() };
    if count == 1 {
        // A model that was joined; one that never had parts may well say so.
        if !matches!(whole.u64("split.count"), Ok(None | Some(0 | 1))) {
            metadata
                .0
                .retain(|key, _| !["split.no", "split.count", "split.tensors.count"].contains(&key.as_str()));
        }
        return metadata;
    }
    if let Some(alignment) = whole.get("general.alignment") {
        metadata.set("general.alignment", alignment.clone());
    }
    metadata.set("split.no", Value::U16(no as u16));
    metadata.set("split.count", Value::U16(count as u16));
    metadata.set("split.tensors.count", Value::I32(tensors as i32));
    metadata
}

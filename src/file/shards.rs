//! Writes safetensors: one file, or several with an index, tensor after tensor. Files lie in order of their tensors, data
//! behind a header that is padded to 8 bytes.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use super::output::{self, Output};
use crate::error::{Error, Result};

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its name in the file.
    pub name: String,
    /// Safetensors' name of the type: `F32`, `BF16`, `U32`.
    pub dtype: &'static str,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Its size.
    pub bytes: u64,
}

/// Writes the tensors in the order in which they were declared. The files have their names only after [`Writer::finish`].
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    tensors: Vec<Declared>,
    /// The first tensor of each file.
    firsts: Vec<usize>,
    done: usize,
    /// Those that are begun, the last one being written.
    outputs: Vec<Output>,
}

impl Writer {
    /// Begins `tensors` in `folder`, in files of about `limit` bytes at most; a larger tensor has one of its own. What is
    /// written stays there when the writer is dropped, for [`Writer::resume`].
    pub fn new(folder: &Path, tensors: Vec<Declared>, limit: u64) -> Writer {
        let mut firsts = vec![0];
        let mut size = 0u64;
        for (index, tensor) in tensors.iter().enumerate() {
            if size > 0 && size.saturating_add(tensor.bytes) > limit {
                firsts.push(index);
                size = 0;
            }
            size = size.saturating_add(tensor.bytes);
        }
        Writer { folder: folder.into(), tensors, firsts, done: 0, outputs: Vec::new() }
    }

    /// Continues files of which the first `done` tensors were written. Returns whether they are there and begin as those
    /// that [`Writer::new`] would write; if not, nothing was done.
    ///
    /// # Errors
    /// Those of [`Output::resume`].
    pub fn resume(&mut self, done: usize) -> Result<bool> {
        let mut outputs = Vec::new();
        for part in (0..self.firsts.len()).take_while(|&part| self.firsts[part] < done) {
            let tensors = self.tensors_of(part);
            let written = &tensors[..tensors.len().min(done - self.firsts[part])];
            let header = header(tensors);
            let len = header.len() as u64 + written.iter().map(|tensor| tensor.bytes).sum::<u64>();
            let Some(output) = Output::resume(&self.folder.join(self.name(part)), &header, len)? else {
                return Ok(false);
            };
            outputs.push(output);
        }
        (self.done, self.outputs) = (done, outputs);
        Ok(true)
    }

    /// Writes the next tensor.
    ///
    /// # Errors
    /// [`Error::Tensor`] if it was declared with another size, [`Error::Io`] if the system refuses.
    pub fn tensor(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(tensor) = self.tensors.get(self.done) else {
            return Err(Error::File {
                path: self.folder.clone(),
                message: "more tensors than declared".into(),
            });
        };
        if bytes.len() as u64 != tensor.bytes {
            let message = format!("{} bytes were declared, {} given", tensor.bytes, bytes.len());
            return Err(Error::tensor(&tensor.name, message));
        }
        if self.firsts.get(self.outputs.len()) == Some(&self.done) {
            self.begin()?;
        }
        let output = self.outputs.last_mut().expect("the first tensor begins a file");
        output.write_all(bytes).map_err(|error| Error::io(output.path(), error))?;
        self.done += 1;
        Ok(())
    }

    /// Brings everything so far to the disk, so that it can be continued after a crash.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&self) -> Result<()> {
        self.outputs.iter().try_for_each(Output::sync)
    }

    /// Gives the files their names, and writes the index if there are several.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses.
    pub fn finish(mut self) -> Result<()> {
        if self.tensors.is_empty() {
            self.begin()?;
        }
        std::mem::take(&mut self.outputs).into_iter().try_for_each(Output::commit)?;
        if self.firsts.len() == 1 {
            return Ok(());
        }
        let total: u64 = self.tensors.iter().map(|tensor| tensor.bytes).sum();
        let file = |index: usize| self.name(self.firsts.partition_point(|&first| first <= index) - 1);
        let map: Map<String, Json> = self
            .tensors
            .iter()
            .enumerate()
            .map(|(index, tensor)| (tensor.name.clone(), json!(file(index))))
            .collect();
        let index = json!({"metadata": {"total_size": total}, "weight_map": map});
        output::write(&self.folder.join("model.safetensors.index.json"), &pretty(&index))
    }

    fn name(&self, part: usize) -> String {
        match self.firsts.len() {
            1 => "model.safetensors".into(),
            count => format!("model-{:05}-of-{count:05}.safetensors", part + 1),
        }
    }

    fn tensors_of(&self, part: usize) -> &[Declared] {
        let end = self.firsts.get(part + 1).copied().unwrap_or(self.tensors.len());
        &self.tensors[self.firsts[part]..end]
    }

    fn begin(&mut self) -> Result<()> {
        let part = self.outputs.len();
        let mut output = Output::create(&self.folder.join(self.name(part)))?;
        output.keep();
        let header = header(self.tensors_of(part));
        output.write_all(&header).map_err(|error| Error::io(output.path(), error))?;
        self.outputs.push(output);
        Ok(())
    }
}

/// Length, JSON, padding.
fn header(tensors: &[Declared]) -> Vec<u8> {
    let mut fields = Map::from_iter([("__metadata__".to_owned(), json!({"format": "mlx"}))]);
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + tensor.bytes;
        let field = json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end]});
        fields.insert(tensor.name.clone(), field);
        offset = end;
    }
    let mut text = Json::Object(fields).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes()[..], &text].concat()
}

/// JSON as people read it, with a line end.
pub fn pretty(json: &Json) -> Vec<u8> {
    format!("{json:#}\n").into_bytes()
}

//! Model files: [`Weights`] are names -> tensors plus [`Metadata`], whatever the file. [`Weights::open`] looks at the
//! first bytes, never at the name.
//!
//! Names and keys are GGUF's, also for folders of safetensors: those are translated when they are read, so that a
//! model is loaded by one set of names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;

use crate::error::{Error, Result};
use crate::quant::Format;
use crate::tensor::{Bytes, ReadAt, Stored, Tensor};

mod foreign;
pub mod gguf;
mod hub;
mod map;
pub mod metadata;
pub mod output;
mod safetensors;
pub mod shards;
mod texts;

pub(crate) use hub::folder_name;
pub(crate) use map::map as map_file;
pub use metadata::{Metadata, Value};
pub use texts::Texts;

/// A model as stored: metadata and tensors, of which nothing has been read yet but the headers. A clone shares the bytes.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The file or folder that was opened.
    pub path: PathBuf,
    /// Keys and values in file order.
    pub metadata: Metadata,
    /// Tensors in file order.
    pub tensors: IndexMap<String, Entry>,
    /// The files that the tensors are in: one, or the parts of a split model.
    pub parts: Vec<Part>,
    /// How rotary pairs lie in query and key rows; GGUF's own converters interleave them for some architectures.
    pub rope_pairs: RopePairs,
    /// The contents of `tokenizer.json` and `tokenizer_config.json`, where the model is a folder that has them.
    pub tokenizer_json: Option<String>,
    /// See `tokenizer_json`.
    pub tokenizer_config_json: Option<String>,
}

/// A file that holds tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// As GGUF stores this architecture: interleaved for `llama`, halves for the others.
    Gguf,
    /// `i` with `i + dim / 2`, for every architecture, as Hugging Face stores them.
    Halves,
}

/// One tensor as the file describes it. It may be of a type that we cannot run, and is listed all the same.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// The type as the file names it, e.g. `Q4_K`, `I32`, or `type 200`.
    pub type_name: String,
    /// GGUF's number of the type; `None` if the tensor is not from a GGUF file.
    pub type_id: Option<u32>,
    /// The format, if it is one of ours.
    pub format: Option<&'static Format>,
    /// Offset in its file, in bytes.
    pub offset: u64,
    /// Which file of a split model it is in, counted from 0.
    pub part: usize,
    /// The stored bytes; empty if the type's size is unknown.
    pub data: Bytes,
}

impl Weights {
    /// Opens a GGUF file (any part of a split one), or a folder of safetensors.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be read, [`Error::File`] if it is something else, [`Error::Gguf`] if it is broken.
    pub fn open(path: impl AsRef<Path>) -> Result<Weights> {
        let path = path.as_ref();
        if path.is_dir() { hub::open(path) } else { gguf::open(path) }
    }

    /// Reads a GGUF file that is in memory, as in a browser. `path` is what errors call it.
    ///
    /// # Errors
    /// [`Error::File`] if it is no GGUF file, or only a part of a split one; [`Error::Gguf`] if it is broken.
    pub fn from_bytes(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Weights> {
        let all = 0..bytes.len();
        gguf::parse(&path.into(), &Bytes::Shared(bytes.into(), all))
    }

    /// Reads a GGUF file, or all parts of a split one in order, of which only what is asked for comes into memory. Errors
    /// call each by its path.
    ///
    /// # Errors
    /// As [`Weights::from_bytes`]; [`Error::Io`] if a file can't be read.
    pub fn from_files(files: Vec<(PathBuf, Arc<dyn ReadAt>)>) -> Result<Weights> {
        gguf::parse_all(files.into_iter().map(|(path, file)| (path, Bytes::Stored(Stored::new(file)))))
    }

    /// Reads a GGUF file that is part of the program. `path` is what errors call it.
    ///
    /// # Errors
    /// As [`Weights::from_bytes`].
    pub fn from_static(path: impl Into<PathBuf>, bytes: &'static [u8]) -> Result<Weights> {
        gguf::parse(&path.into(), &Bytes::Static(bytes))
    }

    /// Reads a safetensors file that is in memory: tensors under their own names, the header's texts as metadata.
    ///
    /// # Errors
    /// [`Error::File`] wherever the `safetensors` crate refuses it.
    pub fn from_safetensors(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Weights> {
        let path = path.into();
        let all = 0..bytes.len();
        let parts = vec![Part { path: path.clone(), bytes: bytes.len() as u64 }];
        let (tensors, metadata) = safetensors::parse(&path, &Bytes::Shared(bytes.into(), all), 0)?;
        Ok(Weights {
            path,
            metadata,
            tensors,
            parts,
            rope_pairs: RopePairs::Halves,
            tokenizer_json: None,
            tokenizer_config_json: None,
        })
    }

    /// The tensor `name`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], or [`Error::Tensor`] if its type is not one of ours.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.optional_tensor(name)?.ok_or_else(|| Error::MissingTensor { name: name.to_owned() })
    }

    /// The tensor `name`, if there is one.
    ///
    /// # Errors
    /// [`Error::Tensor`] if its type is not one of ours.
    pub fn optional_tensor(&self, name: &str) -> Result<Option<Tensor>> {
        let Some(entry) = self.tensors.get(name) else { return Ok(None) };
        let Some(format) = entry.format else {
            let refusal = match entry.type_id {
                Some(id) => gguf::types::refusal(id),
                None => format!("{} is not a type that we can run", entry.type_name),
            };
            return Err(Error::tensor(name, refusal));
        };
        Tensor::new(name, entry.shape.clone(), format, entry.data.clone()).map(Some)
    }
}

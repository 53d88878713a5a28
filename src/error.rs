//! One error for the whole library. Every variant names the file, tensor, key, offset or limit that a user
//! needs to act; messages are lower case and one line long.

use std::path::PathBuf;

/// What the library returns everywhere.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong outside our own bugs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open, read, map or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is of no kind that we read.
    #[error("{}: {message}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong and what would be right.
        message: String,
    },
    /// A GGUF file that breaks its own format.
    #[error("{}: {what} at byte {offset}: {message}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// The field that was being read, e.g. `tensor[3].dims`.
        what: String,
        /// Where it starts in the file.
        offset: u64,
        /// What was found and what is allowed.
        message: String,
    },
    /// A metadata key that a model needs is absent.
    #[error("metadata key {key} is missing")]
    MissingKey {
        /// The key as written in GGUF.
        key: String,
    },
    /// A metadata key has a value of another type, or one that makes no sense.
    #[error("metadata key {key}: {message}")]
    Key {
        /// The key as written in GGUF.
        key: String,
        /// What was found and what is allowed.
        message: String,
    },
    /// A tensor that a model needs is absent.
    #[error("tensor {name} is missing")]
    MissingTensor {
        /// The tensor's name in the file.
        name: String,
    },
    /// A tensor whose type, shape or bytes do not fit.
    #[error("tensor {name}: {message}")]
    Tensor {
        /// The tensor's name in the file.
        name: String,
        /// What was found and what was expected.
        message: String,
    },
    /// A buffer whose length does not match the format's blocks.
    #[error("{format}: {message}")]
    Format {
        /// The format's name, e.g. `q4_0`.
        format: &'static str,
        /// What was found and what was expected.
        message: String,
    },
    /// A weight that cannot be quantized.
    #[error("{format}: element {index} is {value}, only finite numbers can be encoded")]
    NonFinite {
        /// The format's name.
        format: &'static str,
        /// The element's index in the values given.
        index: usize,
        /// NaN or an infinity.
        value: f32,
    },
    /// Well formed, but not something this version can run: an architecture, a rope type, a pre-tokenizer.
    #[error("{what} {name:?} is not supported{hint}")]
    Unsupported {
        /// The kind of thing, e.g. `architecture`.
        what: &'static str,
        /// Its name in the file.
        name: String,
        /// Empty, or `: ` and what would work.
        hint: String,
    },
    /// More tokens than the context holds.
    #[error(
        "{needed} tokens do not fit in a context of {limit}: shorten the text, or raise --ctx-size if the model allows"
    )]
    Context {
        /// Tokens that would have to be held.
        needed: usize,
        /// Tokens that the context holds.
        limit: usize,
    },
    /// Text that cannot be turned into tokens, or a vocabulary that makes no sense.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The chat template is broken or refused the messages; the text is the template's own.
    #[error("chat template: {0}")]
    Template(String),
    /// A setting outside its range.
    #[error("{name}: {message}")]
    Option {
        /// The setting as a user types it, e.g. `--temp`.
        name: &'static str,
        /// What was given and what is allowed.
        message: String,
    },
    /// The model's arithmetic gave no number: the file is damaged or the settings are extreme.
    #[error("{0}")]
    Numeric(String),
    /// A GPU that refuses, fails or is gone.
    #[error("{device}: {message}")]
    Gpu {
        /// The adapter's name.
        device: String,
        /// What it said.
        message: String,
    },
    /// A GPU without enough memory.
    #[error(
        "{device}: no memory for {needed} bytes, only for {available}: give it fewer layers with --gpu-layers, or a \
         smaller --ctx-size"
    )]
    GpuMemory {
        /// The adapter's name.
        device: String,
        /// Bytes that were needed in all.
        needed: u64,
        /// Bytes that could be had.
        available: u64,
    },
    /// A shader that can't be composed or compiled.
    #[error("shader {place}: {message}")]
    Shader {
        /// File and line.
        place: String,
        /// What is wrong.
        message: String,
    },
}

impl Error {
    /// An [`Error::Gpu`] of the adapter `device`.
    pub fn gpu(device: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Gpu { device: device.into(), message: message.into() }
    }

    /// An [`Error::Io`] for `path`.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Error::Io { path: path.into(), source }
    }

    /// An [`Error::Tensor`] for `name`.
    pub fn tensor(name: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Tensor { name: name.into(), message: message.into() }
    }

    /// An [`Error::Key`] for `key`.
    pub fn key(key: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Key { key: key.into(), message: message.into() }
    }

    /// An [`Error::Unsupported`] with a hint, which may be empty.
    pub fn unsupported(what: &'static str, name: impl Into<String>, hint: &str) -> Self {
        let hint = if hint.is_empty() { String::new() } else { format!(": {hint}") };
        Error::Unsupported { what, name: name.into(), hint }
    }

    /// An [`Error::Option`].
    pub fn option(name: &'static str, message: impl Into<String>) -> Self {
        Error::Option { name, message: message.into() }
    }
}

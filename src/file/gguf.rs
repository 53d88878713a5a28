//! GGUF (placeholder until the reader lands).
use std::path::Path;

use super::Weights;
use crate::error::{Error, Result};
use crate::tensor::Bytes;

pub(super) fn open(path: &Path) -> Result<Weights> {
    Err(Error::File { path: path.into(), message: "not built yet".into() })
}

pub(super) fn parse(path: &Path, _bytes: Bytes) -> Result<Weights> {
    Err(Error::File { path: path.into(), message: "not built yet".into() })
}

//! Memory-mapped files: tensors are read from the page cache, only where they are touched.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::MmapOptions;

use crate::error::{Error, Result};
use crate::tensor::Bytes;

/// The contents of a file, mapped privately and read-only. An empty file, which no system maps, gives no bytes.
pub(super) fn map(path: &Path) -> Result<Bytes> {
    let io = |source| Error::io(path, source);
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(Error::File { path: path.into(), message: "is a folder where a file should be".into() });
    }
    if metadata.len() == 0 {
        return Ok(Bytes::Static(&[]));
    }
    // SAFETY: the map is private and never written. That nobody else cuts the file while it is mapped is what
    // every program that maps files has to trust; the contents are only ever read as bytes, so a change in place
    // gives other numbers and nothing worse.
    let map = unsafe { MmapOptions::new().map_copy_read_only(&file) }.map_err(io)?;
    let all: Range<usize> = 0..map.len();
    Ok(Bytes::Mapped(Arc::new(map), all))
}

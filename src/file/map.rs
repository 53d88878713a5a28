//! Memory-mapped files: tensors are read from the page cache, only where they are touched. A system that maps no
//! files (WebAssembly) has them read into memory.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::tensor::Bytes;

/// The contents of a file, mapped privately and read-only. An empty file, which no system maps, gives no bytes.
pub(crate) fn map(path: &Path) -> Result<Bytes> {
    let io = |source| Error::io(path, source);
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(Error::File { path: path.into(), message: "is a folder where a file should be".into() });
    }
    if metadata.len() == 0 {
        return Ok(Bytes::Static(&[]));
    }
    contents(&file).map_err(io)
}

#[cfg(any(unix, windows))]
fn contents(file: &File) -> io::Result<Bytes> {
    // SAFETY: the map is private and never written. That nobody else cuts the file while it is mapped is what
    // every program that maps files has to trust; the contents are only ever read as bytes, so a change in place
    // gives other numbers and nothing worse.
    let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(file) }?;
    let all = 0..map.len();
    Ok(Bytes::Mapped(Arc::new(map), all))
}

#[cfg(not(any(unix, windows)))]
fn contents(mut file: &File) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    let all = 0..bytes.len();
    Ok(Bytes::Shared(Arc::new(bytes), all))
}

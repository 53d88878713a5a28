//! Memory-mapped files: tensors are read from the page cache, only where they are touched. A system that maps no
//! files (WebAssembly) has them read into memory.

use std::fs::File;
use std::io;
use std::ops::Range;
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

/// Takes the pages of `range` out of this process's memory, as far as `bytes` are mapped: they were read and are not
/// needed again. Whoever reads them all the same gets them from the file.
pub(super) fn release(bytes: &Bytes, range: Range<usize>) {
    #[cfg(unix)]
    if let Bytes::Mapped(map, all) = bytes {
        let start = all.start + range.start;
        // SAFETY: the map is never written, so there is nothing in it that the file has not.
        let released =
            unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, range.len()) };
        if let Err(error) = released {
            tracing::debug!("pages that were read stay in memory: {error}");
        }
    }
    #[cfg(not(unix))]
    let _ = (bytes, range);
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

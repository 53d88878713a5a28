//! What is done of a file, beside the file while it is written: enough to go on with the same bytes after a crash.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::error::{Error, Result};
use crate::file::output;

/// Between two entries. Each waits for the disk, which may be slow: no more than a tenth of the time is spent so.
const INTERVAL: Duration = Duration::from_secs(1);
const PAUSE: u32 = 9;

/// A source as it was when the work began. The plan itself is in the header of the file that is being written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Source {
    path: PathBuf,
    bytes: u64,
    /// Nanoseconds since 1970, where the system keeps such a time.
    modified: Option<u128>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Contents {
    sources: Vec<Source>,
    /// Tensors that are on the disk.
    tensors: usize,
}

#[derive(Debug)]
pub(super) struct Journal {
    contents: Contents,
    /// When the next entry is due; none was made yet if there is no time.
    due: Option<Instant>,
}

impl Journal {
    pub fn new(plan: &Plan) -> Journal {
        let parts = plan.weights.parts.iter().map(|part| part.path.as_path());
        let imatrix = plan.imatrix.and_then(|imatrix| imatrix.path.as_deref());
        let sources = parts.chain(imatrix).map(Source::new).collect();
        Journal { contents: Contents { sources, tensors: 0 }, due: None }
    }

    pub fn path(target: &Path) -> PathBuf {
        let mut name = output::partial(target).into_os_string();
        name.push(".journal");
        name.into()
    }

    /// What an earlier run left; `None` if there was none.
    pub fn read(path: &Path) -> Result<Option<Contents>> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path, error)),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| Error::File {
            path: path.into(),
            message: format!("is no journal of an earlier run ({error}): begin without --resume"),
        })
    }

    pub fn continue_from(&mut self, earlier: &Contents, path: &Path) -> Result<()> {
        if earlier.sources != self.contents.sources {
            let message = "is of another source, or the source has changed: begin without --resume".into();
            return Err(Error::File { path: path.into(), message });
        }
        self.contents.tensors = earlier.tensors;
        Ok(())
    }

    pub fn restart(&mut self) {
        self.contents.tensors = 0;
    }

    /// Tensors that are on the disk.
    pub fn tensors(&self) -> usize {
        self.contents.tensors
    }

    pub fn is_due(&self) -> bool {
        self.due.is_none_or(|due| Instant::now() >= due)
    }

    /// `start`: when the work on this entry began.
    pub fn write(&mut self, path: &Path, tensors: usize, start: Instant) -> Result<()> {
        self.contents.tensors = tensors;
        let text = serde_json::to_vec(&self.contents).expect("paths and numbers, of which JSON has all");
        output::write(path, &text)?;
        self.due = Some(Instant::now() + INTERVAL.max(start.elapsed() * PAUSE));
        Ok(())
    }

    pub fn remove(path: &Path) {
        // One that stays is of no harm: what it tells of is gone.
        drop(std::fs::remove_file(path));
    }
}

impl Source {
    /// A source that is in memory has a name and nothing else.
    fn new(path: &Path) -> Source {
        let found = std::fs::metadata(path).ok();
        let modified = found.as_ref().and_then(|found| found.modified().ok());
        let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Source {
            path: std::path::absolute(path).unwrap_or_else(|_| path.into()),
            bytes: found.map_or(0, |found| found.len()),
            modified: modified.map(|time| time.as_nanos()),
        }
    }
}

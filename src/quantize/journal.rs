//! What is done of a file or folder, beside it while it is written: enough to go on with the same bytes after a crash.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

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

#[derive(Debug, Deserialize, Serialize)]
struct Contents {
    sources: Vec<Source>,
    /// What else the result depends on, by the name of the option.
    #[serde(default)]
    parameters: BTreeMap<String, String>,
    /// Steps (tensors, layers) whose results are on the disk.
    done: usize,
}

/// Entries of what was written of one target.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    contents: Contents,
    /// When the next entry is due; none was made yet if there is no time.
    due: Option<Instant>,
}

impl Journal {
    /// Without entries, of what becomes `target`, the first of its files or its folder, and is made of `sources`.
    pub fn new<'a>(target: &Path, sources: impl Iterator<Item = &'a Path>) -> Journal {
        let mut path = output::partial(target).into_os_string();
        path.push(".journal");
        Journal::at(path.into(), sources, BTreeMap::new())
    }

    /// The same, kept at `path`, of a result that depends on `parameters` too.
    pub fn at<'a>(
        path: PathBuf,
        sources: impl Iterator<Item = &'a Path>,
        parameters: BTreeMap<String, String>,
    ) -> Journal {
        let contents = Contents { sources: sources.map(Source::new).collect(), parameters, done: 0 };
        Journal { path, contents, due: None }
    }

    /// Takes over what an earlier run left; whether there was one.
    ///
    /// # Errors
    /// [`Error::File`] if it was of another source or other parameters, of which it names one; [`Error::Io`].
    pub fn resume(&mut self) -> Result<bool> {
        let refused = |message| Error::File { path: self.path.clone(), message };
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::io(&self.path, error)),
        };
        let earlier: Contents = serde_json::from_slice(&text).map_err(|error| {
            refused(format!("is no journal of an earlier run ({error}): begin without --resume"))
        })?;
        if earlier.sources != self.contents.sources {
            let message = "is of another source, or the source has changed: begin without --resume";
            return Err(refused(message.into()));
        }
        for (name, value) in &self.contents.parameters {
            let was = earlier.parameters.get(name).map_or("nothing", String::as_str);
            if was != value {
                return Err(refused(format!("{name} was {was}, and is {value} now: begin without --resume")));
            }
        }
        self.contents.done = earlier.done;
        Ok(true)
    }

    /// Forgets what an earlier run left.
    pub fn restart(&mut self) {
        self.contents.done = 0;
    }

    /// Steps whose results are on the disk.
    pub fn done(&self) -> usize {
        self.contents.done
    }

    /// Whether it is time for an entry.
    pub fn is_due(&self) -> bool {
        self.due.is_none_or(|due| Instant::now() >= due)
    }

    /// Makes an entry, after `sync` has brought what `done` steps made to the disk: none may say more than what is there.
    pub fn write(&mut self, done: usize, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        sync()?;
        self.contents.done = done;
        let text = serde_json::to_vec(&self.contents).expect("paths and numbers, of which JSON has all");
        output::write(&self.path, &text)?;
        self.due = Some(Instant::now() + INTERVAL.max(start.elapsed() * PAUSE));
        Ok(())
    }

    /// The work is done.
    pub fn remove(self) {
        // One that stays is of no harm: what it tells of is gone.
        drop(std::fs::remove_file(&self.path));
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

//! Files that appear whole or not at all: bytes go to `NAME.partial` beside the target, which takes the name when
//! everything is on the disk. A full disk, a crash or Ctrl-C leaves what was there under the name untouched.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A file that is being written. Dropped before [`Output::commit`] it is removed, unless it is to be continued.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    kept: bool,
}

impl Output {
    /// Begins the file `path` anew.
    ///
    /// # Errors
    /// [`Error::File`] if `path` is write-protected, a folder, or being written by another program; [`Error::Io`] if the
    /// system refuses.
    pub fn create(path: &Path) -> Result<Output> {
        let output = Output::open(path, true)?;
        output.file.set_len(0).map_err(|error| Error::io(path, error))?;
        Ok(output)
    }

    /// Continues a file of which `len` bytes were written, the first of them `head`; `None` if there is no such file.
    ///
    /// # Errors
    /// As [`Output::create`].
    pub fn resume(path: &Path, head: &[u8], len: u64) -> Result<Option<Output>> {
        if !partial(path).exists() {
            return Ok(None);
        }
        let mut output = Output::open(path, false)?;
        output.kept = true;
        let io = |error| Error::io(path, error);
        if output.file.metadata().map_err(io)?.len() < len.max(head.len() as u64) {
            return Ok(None);
        }
        let mut found = vec![0; head.len()];
        output.file.read_exact(&mut found).map_err(io)?;
        if found != head {
            return Ok(None);
        }
        output.file.set_len(len).map_err(io)?;
        output.file.seek(SeekFrom::Start(len)).map_err(io)?;
        Ok(Some(output))
    }

    fn open(path: &Path, create: bool) -> Result<Output> {
        let refused = |message: &str| Error::File { path: path.into(), message: message.into() };
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(refused("is a folder where a file should be")),
            Ok(found) if found.permissions().readonly() => return Err(refused("is write-protected")),
            _ => {}
        }
        let partial = partial(path);
        let file = OpenOptions::new().read(true).write(true).create(create).truncate(false).open(&partial);
        let file = file.map_err(|error| Error::io(&partial, error))?;
        // Where a file system knows no locks, two writers are the user's own affair.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(refused("is being written by another program"));
        }
        Ok(Output { path: path.into(), partial, file, kept: false })
    }

    /// The name that the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps what was written when this is dropped, to be continued.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    /// Whether [`Output::keep`] was asked for.
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Brings what was written to the disk.
    ///
    /// # Errors
    /// [`Error::Io`]: a disk may find only now that it is full.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::io(&self.path, error))
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be brought to the disk, or renamed.
    pub fn commit(mut self) -> Result<()> {
        let io = |error| Error::io(&self.path, error);
        self.file.sync_all().map_err(io)?;
        std::fs::rename(&self.partial, &self.path).map_err(io)?;
        self.kept = true;
        sync_folder(&self.path);
        Ok(())
    }
}

/// Writes a whole file at once.
///
/// # Errors
/// As [`Output::create`] and [`Output::commit`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_all(path, &[bytes])
}

/// Writes a whole file of several parts.
///
/// # Errors
/// As [`Output::create`] and [`Output::commit`].
pub fn write_all(path: &Path, parts: &[&[u8]]) -> Result<()> {
    let mut output = Output::create(path)?;
    parts.iter().try_for_each(|part| output.write_all(part)).map_err(|error| Error::io(path, error))?;
    output.commit()
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing can be done if that fails, and whoever dropped it has an error already.
            drop(std::fs::remove_file(&self.partial));
        }
    }
}

/// Where the bytes of `path` are until they are all there.
pub fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Makes the new name itself last. Only Unix has a way to ask for it, and not every file system grants it.
fn sync_folder(path: &Path) {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        drop(File::open(folder).and_then(|folder| folder.sync_all()));
    }
}

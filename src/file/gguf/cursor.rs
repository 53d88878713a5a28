//! A reader of GGUF's little-endian fields that cannot run past the end, and whose errors say where they are.

use std::path::Path;

use crate::error::{Error, Result};

/// What an array may take in memory beyond the length of its file. An array in an array takes 12 bytes there and 32 here,
/// so that an array may outgrow the bytes it was read from; no real vocabulary comes near this.
const WIDENED_BEYOND_FILE: usize = 1 << 20;

/// A position in a file.
pub(super) struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    position: usize,
    /// What is being read, e.g. `metadata[3] general.name`; fields of it are named after it.
    pub context: String,
}

impl<'a> Cursor<'a> {
    pub fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Cursor { path, bytes, position: 0, context: "header".to_owned() }
    }

    /// Bytes from the start of the file to the next field.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns to `start`, where a field that was read already begins.
    pub fn go_back(&mut self, start: usize) {
        self.position = self.position.min(start);
    }

    /// The next `count` bytes.
    pub fn take(&mut self, field: &str, count: u64) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.position..];
        let taken = usize::try_from(count).ok().and_then(|count| rest.get(..count));
        let Some(taken) = taken else {
            return Err(self.error(field, format!("needs {count} bytes, {} remain", rest.len())));
        };
        self.position += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let bytes = self.take(field, N as u64)?;
        Ok(*bytes.first_chunk().expect("take gave N bytes"))
    }

    pub fn u32(&mut self, field: &str) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, field: &str) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Checks that `count` things of at least `least` bytes each, counted by the field at `start`, still fit.
    pub fn fits(&self, start: usize, field: &str, count: u64, least: usize) -> Result<()> {
        let remain = self.bytes.len() - self.position;
        if count > (remain / least) as u64 {
            let message = format!("{count} of at least {least} bytes each, but {remain} bytes remain");
            return Err(self.error_at(start, field, message));
        }
        Ok(())
    }

    /// Text behind its length, which is at most `limit` bytes.
    pub fn text(&mut self, field: &str, limit: u64) -> Result<&'a str> {
        let start = self.position;
        let length = self.u64(field)?;
        if length > limit {
            let message = format!("a text of {length} bytes, at most {limit} are allowed");
            return Err(self.error_at(start, field, message));
        }
        let bytes = self.take(field, length)?;
        std::str::from_utf8(bytes).map_err(|error| {
            let message = format!("not UTF-8 from byte {} of the text on", error.valid_up_to());
            self.error_at(start, field, message)
        })
    }

    /// `count` numbers of `N` bytes each, as `read` makes them.
    pub fn numbers<const N: usize, T>(&mut self, count: u64, read: fn([u8; N]) -> T) -> Result<Vec<T>> {
        let mut values = self.room(count, N)?;
        let bytes = self.take("values", count * N as u64)?;
        values.extend(bytes.as_chunks().0.iter().map(|&number| read(number)));
        Ok(values)
    }

    /// An empty vector with room for `count` values that take at least `least` bytes each in the file.
    pub fn room<T>(&mut self, count: u64, least: usize) -> Result<Vec<T>> {
        self.fits(self.position, "length", count, least)?;
        let count = count as usize; // No more than bytes remain.
        let limit = self.bytes.len().saturating_add(WIDENED_BEYOND_FILE);
        if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > limit) {
            let message = format!(
                "{count} values take {} bytes each in memory, more than the whole file",
                size_of::<T>()
            );
            return Err(self.error("length", message));
        }
        Ok(Vec::with_capacity(count))
    }

    /// An error about the field that begins here.
    pub fn error(&self, field: &str, message: impl Into<String>) -> Error {
        self.error_at(self.position, field, message)
    }

    /// An error about the field that begins at `offset`.
    pub fn error_at(&self, offset: usize, field: &str, message: impl Into<String>) -> Error {
        let what = match (self.context.as_str(), field) {
            (context, "") => context.to_owned(),
            (context, field) => format!("{context}.{field}"),
        };
        Error::Gguf { path: self.path.into(), what, offset: offset as u64, message: message.into() }
    }
}

/// A name out of a file, fit for a one-line message.
pub(super) fn shown(name: &str) -> String {
    const LONGEST: usize = 100;
    let mut shown: String = name.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if name.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}

//! Files of the browser. The worker keeps a table of `Blob`s (from OPFS, of a user, or in memory) and reads them at once:
//! workers may do that. Here they are numbers of that table.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hadal::file::Weights;
use hadal::tensor::ReadAt;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// Fills `into` with the bytes of `file` from `offset` on; an empty text, or what went wrong.
    #[wasm_bindgen(js_namespace = ["globalThis", "hadalFiles"], js_name = read)]
    fn read(file: u32, offset: f64, into: &mut [u8]) -> String;
}

#[derive(Debug)]
struct File {
    number: u32,
    size: u64,
}

impl ReadAt for File {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let wrong = read(self.number, offset as f64, into);
        if wrong.is_empty() { Ok(()) } else { Err(io::Error::other(wrong)) }
    }
}

/// The files of the table from number 0 on, with their names and sizes.
pub fn all(names: &[String], sizes: &[f64]) -> Vec<(PathBuf, Arc<dyn ReadAt>)> {
    let files = (0..).zip(names).zip(sizes);
    files
        .map(|((number, name), &size)| (name.into(), Arc::new(File { number, size: size as u64 }) as _))
        .collect()
}

/// Reads all tensors, as the CPU needs them: an error here is better than one in the middle of an answer.
///
/// # Errors
/// [`hadal::Error::Io`].
pub fn hold(weights: &Weights) -> hadal::Result<()> {
    let path = &weights.path;
    let held = |entry: &hadal::file::Entry| entry.data.hold().map_err(|error| hadal::Error::io(path, error));
    weights.tensors.values().try_for_each(held)
}

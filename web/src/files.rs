//! Files of the browser. The worker keeps a table of `Blob`s (from OPFS, of a user, or in memory) and reads them at once:
//! workers may do that. Here they are numbers of that table.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hadal::file::{Entry, Weights};
use hadal::tensor::{Bytes, ReadAt, Stored};
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

/// Reads norms and biases, as loading a model does: an error here is better than one in the middle of it.
///
/// # Errors
/// [`hadal::Error::Io`].
pub fn hold_vectors(weights: &Weights) -> hadal::Result<()> {
    hold(weights, |entry, _| entry.shape.len() == 1)
}

/// Reads the tensors that a loaded model has taken, as the CPU needs them. Those that its graph does not read may be larger
/// than the module's memory.
///
/// # Errors
/// [`hadal::Error::Io`].
pub fn hold_taken(weights: &Weights) -> hadal::Result<()> {
    hold(weights, |_, stored| stored.is_shared())
}

fn hold(weights: &Weights, wanted: impl Fn(&Entry, &Stored) -> bool) -> hadal::Result<()> {
    for entry in weights.tensors.values() {
        if let Bytes::Stored(stored) = &entry.data
            && wanted(entry, stored)
        {
            stored.hold().map_err(|error| hadal::Error::io(&weights.path, error))?;
        }
    }
    Ok(())
}

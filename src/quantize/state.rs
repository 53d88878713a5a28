//! What is done of a calibration, in a folder beside its target: of each step the tensors that it made, and the activations
//! behind the last one. A journal says which steps are whole, and what they were made with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128 as Hash;

use super::calibrate::Calibration;
use super::journal::Journal;
use super::{SEED_KEY, Start};
use crate::backend::Hidden;
use crate::error::{Error, Result};
use crate::file::{Weights, map_file, output};
use crate::tensor::Bytes;

#[derive(Debug)]
pub(super) struct State {
    folder: PathBuf,
    journal: Journal,
}

impl State {
    /// Of what becomes `target`: begun, or with what an earlier run left.
    pub fn new(target: &Path, weights: &Weights, calibration: &Calibration, start: Start) -> Result<State> {
        let mut folder = output::partial(target).into_os_string();
        folder.push(".layers");
        let folder = PathBuf::from(folder);
        let parts = weights.parts.iter().map(|part| part.path.as_path());
        let imatrix = calibration.imatrix.and_then(|imatrix| imatrix.path.as_deref());
        let parameters = parameters(weights, calibration);
        let journal = Journal::at(folder.join("journal"), parts.chain(imatrix), parameters);
        let mut state = State { folder, journal };
        if !(start == Start::Resume && state.journal.resume()?) {
            state.journal.restart();
            state.clear()?;
        }
        std::fs::create_dir_all(&state.folder).map_err(|error| Error::io(&state.folder, error))?;
        Ok(state)
    }

    /// Steps whose results are on the disk.
    pub fn done(&self) -> usize {
        self.journal.done()
    }

    /// The file with the tensors of `step`, one after the other.
    pub fn path(&self, step: usize) -> PathBuf {
        self.folder.join(format!("{step:03}"))
    }

    fn hidden_path(&self, step: usize) -> PathBuf {
        self.folder.join(format!("{step:03}.activations"))
    }

    /// Brings the tensors of `step` to the disk.
    pub fn put<'a>(&self, step: usize, tensors: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let tensors: Vec<&[u8]> = tensors.collect();
        output::write_all(&self.path(step), &tensors)
    }

    /// The tensors of `step`, of which the lengths are known.
    ///
    /// # Errors
    /// [`Error::File`] if the file has another length.
    pub fn tensors(&self, step: usize, lengths: &[(String, usize)]) -> Result<Vec<(String, Bytes)>> {
        let path = self.path(step);
        let bytes = map_file(&path)?;
        let expected: usize = lengths.iter().map(|(_, len)| len).sum();
        if bytes.len() != expected {
            return Err(damaged(&path, bytes.len(), expected));
        }
        let mut at = 0;
        let cut = |(name, len): &(String, usize)| {
            let part = bytes.slice(at..at + *len as u64)?;
            at += *len as u64;
            Some((name.clone(), part))
        };
        let tensors: Option<Vec<_>> = lengths.iter().map(cut).collect();
        tensors.ok_or_else(|| damaged(&path, bytes.len(), expected))
    }

    /// The step is done: brings the activations to the disk, and then says so.
    pub fn finish_step(&mut self, hidden: &[Hidden]) -> Result<()> {
        let step = self.done();
        let bytes: Vec<&[u8]> = hidden.iter().map(|rows| bytemuck::cast_slice(rows.values())).collect();
        output::write_all(&self.hidden_path(step), &bytes)?;
        self.journal.write(step + 1, || Ok(()))?;
        if let Some(before) = step.checked_sub(1) {
            // One that stays is of no harm.
            drop(std::fs::remove_file(self.hidden_path(before)));
        }
        Ok(())
    }

    /// The activations behind the last step: windows of so many rows of `columns`.
    ///
    /// # Errors
    /// [`Error::File`] if the file has another length.
    pub fn hidden(&self, rows: impl Iterator<Item = usize>, columns: usize) -> Result<Vec<Hidden>> {
        let path = self.hidden_path(self.done() - 1);
        let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
        let rows: Vec<usize> = rows.collect();
        let expected = rows.iter().sum::<usize>() * columns * 4;
        if bytes.len() != expected {
            return Err(damaged(&path, bytes.len(), expected));
        }
        let mut values = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes));
        let window = |rows: usize| Hidden::new(values.by_ref().take(rows * columns).collect(), columns);
        Ok(rows.into_iter().map(window).collect())
    }

    /// Everything was written elsewhere.
    pub fn remove(self) {
        // What stays is of no harm: it tells of what is done.
        drop(self.clear());
    }

    /// Removes the files that are ours, and the folder if nothing else is in it.
    fn clear(&self) -> Result<()> {
        let Ok(files) = std::fs::read_dir(&self.folder) else { return Ok(()) };
        // The journal first: without it nothing else is believed.
        drop(std::fs::remove_file(self.folder.join("journal")));
        for file in files {
            let path = file.map_err(|error| Error::io(&self.folder, error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let own = name.starts_with("journal") || name.starts_with(|first: char| first.is_ascii_digit());
            if own && path.exists() {
                std::fs::remove_file(&path).map_err(|error| Error::io(&path, error))?;
            }
        }
        drop(std::fs::remove_dir(&self.folder));
        Ok(())
    }
}

fn damaged(path: &Path, found: usize, expected: usize) -> Error {
    let message = format!("has {found} bytes, not {expected}: begin without --resume");
    Error::File { path: path.into(), message }
}

/// What the result depends on beside the source, by the option that says it.
fn parameters(weights: &Weights, calibration: &Calibration) -> BTreeMap<String, String> {
    let tokens = calibration.windows.concat();
    let hash = Hash::oneshot(bytemuck::cast_slice(&tokens));
    let formats: Vec<String> =
        calibration.formats.iter().map(|(name, format)| format!("{name}={}", format.name)).collect();
    let formats = formats.join(" ");
    let seed = weights.metadata.u32(SEED_KEY).ok().flatten();
    [
        ("--method", calibration.method.name().to_owned()),
        ("--calibration", format!("{} ({hash:032x})", calibration.text)),
        ("--calibration-windows", calibration.windows.len().to_string()),
        (
            "--type",
            format!("{} matrices ({:032x})", calibration.formats.len(), Hash::oneshot(formats.as_bytes())),
        ),
        ("--seed", seed.map_or_else(|| "none".into(), |seed| seed.to_string())),
        ("the version of hadal", env!("CARGO_PKG_VERSION").into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

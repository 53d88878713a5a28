//! Which tensors go to which part of a split model, and what a part's file begins with.

use std::path::{Path, PathBuf};

use super::super::split::PartName;
use super::{Declared, Plan, alignment, header, part_metadata};
use crate::error::{Error, Result};

/// `split.no` and `split.count` are u16, and file names have five digits.
const MOST_PARTS: usize = 65535;

/// One file of a model.
#[derive(Debug)]
pub struct Part<'a> {
    pub header: Vec<u8>,
    pub tensors: &'a [Declared],
    pub alignment: u64,
}

/// The files of a plan.
///
/// # Errors
/// [`Error::Option`] if the parts don't add up or are too many, [`Error::Key`] if the alignment makes no sense.
pub fn parts(plan: &Plan) -> Result<Vec<Part<'_>>> {
    let count = plan.parts.len();
    if count == 0 || count > MOST_PARTS || plan.parts.iter().sum::<usize>() != plan.tensors.len() {
        let message = format!("{} tensors in {count} parts, at most {MOST_PARTS}", plan.tensors.len());
        return Err(Error::option("split", message));
    }
    let alignment = alignment(&plan.metadata)?;
    let mut rest = &plan.tensors[..];
    let part = |(no, &len): (usize, &usize)| {
        let tensors;
        (tensors, rest) = rest.split_at(len);
        let metadata = part_metadata(&plan.metadata, no, count, plan.tensors.len());
        Part { header: header(&metadata, tensors, alignment), tensors, alignment }
    };
    Ok(plan.parts.iter().enumerate().map(part).collect())
}

impl Part<'_> {
    /// Where the file ends behind its first `tensors`.
    pub fn end(&self, tensors: usize) -> u64 {
        let padded =
            self.tensors[..tensors].iter().map(|tensor| tensor.bytes.next_multiple_of(self.alignment));
        self.header.len() as u64 + padded.sum::<u64>()
    }

    /// Zeros behind a tensor of `bytes`.
    pub fn padding(&self, bytes: u64) -> usize {
        (bytes.next_multiple_of(self.alignment) - bytes) as usize
    }
}

/// Tensors of each part, of which none has more than `limit` bytes unless that is one tensor.
pub fn by_size(tensors: &[Declared], limit: u64) -> Vec<usize> {
    let mut parts = vec![0];
    let mut bytes = 0u64;
    for tensor in tensors {
        let last = parts.last_mut().expect("there is one");
        if *last > 0 && bytes.saturating_add(tensor.bytes) > limit {
            parts.push(1);
            bytes = tensor.bytes;
        } else {
            *last += 1;
            bytes = bytes.saturating_add(tensor.bytes);
        }
    }
    parts
}

/// The file names of a model called `path` in `count` parts. `path` may be the name of a part.
pub fn paths(path: &Path, count: usize) -> Vec<PathBuf> {
    if count == 1 {
        return vec![path.into()];
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let base = match PartName::parse(&name) {
        Some(part) => part.base,
        None => name.strip_suffix(".gguf").unwrap_or(&name),
    };
    let name = PartName { base, number: 1, count: count as u64 };
    (1..=count as u64).map(|number| path.with_file_name(name.part(number))).collect()
}

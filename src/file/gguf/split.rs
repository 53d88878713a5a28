//! Models split into `NAME-00001-of-0000N.gguf`: any part opens them all.

use std::path::{Path, PathBuf};

use super::Parsed;
use super::cursor::shown;
use crate::error::{Error, Result};
use crate::file::{Metadata, Weights};

/// What a part says about the whole, in `split.*`.
struct Split {
    /// Counted from 0.
    no: u64,
    count: u64,
    /// Tensors of all parts together, where it is stated.
    tensors: Option<u64>,
}

impl Split {
    /// `None` if the file is no part; a merged file may say that it has 0 or 1 parts.
    fn of(path: &Path, metadata: &Metadata) -> Result<Option<Split>> {
        let named = |error: Error| Error::File { path: path.into(), message: error.to_string() };
        let count = metadata.u64("split.count").map_err(named)?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        let no = metadata.u64("split.no").map_err(named)?.unwrap_or(0);
        let tensors = metadata.u64("split.tensors.count").map_err(named)?;
        Ok(Some(Split { no, count, tensors }))
    }
}

/// A file name as `gguf-split` makes them.
pub(super) struct PartName<'a> {
    pub base: &'a str,
    /// Counted from 1.
    pub number: u64,
    pub count: u64,
}

impl<'a> PartName<'a> {
    pub fn parse(name: &'a str) -> Option<PartName<'a>> {
        let rest = name.strip_suffix(".gguf")?;
        let (rest, count) = rest.rsplit_once("-of-")?;
        let (base, number) = rest.rsplit_once('-')?;
        Some(PartName { base, number: five_digits(number)?, count: five_digits(count)? })
    }

    pub fn part(&self, number: u64) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.base, self.count)
    }
}

fn five_digits(text: &str) -> Option<u64> {
    let digits = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// The whole model that `opened` is a part of, or `opened` itself if it is no part.
pub(super) fn complete(path: &Path, opened: Parsed) -> Result<Weights> {
    let Some(split) = Split::of(path, &opened.metadata)? else {
        return Ok(opened.into_weights(path));
    };
    let error = |message| Error::File { path: path.into(), message };
    let name = path.file_name().and_then(|name| name.to_str()).and_then(PartName::parse);
    let Some(name) = name else {
        return Err(error(not_whole(&split)));
    };
    if name.count != split.count || name.number != split.no + 1 {
        return Err(error(format!(
            "says that it is part {} of {}, unlike its name: give the parts their names back",
            split.no.saturating_add(1),
            split.count
        )));
    }
    let mut parts = Vec::new();
    for number in 1..=split.count {
        let part = path.with_file_name(name.part(number));
        parts.push(open_part(part, &split, number)?);
    }
    merge(path, parts)
}

/// Refuses bytes that are a part of a model whose other parts cannot be found.
pub(super) fn refuse(path: &Path, parsed: &Parsed) -> Result<()> {
    match Split::of(path, &parsed.metadata)? {
        Some(split) => Err(Error::File { path: path.into(), message: not_whole(&split) }),
        None => Ok(()),
    }
}

/// The whole model of `parts`, which are all there are, in order.
pub(super) fn join(mut parts: Vec<(PathBuf, Parsed)>) -> Result<Weights> {
    if let [(path, parsed)] = &*parts {
        refuse(path, parsed)?;
    }
    if parts.len() < 2 {
        let (path, parsed) = parts
            .pop()
            .ok_or_else(|| Error::File { path: PathBuf::new(), message: "no file was given".into() })?;
        return Ok(parsed.into_weights(&path));
    }
    let count = parts.len() as u64;
    for (number, (path, parsed)) in (1..).zip(&parts) {
        check_part(path, parsed, number, count, "its place in the list")?;
    }
    let path = parts[0].0.clone();
    merge(&path, parts)
}

fn not_whole(split: &Split) -> String {
    format!(
        "is part {} of {} of a split model, or several parts joined into one file: keep the parts as \
         NAME-00001-of-{:05}.gguf and so on and open the first, or merge them with `llama-gguf-split --merge`",
        split.no.saturating_add(1),
        split.count,
        split.count
    )
}

fn open_part(path: PathBuf, whole: &Split, number: u64) -> Result<(PathBuf, Parsed)> {
    let error = |message| Error::File { path: path.clone(), message };
    if !path.exists() {
        return Err(error(format!("is missing: it is part {number} of {} of this model", whole.count)));
    }
    let parsed = Parsed::open(&path)?;
    check_part(&path, &parsed, number, whole.count, "its name")?;
    Ok((path, parsed))
}

/// Refuses a file that is not part `number` of `count`, as `source` says that it is.
fn check_part(path: &Path, parsed: &Parsed, number: u64, count: u64, source: &str) -> Result<()> {
    let error = |message| Error::File { path: path.into(), message };
    match Split::of(path, &parsed.metadata)? {
        Some(split) if split.no.checked_add(1) == Some(number) && split.count == count => Ok(()),
        Some(split) => Err(error(format!(
            "says that it is part {} of {}, but {source} says part {number} of {count}",
            split.no.saturating_add(1),
            split.count,
        ))),
        None => Err(error("does not say that it is a part of a split model (no split.count)".into())),
    }
}

/// Metadata of the first part, tensors of all.
fn merge(path: &Path, parts: Vec<(PathBuf, Parsed)>) -> Result<Weights> {
    let mut weights: Option<Weights> = None;
    let mut expected = None;
    for (part, (part_path, parsed)) in parts.into_iter().enumerate() {
        expected = expected.or(Split::of(&part_path, &parsed.metadata)?.and_then(|split| split.tensors));
        let opened = parsed.into_weights(&part_path);
        let Some(whole) = &mut weights else {
            weights = Some(opened);
            continue;
        };
        whole.parts.extend(opened.parts);
        for (name, mut entry) in opened.tensors {
            entry.part = part;
            if whole.tensors.contains_key(&name) {
                let message = format!("tensor {} is also in an earlier part", shown(&name));
                return Err(Error::File { path: part_path, message });
            }
            whole.tensors.insert(name, entry);
        }
    }
    let mut weights = weights.expect("a split model has two parts or more");
    let found = weights.tensors.len() as u64;
    if let Some(expected) = expected.filter(|&expected| expected != found) {
        let message = format!("its parts hold {found} tensors, split.tensors.count says {expected}");
        return Err(Error::File { path: path.into(), message });
    }
    weights.path = path.into();
    Ok(weights)
}

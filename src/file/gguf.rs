//! GGUF, versions 2 and 3, little endian.
//!
//! Layout: `GGUF`, u32 version, u64 tensor count, u64 key count; the keys (text, type, value); the tensors' names,
//! dimensions, types and offsets; padding; the data section, which offsets count from. Lengths are u64.
//! Source: `docs/gguf.md` of ggml. Everything the file says is checked before it is used: nothing here panics or
//! allocates because of what a file contains.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::metadata::Metadata;
use super::{Entry, Part, RopePairs, Weights, foreign, map};
use crate::error::{Error, Result};
use crate::tensor::Bytes;
use cursor::{Cursor, shown};
use tensors::{Info, Section};

mod cursor;
mod layout;
mod split;
mod tensors;
pub(super) mod types;
mod value;
mod write;

pub use write::{Declared, Plan, Writer, write};

const MAGIC: &[u8] = b"GGUF";

/// `GGUF_DEFAULT_ALIGNMENT`.
const DEFAULT_ALIGNMENT: u64 = 32;

/// 1 MiB; the format sets no limit, and no known file is above 4096.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// How much of a file that is read in pieces is looked at first for its header: more if that is not all of it.
const FIRST_HEAD: u64 = 1 << 20;
/// No vocabulary is near this long.
const MOST_HEAD: u64 = 256 << 20;

/// The smallest key: one byte behind its length.
const LEAST_KEY_BYTES: usize = 8 + 1;

/// Opens the file, and the other parts beside it if it is split.
pub(super) fn open(path: &Path) -> Result<Weights> {
    split::complete(path, Parsed::open(path)?)
}

/// Reads a whole file from `bytes`; `path` is what errors call it.
pub(super) fn parse(path: &Path, bytes: &Bytes) -> Result<Weights> {
    let parsed = Parsed::new(path, bytes)?;
    split::refuse(path, &parsed)?;
    Ok(parsed.into_weights(path))
}

/// Reads a whole file, or all parts of a split one in order; the paths are what errors call them.
pub(super) fn parse_all(files: impl Iterator<Item = (PathBuf, Bytes)>) -> Result<Weights> {
    let parse = |(path, bytes): (PathBuf, Bytes)| Parsed::new(&path, &bytes).map(|parsed| (path, parsed));
    split::join(files.map(parse).collect::<Result<_>>()?)
}

/// One file, read and checked.
struct Parsed {
    metadata: Metadata,
    tensors: IndexMap<String, Entry>,
    bytes: u64,
}

impl Parsed {
    fn open(path: &Path) -> Result<Parsed> {
        Parsed::new(path, &map::map(path)?)
    }

    fn new(path: &Path, bytes: &Bytes) -> Result<Parsed> {
        let Bytes::Stored(stored) = bytes else { return Parsed::read(path, bytes, bytes) };
        let mut head = FIRST_HEAD.min(stored.size());
        loop {
            let read = stored.read(0..head).map_err(|error| Error::io(path, error))?;
            match Parsed::read(path, &read, bytes) {
                Err(_) if head < MOST_HEAD.min(stored.size()) => head = (8 * head).min(stored.size()),
                parsed => return parsed,
            }
        }
    }

    /// Reads what is before the data section from `head`, the first of a file's `bytes`.
    fn read(path: &Path, head: &[u8], bytes: &Bytes) -> Result<Parsed> {
        if !head.starts_with(MAGIC) {
            return Err(Error::File { path: path.into(), message: foreign::describe(head).into() });
        }
        let mut r = Cursor::new(path, head);
        r.take("magic", MAGIC.len() as u64)?;
        check_version(&mut r)?;
        let counts = r.position();
        let tensor_count = r.u64("tensor_count")?;
        let key_count = r.u64("metadata_kv_count")?;
        r.fits(counts, "tensor_count", tensor_count, tensors::LEAST_BYTES)?;
        r.fits(
            counts + size_of::<u64>(),
            "metadata_kv_count",
            key_count,
            LEAST_KEY_BYTES + value::LEAST_BYTES,
        )?;
        let metadata = read_metadata(&mut r, key_count)?;
        let alignment = alignment(&mut r, &metadata)?;
        let infos = read_infos(&mut r, tensor_count)?;
        let start = (r.position() as u64).next_multiple_of(alignment);
        let section = Section { start, alignment, end: bytes.size() };
        let placed = tensors::place(&mut r, &infos, section)?;
        check_end(&mut r, bytes, section, &infos, &placed)?;
        // What was read up to here is in `metadata` and `infos`.
        map::release(bytes, 0..r.position());
        let entries = infos.into_iter().zip(placed).map(|(info, placed)| entry(info, placed, bytes, start));
        Ok(Parsed { metadata, tensors: entries.collect(), bytes: bytes.size() })
    }

    fn into_weights(self, path: &Path) -> Weights {
        Weights {
            path: path.into(),
            metadata: self.metadata,
            tensors: self.tensors,
            parts: vec![Part { path: path.into(), bytes: self.bytes }],
            rope_pairs: RopePairs::Gguf,
            tokenizer_json: None,
            tokenizer_config_json: None,
        }
    }
}

fn check_version(r: &mut Cursor) -> Result<()> {
    let start = r.position();
    let version = r.u32("version")?;
    let message = match version {
        2 | 3 => return Ok(()),
        1 => "version 1 (August 2023) is too old: convert the model again".to_owned(),
        // A small number whose bytes are the other way round.
        _ if version & 0xffff == 0 && version != 0 => {
            "the file is big-endian: convert it to little-endian with gguf-py's gguf_convert_endian.py"
                .to_owned()
        }
        _ => format!("version {version} is unknown, 2 and 3 can be read"),
    };
    Err(r.error_at(start, "version", message))
}

fn read_metadata(r: &mut Cursor, count: u64) -> Result<Metadata> {
    let mut metadata = IndexMap::new();
    for index in 0..count {
        r.context = format!("metadata[{index}]");
        let start = r.position();
        let key = r.text("key", tensors::MAX_NAME_BYTES)?;
        if key.is_empty() {
            return Err(r.error_at(start, "key", "is empty"));
        }
        r.context = format!("metadata[{index}] {}", shown(key));
        let value = value::read(r)?;
        if metadata.insert(key.to_owned(), value).is_some() {
            return Err(r.error_at(start, "key", "is there twice"));
        }
    }
    Ok(Metadata(metadata))
}

fn alignment(r: &mut Cursor, metadata: &Metadata) -> Result<u64> {
    const KEY: &str = "general.alignment";
    r.context = "metadata".to_owned();
    let alignment = metadata.u64(KEY).map_err(|error| r.error(KEY, error.to_string()))?;
    let alignment = alignment.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        let message = format!("{alignment} is no power of two between 1 and {MAX_ALIGNMENT}");
        return Err(r.error(KEY, message));
    }
    Ok(alignment)
}

fn read_infos(r: &mut Cursor, count: u64) -> Result<Vec<Info>> {
    let mut infos = Vec::new();
    for index in 0..count as usize {
        infos.push(Info::read(r, index)?);
    }
    let mut names = HashSet::new();
    for info in &infos {
        if !names.insert(info.name.as_str()) {
            return Err(info.error(r, "name", "a tensor of this name is there twice"));
        }
    }
    Ok(infos)
}

/// Looks at what follows the last tensor: its padding, nothing, or another file.
fn check_end(
    r: &mut Cursor,
    bytes: &Bytes,
    section: Section,
    infos: &[Info],
    placed: &[tensors::Placed],
) -> Result<()> {
    let ends = placed.iter().map(|placed| placed.range.as_ref().map(|range| range.end));
    if ends.clone().any(|end| end.is_none()) {
        return Ok(()); // Tensors of unknown size may well be what follows.
    }
    let Some((end, last)) = ends.flatten().zip(infos).max_by_key(|(end, _)| *end).filter(|(end, _)| *end > 0)
    else {
        return Ok(());
    };
    let padded = section.start + section.padded(end - section.start);
    let follows = |at: u64| {
        let found = bytes.slice(at..at.saturating_add(MAGIC.len() as u64));
        found.is_some_and(|found| found.starts_with(MAGIC))
    };
    if follows(end) || follows(padded) {
        let message = "another GGUF file begins here: parts of a split model were joined byte by byte. Keep the parts \
                       as NAME-00001-of-0000N.gguf and so on and open the first, or merge them with \
                       `llama-gguf-split --merge`";
        r.context = "end of data".to_owned();
        return Err(r.error_at(end as usize, "", message));
    }
    // Writers pad the last tensor like the others, or not at all. A file that ends in between was cut.
    let length = bytes.size();
    if end != length && length < padded {
        let short = padded - length;
        let message = format!(
            "the file ends {short} bytes before the end of this last tensor's padding: the download is incomplete"
        );
        return Err(last.error(r, "", message));
    }
    Ok(())
}

fn entry(info: Info, placed: tensors::Placed, bytes: &Bytes, data_start: u64) -> (String, Entry) {
    let type_name = match placed.format {
        Some(format) => types::format_name(format),
        None => types::other_name(info.type_id),
    };
    let data = placed.range.and_then(|range| bytes.slice(range)).unwrap_or(Bytes::Static(&[]));
    let entry = Entry {
        shape: info.shape,
        type_name,
        type_id: Some(info.type_id),
        format: placed.format,
        offset: info.offset.saturating_add(data_start),
        part: 0,
        data,
    };
    (info.name, entry)
}

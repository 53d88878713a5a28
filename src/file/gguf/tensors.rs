//! Tensor descriptions of a GGUF file, and where each tensor's bytes are.

use std::ops::Range;

use super::cursor::{Cursor, shown};
use super::layout::{self, Layout};
use crate::error::Result;
use crate::quant::Format;

/// `GGML_MAX_DIMS`.
const MAX_DIMS: u32 = 4;

/// GGUF bounds keys to 65535 bytes and names to 64, which some converters exceed: one limit for both.
pub(super) const MAX_NAME_BYTES: u64 = 65535;

/// The smallest description: a name of one byte and its length, one dimension, type and offset.
pub(super) const LEAST_BYTES: usize = 8 + 1 + 4 + 8 + 4 + 8;

/// A tensor as the header describes it.
pub(super) struct Info {
    /// Where the description begins in the file.
    at: usize,
    index: usize,
    pub name: String,
    /// Dimensions, outermost first (GGUF stores them innermost first).
    pub shape: Vec<usize>,
    pub type_id: u32,
    /// Bytes from the start of the data section.
    pub offset: u64,
}

/// What a tensor's bytes are.
pub(super) struct Placed {
    pub format: Option<&'static Format>,
    /// In the file; `None` if the type's size is unknown.
    pub range: Option<Range<u64>>,
}

/// The data section of a file.
#[derive(Clone, Copy)]
pub(super) struct Section {
    pub start: u64,
    pub alignment: u64,
    /// Where the file ends.
    pub end: u64,
}

impl Section {
    fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// `bytes`, rounded up to the alignment.
    pub fn padded(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.alignment).unwrap_or(u64::MAX)
    }
}

impl Info {
    /// The description that begins here, the file's `index`th.
    pub fn read(r: &mut Cursor, index: usize) -> Result<Info> {
        r.context = format!("tensor[{index}]");
        let at = r.position();
        let name = r.text("name", MAX_NAME_BYTES)?.to_owned();
        if name.is_empty() {
            return Err(r.error_at(at, "name", "is empty"));
        }
        r.context = context(index, &name);
        let shape = read_shape(r)?;
        let type_id = r.u32("type")?;
        let offset = r.u64("offset")?;
        Ok(Info { at, index, name, shape, type_id, offset })
    }

    /// How errors call this tensor.
    pub fn context(&self) -> String {
        context(self.index, &self.name)
    }

    /// An error about this tensor.
    pub fn error(&self, r: &mut Cursor, field: &str, message: impl Into<String>) -> crate::Error {
        r.context = self.context();
        r.error_at(self.at, field, message)
    }

    /// The bytes up to the next tensor, or to the end of the file.
    fn span(&self, offsets: &[u64], section: Section) -> u64 {
        let next = offsets.partition_point(|&offset| offset <= self.offset);
        let end = offsets.get(next).copied().unwrap_or(section.len()).min(section.len());
        end.saturating_sub(self.offset)
    }

    /// The range of `bytes` bytes from this tensor's offset, which must be inside the file.
    fn range(&self, r: &mut Cursor, section: Section, bytes: u64) -> Result<Range<u64>> {
        if bytes == 0 {
            return Ok(0..0);
        }
        let end = self.offset.saturating_add(bytes);
        if end > section.len() {
            let short = end - section.len();
            let message = format!(
                "its {bytes} bytes end {short} bytes past the end of the file: the download is incomplete"
            );
            return Err(self.error(r, "", message));
        }
        let start = section.start + self.offset;
        Ok(start..start + bytes)
    }
}

fn context(index: usize, name: &str) -> String {
    format!("tensor[{index}] {}", shown(name))
}

fn read_shape(r: &mut Cursor) -> Result<Vec<usize>> {
    let start = r.position();
    let count = r.u32("n_dims")?;
    if !(1..=MAX_DIMS).contains(&count) {
        let message = format!("{count} dimensions, 1 to {MAX_DIMS} are allowed");
        return Err(r.error_at(start, "n_dims", message));
    }
    let mut shape = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = r.position();
        let dim = r.u64("dims")?;
        let too_large = |_| r.error_at(start, "dims", format!("size overflow: a dimension of {dim}"));
        shape.push(usize::try_from(dim).map_err(too_large)?);
    }
    shape.reverse();
    Ok(shape)
}

/// Finds format and bytes of every tensor.
pub(super) fn place(r: &mut Cursor, infos: &[Info], section: Section) -> Result<Vec<Placed>> {
    let mut offsets: Vec<u64> = infos.iter().map(|info| info.offset).collect();
    offsets.sort_unstable();
    let mut layouts = Vec::with_capacity(infos.len());
    let mut certain = None;
    for info in infos {
        if !info.offset.is_multiple_of(section.alignment) {
            let message = format!("{} is no multiple of the alignment {}", info.offset, section.alignment);
            return Err(info.error(r, "offset", message));
        }
        let formats: Vec<_> = Format::by_gguf_id(info.type_id).collect();
        let span = info.span(&offsets, section);
        let possible = layout::possible(&info.shape, info.type_id, &formats, span, section);
        let possible = possible.map_err(|message| info.error(r, "dims", message))?;
        if let ([Layout { format: Some(format), .. }], [_, _, ..]) = (possible.as_slice(), formats.as_slice())
        {
            certain = Some(*format);
        }
        layouts.push(possible);
    }
    let mut placed = Vec::with_capacity(infos.len());
    for (info, layouts) in infos.iter().zip(layouts) {
        let Layout { format, bytes } = layout::choose(&layouts, certain);
        let range = bytes.map(|bytes| info.range(r, section, bytes)).transpose()?;
        placed.push(Placed { format, range });
    }
    Ok(placed)
}

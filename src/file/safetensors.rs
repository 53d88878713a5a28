//! Safetensors: one file, or shards named by an index. Headers are parsed by the reference crate, so that what it
//! accepts and refuses is what we do.

use std::path::{Component, Path, PathBuf};

use indexmap::IndexMap;
use safetensors::SafeTensors;
use safetensors::tensor::Metadata as Header;

use super::metadata::{Metadata, Value};
use super::{Entry, Part, map};
use crate::error::{Error, Result};
use crate::quant::Format;
use crate::tensor::Bytes;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The length of the header stands before it.
const LENGTH_BYTES: usize = size_of::<u64>();

/// The tensors of a folder, by their names in the files.
pub(super) struct Folder {
    pub tensors: IndexMap<String, Entry>,
    pub parts: Vec<Part>,
}

/// Opens `model.safetensors`, or else the shards that the index names.
pub(super) fn open_folder(folder: &Path) -> Result<Folder> {
    let single = folder.join(SINGLE);
    if single.exists() {
        let (tensors, part) = open_part(single, 0)?;
        return Ok(Folder { tensors, parts: vec![part] });
    }
    let index = folder.join(INDEX);
    if index.exists() {
        return open_shards(folder, &index);
    }
    let message = if folder.join("pytorch_model.bin").exists() {
        "has only pytorch_model.bin: convert the model to safetensors or GGUF".to_owned()
    } else {
        format!("has neither {SINGLE} nor {INDEX}")
    };
    Err(Error::File { path: folder.into(), message })
}

fn open_part(path: PathBuf, part: usize) -> Result<(IndexMap<String, Entry>, Part)> {
    let bytes = map::map(&path)?;
    let (tensors, _) = parse(&path, &bytes, part)?;
    Ok((tensors, Part { path, bytes: bytes.len() as u64 }))
}

fn open_shards(folder: &Path, index: &Path) -> Result<Folder> {
    let error = |message| Error::File { path: index.into(), message };
    let text = std::fs::read_to_string(index).map_err(|source| Error::io(index, source))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|source| error(format!("is not JSON: {source}")))?;
    let weight_map = json.get("weight_map").and_then(|map| map.as_object());
    let weight_map = weight_map.ok_or_else(|| error("has no weight_map".into()))?;
    let mut shards: IndexMap<&str, IndexMap<String, Entry>> = IndexMap::new();
    let mut whole = Folder { tensors: IndexMap::new(), parts: Vec::new() };
    for (name, shard) in weight_map {
        let shard = shard.as_str().ok_or_else(|| error(format!("{name:?} is in no named file")))?;
        if !shards.contains_key(shard) {
            let path = folder.join(inside(shard).map_err(error)?);
            if !path.exists() {
                return Err(Error::File { path, message: format!("is missing: {INDEX} names it") });
            }
            let (tensors, part) = open_part(path, whole.parts.len())?;
            shards.insert(shard, tensors);
            whole.parts.push(part);
        }
        let entry = shards.get_mut(shard).and_then(|tensors| tensors.swap_remove(name));
        let entry = entry.ok_or_else(|| error(format!("{shard:?} has no tensor {name:?}")))?;
        whole.tensors.insert(name.clone(), entry);
    }
    Ok(whole)
}

/// `shard` as a path that stays inside its folder: no `..`, no root, no drive.
fn inside(shard: &str) -> Result<&Path, String> {
    let path = Path::new(shard);
    let mut components = path.components().peekable();
    let leaves = components.peek().is_none() || components.any(|part| !matches!(part, Component::Normal(_)));
    if leaves { Err(format!("{shard:?} is no file of this folder")) } else { Ok(path) }
}

/// The tensors of one file in the order of their bytes, and the texts of its header.
pub(super) fn parse(path: &Path, bytes: &Bytes, part: usize) -> Result<(IndexMap<String, Entry>, Metadata)> {
    let (length, header) = SafeTensors::read_metadata(bytes).map_err(|source| Error::File {
        path: path.into(),
        message: format!("is no safetensors file, or damaged: {}", one_line(&source.to_string())),
    })?;
    let start = LENGTH_BYTES + length;
    let mut tensors = IndexMap::new();
    for name in header.offset_keys() {
        let entry =
            entry(&header, &name, bytes, start, part).expect("the header was checked against the bytes");
        tensors.insert(name, entry);
    }
    Ok((tensors, texts(&header)))
}

fn entry(header: &Header, name: &str, bytes: &Bytes, start: usize, part: usize) -> Option<Entry> {
    let info = header.info(name)?;
    let (first, end) = info.data_offsets;
    let type_name = format!("{:?}", info.dtype);
    Some(Entry {
        shape: info.shape.clone(),
        // Safetensors knows plain numbers only; f32, f16 and bf16 are among our formats under the same name.
        format: Format::by_name(&type_name).filter(|format| format.block_len == 1),
        type_name,
        type_id: None,
        offset: (start + first) as u64,
        part,
        data: bytes.slice((start + first) as u64..(start + end) as u64)?,
    })
}

/// `__metadata__`, sorted: the crate keeps no order.
fn texts(header: &Header) -> Metadata {
    let mut texts: IndexMap<String, Value> = header
        .metadata()
        .iter()
        .flatten()
        .map(|(key, text)| (key.clone(), Value::String(text.clone())))
        .collect();
    texts.sort_unstable_keys();
    Metadata(texts)
}

/// The crate quotes names out of the file.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

//! Any model as a Hugging Face folder, plain or quantized as MLX does: tensors are decoded, put into the order and under the
//! names that transformers has, and written one after the other. The folder is `NAME.partial` until all of it is there, with a
//! journal beside it, so that what was stopped can be gone on with.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use serde_json::{Map, Value as Json, json};

use super::journal::Journal;
use super::plan::is_matrix;
use super::run::{Rows, Start, named, pool};
use crate::backend::cpu::pool::Pool;
use crate::convert::{RowOrder, config};
use crate::error::{Error, Result};
use crate::file::shards::{Declared, Writer, pretty};
use crate::file::{Entry, Weights, folder_name, output};
use crate::quant::{Format, f32, trellis};
use crate::tokenizer::export;

/// What a folder is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The format of matrices: a plain number or one of MLX's.
    pub matrices: &'static Format,
    /// What everything else is stored as, scales and biases too: f32, f16 or bf16.
    pub floats: &'static Format,
    /// Bytes of a file.
    pub shard: u64,
}

/// How MLX calls a format.
#[derive(Clone, Copy, Debug)]
struct Mode {
    name: &'static str,
    bits: usize,
    group: usize,
}

impl Mode {
    fn of(format: &Format) -> Option<Mode> {
        match format.name {
            "mxfp4" => Some(Mode { name: "mxfp4", bits: 4, group: 32 }),
            "nvfp4" => Some(Mode { name: "nvfp4", bits: 4, group: 16 }),
            "mxfp8" => Some(Mode { name: "mxfp8", bits: 8, group: 32 }),
            name => {
                if let Some(bits) = name.strip_prefix("trellis_k") {
                    return Some(Mode { name: "trellis", bits: bits.parse().ok()?, group: 256 });
                }
                let (bits, group) = name.strip_prefix("affine")?.split_once("_g")?;
                Some(Mode { name: "affine", bits: bits.parse().ok()?, group: group.parse().ok()? })
            }
        }
    }

    /// Tensors that one becomes: codes, scales and, of affine groups, biases.
    fn pieces(self) -> usize {
        if self.name == "affine" { 3 } else { 2 }
    }

    fn json(self) -> Json {
        let mut json = json!({"group_size": self.group, "bits": self.bits, "mode": self.name});
        if self.name == "trellis" {
            json["trellis"] = trellis::settings();
        }
        json
    }
}

/// A tensor on its way.
struct Part<'a> {
    entry: &'a Entry,
    /// In the source.
    name: &'a str,
    /// In the folder, less `.weight`.
    module: String,
    full_name: String,
    less_one: bool,
    /// `None` for what stays plain.
    mode: Option<Mode>,
}

/// A folder to be made.
#[derive(Debug)]
pub struct Folder<'a> {
    weights: &'a Weights,
    target: Target,
    parts: Vec<(String, Part<'a>)>,
}

impl std::fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.full_name)
    }
}

impl<'a> Folder<'a> {
    /// Decides on every tensor of `weights`.
    ///
    /// # Errors
    /// [`Error::Tensor`] for a tensor that has no name there or cannot be decoded, [`Error::Unsupported`] for a target
    /// that is neither plain nor MLX's.
    pub fn new(weights: &'a Weights, target: Target) -> Result<Folder<'a>> {
        let plain = |format: &Format| ["f32", "f16", "bf16"].contains(&format.name);
        let mode = Mode::of(target.matrices);
        if mode.is_none() && !plain(target.matrices) || !plain(target.floats) {
            let hint = "a folder holds f32, f16, bf16, MLX's affine formats, mxfp4, nvfp4 and mxfp8, and trellis codes";
            return Err(Error::unsupported("format in a folder", target.matrices.name, hint));
        }
        let architecture = weights.metadata.str("general.architecture")?.unwrap_or_default();
        let mut parts = Vec::new();
        for (name, entry) in &weights.tensors {
            // What the rule in config.json comes to.
            if name == "rope_freqs.weight" {
                continue;
            }
            let Some((full_name, less_one)) = folder_name(architecture, name) else {
                return Err(Error::tensor(name, "has no name in a Hugging Face folder"));
            };
            if entry.format.is_none() {
                return Err(Error::tensor(name, format!("{} can't be decoded", entry.type_name)));
            }
            let columns = entry.shape.last().copied().unwrap_or(1);
            let fits = columns.is_multiple_of(target.matrices.block_len);
            let mode = mode.filter(|_| is_matrix(name, entry) && fits);
            let module = full_name.trim_end_matches(".weight").to_owned();
            parts.push((full_name.clone(), Part { entry, name, module, full_name, less_one, mode }));
        }
        Ok(Folder { weights, target, parts })
    }

    /// Matrices that stay plain, as their rows are no whole number of groups.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        let quantized = Mode::of(self.target.matrices).is_some();
        let kept = move |(_, part): &&(String, Part<'a>)| {
            quantized && part.mode.is_none() && is_matrix(part.name, part.entry)
        };
        self.parts.iter().filter(kept).map(|(name, _)| name.as_str())
    }

    /// The formats of matrices that are to be made of groups, by name: what can be calibrated.
    pub fn group_formats(&self) -> IndexMap<String, &'static Format> {
        let groups = self.parts.iter().filter(|(_, part)| part.mode.is_some());
        groups.map(|(_, part)| (part.name.to_owned(), self.target.matrices)).collect()
    }

    /// Writes the folder `path` with `threads` threads, by default one a core; `step` is called with each tensor's name
    /// before it is made, and may stop the work with an error. Whatever ends it, [`Start::Resume`] goes on with it.
    ///
    /// # Errors
    /// [`Error::File`] if `path` is there or another source was begun and is to be resumed, those of [`config`] and
    /// [`export`], [`Error::Io`] if the system refuses, and those of `step`.
    pub fn write(
        &self,
        path: &Path,
        threads: Option<usize>,
        start: Start,
        step: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        if path.exists() {
            let message = "is there already: give the new folder another name".into();
            return Err(Error::File { path: path.into(), message });
        }
        let (texts, pool) = (self.texts()?, pool(threads)?);
        let staging = output::partial(path);
        std::fs::create_dir_all(&staging).map_err(|error| Error::io(&staging, error))?;
        let mut journal = Journal::new(path, self.weights.parts.iter().map(|part| part.path.as_path()));
        let mut writer = Writer::new(&staging, self.declared()?, self.target.shard);
        let begun = start == Start::Resume && journal.resume()? && journal.done() > 0;
        if !begun || !writer.resume(self.pieces(journal.done()))? {
            journal.restart();
            clear(&staging)?;
        }
        self.fill(&mut writer, &mut journal, &pool, step)?;
        writer.finish()?;
        texts.iter().try_for_each(|(name, bytes)| output::write(&staging.join(name), bytes))?;
        std::fs::rename(&staging, path).map_err(|error| Error::io(path, error))?;
        journal.remove();
        Ok(())
    }

    fn fill(
        &self,
        writer: &mut Writer,
        journal: &mut Journal,
        pool: &Pool,
        mut step: impl FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        for (index, (name, part)) in self.parts.iter().enumerate().skip(journal.done()) {
            if let Err(stopped) = step(name) {
                journal.write(index, || writer.sync())?;
                return Err(stopped);
            }
            for bytes in self.bytes(part, pool)? {
                writer.tensor(&bytes)?;
            }
            if journal.is_due() {
                journal.write(index + 1, || writer.sync())?;
            }
        }
        Ok(())
    }

    /// How many tensors of the folder the first `parts` tensors become.
    fn pieces(&self, parts: usize) -> usize {
        self.parts.iter().take(parts).map(|(_, part)| part.mode.map_or(1, Mode::pieces)).sum()
    }

    fn declared(&self) -> Result<Vec<Declared>> {
        let Target { matrices, floats, .. } = self.target;
        let mut all = Vec::new();
        let mut declare = |name: String, dtype, shape: Vec<usize>, size: usize| {
            let count = shape.iter().try_fold(size, |product, &dim| product.checked_mul(dim));
            let bytes = count.ok_or_else(|| Error::tensor(&name, "size overflow"))? as u64;
            all.push(Declared { name, dtype, shape, bytes });
            Ok(())
        };
        for (_, part) in &self.parts {
            let shape = &part.entry.shape;
            let Some(Mode { name, bits, group }) = part.mode else {
                let format =
                    if is_matrix(part.name, part.entry) { plain_of(matrices, floats) } else { floats };
                declare(part.full_name.clone(), dtype(format), shape.clone(), format.block_bytes)?;
                continue;
            };
            let with = |columns: usize| {
                let mut shape = shape.clone();
                *shape.last_mut().expect("a matrix") = columns;
                shape
            };
            let columns = shape.last().copied().unwrap_or(0);
            declare(part.full_name.clone(), "U32", with(columns / 32 * bits), 4)?;
            let (kind, size) = match name {
                "affine" => (dtype(floats), floats.block_bytes),
                "trellis" => ("F16", 2),
                _ => ("U8", 1),
            };
            declare(format!("{}.scales", part.module), kind, with(columns / group), size)?;
            if name == "affine" {
                declare(format!("{}.biases", part.module), kind, with(columns / group), size)?;
            }
        }
        Ok(all)
    }

    /// One tensor as one, two or three.
    fn bytes(&self, part: &Part, pool: &Pool) -> Result<Vec<Vec<u8>>> {
        let Target { matrices, floats, .. } = self.target;
        let format = if is_matrix(part.name, part.entry) { plain_of(matrices, floats) } else { floats };
        let order = RowOrder::of_folder(self.weights, part.name);
        let columns = match (&part.entry.shape[..], order) {
            // Rows of a bias are single numbers.
            ([_], Some(_)) => 1,
            (shape, _) => shape.last().copied().unwrap_or(1),
        };
        let count = part.entry.shape.iter().product::<usize>() / columns.max(1);
        let from = part.entry.format.expect("it was looked at");
        let data = part.entry.data.unshared();
        let rows = Rows { from, to: format, columns, count, importance: None, order, feedback: None };
        let error = named(part.name, columns);
        if let Some(mode) = part.mode.filter(|_| from.name == matrices.name) {
            // Groups that are there stay as they are.
            let groups = Rows { to: matrices, ..rows }.encode(pool, &data).map_err(&error)?;
            return Ok(apart(mode, matrices, floats, &groups));
        }
        if part.less_one {
            let exact = Rows { to: &f32::FORMAT, ..rows }.encode(pool, &data).map_err(&error)?;
            let less: Vec<u8> = exact
                .as_chunks::<4>()
                .0
                .iter()
                .flat_map(|bytes| (f32::from_le_bytes(*bytes) - 1.0).to_le_bytes())
                .collect();
            let rows = Rows {
                from: &f32::FORMAT,
                to: format,
                columns,
                count,
                importance: None,
                order: None,
                feedback: None,
            };
            return Ok(vec![rows.encode(pool, &less).map_err(&error)?]);
        }
        let plain = rows.encode(pool, &data).map_err(&error)?;
        let Some(mode) = part.mode else { return Ok(vec![plain]) };
        // MLX quantizes weights that were rounded to the type of the folder.
        let rows = Rows {
            from: format,
            to: matrices,
            columns,
            count,
            importance: None,
            order: None,
            feedback: None,
        };
        Ok(apart(mode, matrices, floats, &rows.encode(pool, &plain).map_err(&error)?))
    }

    /// The files beside the tensors.
    fn texts(&self) -> Result<Vec<(&'static str, Vec<u8>)>> {
        let weights = self.weights;
        let mut json = config::config(weights)?;
        json.insert("torch_dtype".into(), json!(torch(self.target.floats)));
        if let Some(mode) = Mode::of(self.target.matrices) {
            let mut settings = match mode.json() {
                Json::Object(settings) => settings,
                _ => Map::new(),
            };
            settings
                .extend(self.kept().map(|name| (name.trim_end_matches(".weight").to_owned(), json!(false))));
            for name in ["quantization", "quantization_config"] {
                json.insert(name.into(), Json::Object(settings.clone()));
            }
        }
        let generation = Json::Object(config::token_ids(weights)?);
        let mut texts = vec![
            ("config.json", pretty(&Json::Object(json))),
            ("generation_config.json", pretty(&generation)),
        ];
        match (&weights.tokenizer_json, &weights.tokenizer_config_json) {
            (Some(tokenizer), config) => {
                texts.push(("tokenizer.json", tokenizer.clone().into_bytes()));
                texts.extend(
                    config.iter().map(|config| ("tokenizer_config.json", config.clone().into_bytes())),
                );
            }
            (None, _) => {
                let exported = export(&weights.metadata)?;
                texts.push(("tokenizer.json", pretty(&exported.tokenizer)));
                texts.push(("tokenizer_config.json", pretty(&exported.config)));
            }
        }
        if let Some(template) = weights.metadata.str("tokenizer.chat_template")? {
            texts.push(("chat_template.jinja", template.as_bytes().to_vec()));
        }
        Ok(texts)
    }
}

/// What a matrix is before it is quantized, or if it is not.
fn plain_of(matrices: &'static Format, floats: &'static Format) -> &'static Format {
    if matrices.block_len == 1 { matrices } else { floats }
}

fn dtype(format: &Format) -> &'static str {
    match format.name {
        "f16" => "F16",
        "bf16" => "BF16",
        _ => "F32",
    }
}

fn torch(format: &Format) -> &'static str {
    match format.name {
        "f16" => "float16",
        "bf16" => "bfloat16",
        _ => "float32",
    }
}

/// Codes, scales and biases of blocks, the last two in `floats`.
fn apart(mode: Mode, format: &Format, floats: &Format, blocks: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new(); mode.pieces()];
    let mut number = vec![0; floats.block_bytes];
    for block in blocks.chunks_exact(format.block_bytes) {
        match mode.name {
            "affine" => {
                let (numbers, codes) = block.split_at(8);
                parts[0].extend(codes);
                for (bytes, part) in numbers.as_chunks::<4>().0.iter().zip(&mut parts[1..]) {
                    floats.encode(&[f32::from_le_bytes(*bytes)], &mut number).expect("a finite number");
                    part.extend(&number);
                }
            }
            "trellis" => {
                let (ring, scale) = block.split_at(format.block_bytes - 2);
                parts[0].extend(ring);
                parts[1].extend(scale);
            }
            "nvfp4" => {
                parts[1].extend(&block[..4]);
                block[4..].chunks_exact(8).for_each(|nibbles| parts[0].extend(join_nibbles(nibbles)));
            }
            "mxfp4" => {
                parts[1].push(block[0]);
                parts[0].extend(join_nibbles(&block[1..]));
            }
            _ => {
                parts[1].push(block[0]);
                parts[0].extend(&block[1..]);
            }
        }
    }
    parts
}

/// Low nibbles, then high ones, as nibbles that follow each other.
fn join_nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let nibble = move |i: usize| if i < bytes.len() { bytes[i] & 15 } else { bytes[i - bytes.len()] >> 4 };
    (0..bytes.len()).map(move |i| nibble(2 * i) | nibble(2 * i + 1) << 4)
}

/// Removes what an earlier run left in a folder of ours.
fn clear(staging: &Path) -> Result<()> {
    let io = |error| Error::io(staging, error);
    for file in std::fs::read_dir(staging).map_err(io)? {
        let path: PathBuf = file.map_err(io)?.path();
        let ours = ["safetensors", "json", "jinja", "partial"].map(std::ffi::OsStr::new);
        if path.extension().is_none_or(|extension| !ours.contains(&extension)) {
            let message = format!("holds {}: remove it first", path.display());
            return Err(Error::File { path: staging.into(), message });
        }
        std::fs::remove_file(&path).map_err(io)?;
    }
    Ok(())
}

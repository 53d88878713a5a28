//! Hugging Face folders: config.json, safetensors and tokenizer files, read under GGUF's names and keys.
//!
//! A `model_type` that we do not translate opens all the same, under its own names, so that it can be looked at.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::{Map, Value as Json};

use super::metadata::{Array, Metadata, Value};
use super::{Entry, RopePairs, Weights, safetensors};
use crate::error::{Error, Result};
use crate::quant;
use crate::tensor::Bytes;
use config::Config;
use names::Architecture;
pub(crate) use names::folder_name;

mod config;
mod mlx;
mod names;

const CONFIG: &str = "config.json";

/// Ids in config.json or generation_config.json and the keys that they become; of lists, the first one.
static TOKEN_IDS: &[(&str, &str)] = &[
    ("bos_token_id", "tokenizer.ggml.bos_token_id"),
    ("eos_token_id", "tokenizer.ggml.eos_token_id"),
    ("pad_token_id", "tokenizer.ggml.padding_token_id"),
];

/// Opens a folder that has a config.json.
pub(super) fn open(folder: &Path) -> Result<Weights> {
    let json = read_object(&folder.join(CONFIG))?.ok_or_else(|| not_a_model(folder))?;
    let mut config = Config::new(json);
    let Some(model_type) = config.model_type().map(str::to_owned) else {
        let message = "has no model_type: it is not the config of a language model".to_owned();
        return Err(Error::File { path: folder.join(CONFIG), message });
    };
    let both_ways = config.get("use_bidirectional_attention") == Some(&Json::Bool(true));
    let model_type =
        if both_ways && model_type == "gemma3_text" { names::EMBEDDING_GEMMA.into() } else { model_type };
    let architecture = Architecture::of(&model_type);
    let name = architecture.map_or(model_type.as_str(), |architecture| architecture.name);
    let stored = safetensors::open_folder(folder)?;
    let mut tensors = mlx::weave(folder, &config, stored.tensors)?;
    let mut metadata = general(folder, name);
    if let Some(architecture) = architecture {
        config.assume(architecture);
        tensors = rename(folder, tensors, architecture, config.is_tied())?;
    }
    config.translate(name, &mut metadata);
    let tokenizer = read_object(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let generation = read_object(&folder.join("generation_config.json"))?.unwrap_or_default();
    token_ids(&config, &generation, &mut metadata);
    if let Some(add) = tokenizer.get("add_bos_token").and_then(config::value) {
        metadata.0.insert("tokenizer.ggml.add_bos_token".into(), add);
    }
    chat_template(folder, &tokenizer, &mut metadata)?;
    Ok(Weights {
        path: folder.into(),
        metadata,
        tensors,
        parts: stored.parts,
        rope_pairs: RopePairs::Halves,
        tokenizer_json: read_text(&folder.join("tokenizer.json"))?,
        tokenizer_config_json: read_text(&folder.join("tokenizer_config.json"))?,
    })
}

/// The contents of a text file, or `None` if there is no such file.
fn read_text(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

fn read_object(path: &Path) -> Result<Option<Map<String, Json>>> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| Error::File { path: path.into(), message: format!("is no JSON object: {error}") })
}

fn not_a_model(folder: &Path) -> Error {
    let gguf = std::fs::read_dir(folder).ok().and_then(|files| {
        let mut names = files.flatten().filter_map(|file| file.file_name().into_string().ok());
        names.find(|name| name.ends_with(".gguf"))
    });
    let message = match gguf {
        Some(name) => format!("is a folder: give the file in it, {name}"),
        None => format!(
            "is a folder without {CONFIG}: give a .gguf file, or a Hugging Face folder of safetensors"
        ),
    };
    Error::File { path: folder.into(), message }
}

fn general(folder: &Path, architecture: &str) -> Metadata {
    let mut metadata = Metadata::default();
    metadata.0.insert("general.architecture".into(), Value::String(architecture.into()));
    // `.` has no name of its own.
    let name =
        std::path::absolute(folder).ok().and_then(|path| path.file_name()?.to_str().map(str::to_owned));
    if let Some(name) = name {
        metadata.0.insert("general.name".into(), Value::String(name));
    }
    metadata
}

/// Gives the tensors GGUF's names. Those that the architecture does not have keep theirs.
fn rename(
    folder: &Path,
    stored: IndexMap<String, Entry>,
    architecture: &Architecture,
    tied: bool,
) -> Result<IndexMap<String, Entry>> {
    let mut tensors = IndexMap::with_capacity(stored.len());
    for (stored_name, entry) in stored {
        let name = architecture.gguf_name(&stored_name).unwrap_or_else(|| stored_name.clone());
        // A copy of the embedding that some exporters leave behind; config.json says that it is not used.
        if tied && name == "output.weight" {
            continue;
        }
        let less_one = architecture.norms_less_one && name.ends_with("_norm.weight");
        let entry = if less_one { add_one(&name, entry)? } else { entry };
        if tensors.insert(name.clone(), entry).is_some() {
            let message = format!("two tensors are {name}, one of them stored as {stored_name:?}");
            return Err(Error::File { path: folder.into(), message });
        }
    }
    Ok(tensors)
}

/// The tensor in f32 with 1 added, which GGUF's converters add too.
fn add_one(name: &str, entry: Entry) -> Result<Entry> {
    let Some(format) = entry.format else { return Ok(entry) };
    let mut values = vec![0.0f32; entry.data.len() / format.block_bytes * format.block_len];
    format.decode(&entry.data, &mut values).map_err(|error| Error::tensor(name, error.to_string()))?;
    let bytes: Vec<u8> = values.iter().flat_map(|value| (value + 1.0).to_le_bytes()).collect();
    let format = &quant::f32::FORMAT;
    Ok(Entry { type_name: "F32".into(), format: Some(format), data: Bytes::Owned(bytes.into()), ..entry })
}

/// Where generation_config.json has ids they count, as in transformers; config.json's are a fallback.
fn token_ids(config: &Config, generation: &Map<String, Json>, metadata: &mut Metadata) {
    let find = |name| generation.get(name).filter(|ids| !ids.is_null()).or_else(|| config.get(name));
    for (name, key) in TOKEN_IDS {
        let first = find(name).and_then(|ids| ids.as_array().map_or(Some(ids), |ids| ids.first()));
        if let Some(id) = first.and_then(token_id) {
            metadata.set(*key, Value::U32(id));
        }
    }
    let ends =
        find("eos_token_id").map(|ids| ids.as_array().map_or(std::slice::from_ref(ids), Vec::as_slice));
    let ends: Vec<u32> = ends.unwrap_or_default().iter().filter_map(token_id).collect();
    if !ends.is_empty() {
        metadata.set("tokenizer.ggml.eos_token_ids", Value::Array(Array::U32(ends)));
    }
}

fn token_id(json: &Json) -> Option<u32> {
    json.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// The template of chat_template.jinja, or else of tokenizer_config.json: a text, or several under names.
fn chat_template(folder: &Path, tokenizer: &Map<String, Json>, metadata: &mut Metadata) -> Result<()> {
    const KEY: &str = "tokenizer.chat_template";
    let mut set = |key: String, text: String| metadata.0.insert(key, Value::String(text));
    if let Some(text) = read_text(&folder.join("chat_template.jinja"))? {
        set(KEY.into(), text);
        return Ok(());
    }
    match tokenizer.get("chat_template") {
        Some(Json::String(text)) => {
            set(KEY.into(), text.clone());
        }
        Some(Json::Array(templates)) => {
            for template in templates {
                let field = |name| template.get(name).and_then(Json::as_str);
                let (Some(name), Some(text)) = (field("name"), field("template")) else { continue };
                // GGUF's converters name the others behind the key in the same way.
                let key = if name == "default" { KEY.into() } else { format!("{KEY}.{name}") };
                set(key, text.into());
            }
        }
        _ => {}
    }
    Ok(())
}

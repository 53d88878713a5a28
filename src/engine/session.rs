//! A sequence of tokens and what the cache holds of it, as a file: a conversation goes on without computing its past
//! again.
//!
//! ```text
//! 0   magic "HADALKV\0"
//! 8   version, u32 little-endian
//! 12  length of the header, u32
//! 16  hash of the header, 16 bytes
//! 32  header: JSON, see [`Header`]
//! at multiples of 4096: tokens as u32, then for each layer its keys and its values, each as in memory, one head after
//! the other, with a hash of its own
//! ```
//! Hashes are XXH3 of 128 bits: they find damage, not malice.

use std::path::Path;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128 as Hash;

use super::Engine;
use super::placement::of_layer;
use crate::cache::LayerState;
use crate::error::{Error, Result};
use crate::file;
use crate::tensor::Bytes;

pub(super) mod fingerprint;

const MAGIC: &[u8; 8] = b"HADALKV\0";
const VERSION: u32 = 1;
/// Where the header begins.
const PREFIX: usize = 32;
/// The place of each section is a multiple of this: a page.
const ALIGNMENT: usize = 4096;

/// What the file says about itself.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// Of the weights and what else settles the arithmetic.
    model: String,
    tokenizer: String,
    /// How keys and values are stored, as `--kv` takes it.
    scheme: String,
    /// The caller's own text.
    note: String,
    tokens: Section,
    layers: Vec<Layer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Layer {
    first: usize,
    len: usize,
    keys: Section,
    values: Section,
}

/// A run of bytes, counted from the first multiple of [`ALIGNMENT`] behind the header.
#[derive(Debug, Serialize, Deserialize)]
struct Section {
    offset: usize,
    bytes: usize,
    hash: String,
}

impl Engine {
    /// Writes what the cache holds, and `note`, to `path`: the file is complete or as it was before, whatever happens.
    ///
    /// # Errors
    /// [`Error::Io`], and what a GPU says that holds the cache.
    pub fn save_session(&self, path: impl AsRef<Path>, note: &str) -> Result<()> {
        let path = path.as_ref();
        let mut body = Vec::new();
        let tokens: Vec<u8> = self.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let tokens = add(&mut body, &tokens);
        let layers = self.cache.layers().iter().enumerate().map(|(index, layer)| {
            let state = of_layer(self.gpu.as_ref(), &self.cpu, index).stored(layer)?;
            let (keys, values) = (add(&mut body, &state.keys), add(&mut body, &state.values));
            Ok(Layer { first: state.first, len: state.len, keys, values })
        });
        let header = Header {
            layers: layers.collect::<Result<_>>()?,
            model: self.fingerprint.clone(),
            tokenizer: fingerprint::tokenizer(&self.tokenizer),
            scheme: self.cache.kind().to_string(),
            note: note.into(),
            tokens,
        };
        let header = serde_json::to_vec(&header).map_err(|error| wrong(path, error.to_string()))?;
        let len = u32::try_from(header.len()).map_err(|_| wrong(path, "the note is too long".into()))?;
        let mut bytes = Vec::with_capacity(PREFIX + header.len() + ALIGNMENT + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&Hash::oneshot(&header).to_le_bytes());
        bytes.extend_from_slice(&header);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes.append(&mut body);
        file::output::write(path, &bytes)
    }

    /// Replaces what the cache holds by what [`Engine::save_session`] wrote, and gives the note back. After an error the
    /// cache is empty or as before.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::File`] for a file that is damaged, of another model, tokenizer or kind of cache, or longer
    /// than the context.
    pub fn load_session(&mut self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        let file = file::map_file(path)?;
        let (header, body) = open(path, &file)?;
        self.check_session(path, &header)?;
        let tokens = section(path, body, &header.tokens, "the tokens")?;
        let (tokens, rest) = tokens.as_chunks::<4>();
        let tokens: Vec<u32> = tokens.iter().map(|token| u32::from_le_bytes(*token)).collect();
        let outside = tokens.iter().any(|&token| token as usize >= self.info.vocab);
        if !rest.is_empty() || outside || header.layers.iter().any(|layer| layer.len != tokens.len()) {
            return Err(wrong(path, "its tokens and layers do not belong together".into()));
        }
        self.reset();
        for (index, layer) in header.layers.iter().enumerate() {
            let part = |section_: &Section, what: &str| {
                section(path, body, section_, &format!("{what} of layer {index}"))
            };
            let restored = part(&layer.keys, "the keys").and_then(|keys| {
                let values = part(&layer.values, "the values")?;
                let state = LayerState { first: layer.first, len: layer.len, keys, values };
                of_layer(self.gpu.as_ref(), &self.cpu, index).store(self.cache.layer(index), &state)
            });
            if let Err(error) = restored {
                self.reset();
                return Err(match error {
                    Error::Numeric(message) => wrong(path, format!("layer {index}: {message}")),
                    other => other,
                });
            }
        }
        self.tokens = tokens;
        Ok(header.note)
    }

    /// Whether the file is of this model and cache.
    fn check_session(&self, path: &Path, header: &Header) -> Result<()> {
        let context = self.cache.context();
        let tokens = header.tokens.bytes / 4;
        if header.model != self.fingerprint {
            Err(wrong(path, "a session of another model".into()))
        } else if header.tokenizer != fingerprint::tokenizer(&self.tokenizer) {
            Err(wrong(path, "a session of another tokenizer".into()))
        } else if header.scheme != self.cache.kind().to_string() {
            let message =
                format!("its keys and values are {}, not {}: give --kv", header.scheme, self.cache.kind());
            Err(wrong(path, message))
        } else if header.layers.len() != self.cache.layers().len() {
            Err(wrong(
                path,
                format!("{} layers, the model has {}", header.layers.len(), self.cache.layers().len()),
            ))
        } else if tokens > context {
            Err(wrong(path, format!("{tokens} tokens, the context is {context}: raise --ctx-size")))
        } else {
            Ok(())
        }
    }
}

/// Appends `bytes` to `body` at the next page.
fn add(body: &mut Vec<u8>, bytes: &[u8]) -> Section {
    body.resize(body.len().next_multiple_of(ALIGNMENT), 0);
    let offset = body.len();
    body.extend_from_slice(bytes);
    Section { offset, bytes: body.len() - offset, hash: hex(&body[offset..]) }
}

fn hex(bytes: &[u8]) -> String {
    format!("{:032x}", Hash::oneshot(bytes))
}

/// The header and what follows it.
fn open<'a>(path: &Path, file: &'a Bytes) -> Result<(Header, &'a [u8])> {
    let damaged = |what: &str| wrong(path, format!("damaged: {what}"));
    let (prefix, rest) = file.split_at_checked(PREFIX).ok_or_else(|| wrong(path, "not a session".into()))?;
    let word = |at: usize| u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]);
    if prefix[..8] != *MAGIC {
        return Err(wrong(path, "not a session".into()));
    }
    if word(8) != VERSION {
        return Err(wrong(path, format!("version {}, this program reads {VERSION}", word(8))));
    }
    let header = rest.get(..word(12) as usize).ok_or_else(|| damaged("it ends inside of its header"))?;
    if prefix[16..] != Hash::oneshot(header).to_le_bytes() {
        return Err(damaged("the header's hash is another"));
    }
    let body = (PREFIX + header.len()).next_multiple_of(ALIGNMENT);
    let header = serde_json::from_slice(header).map_err(|error| damaged(&error.to_string()))?;
    Ok((header, file.get(body..).unwrap_or_default()))
}

/// The bytes of a section, whose hash is right.
fn section<'a>(path: &Path, body: &'a [u8], section: &Section, what: &str) -> Result<&'a [u8]> {
    let end = section.offset.checked_add(section.bytes);
    let bytes = end.and_then(|end| body.get(section.offset..end));
    let bytes = bytes.ok_or_else(|| wrong(path, format!("damaged: it ends before {what}")))?;
    if hex(bytes) != section.hash {
        return Err(wrong(path, format!("damaged: the hash of {what} is another")));
    }
    Ok(bytes)
}

fn wrong(path: &Path, message: String) -> Error {
    Error::File { path: path.into(), message }
}

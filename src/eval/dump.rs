//! Teacher dumps: a reference's predictions on a text, stored once and compared with often.
//!
//! A folder of `manifest.json`, `tokens.bin` (i32, sequences × length) and `seq-I.bin`: length - 1 records, of which the
//! r-th is the prediction after position r: K tokens (i32) by descending logit, their logits (f16), ln Σ exp over the
//! whole vocabulary (f32). Little endian, 6 K + 4 bytes.

use std::path::{Path, PathBuf};

use half::f16;
use serde::{Deserialize, Serialize};

use super::kl::Top;
use super::log_sum_exp;
use crate::backend::Hidden;
use crate::error::{Error, Result};
use crate::file::output;

const VERSION: u32 = 1;
const MANIFEST: &str = "manifest.json";
const TOKENS: &str = "tokens.bin";

/// What a dump is of. Names as in its file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Manifest {
    /// 1.
    pub format_version: u32,
    /// The reference.
    pub model: String,
    /// Of the text, or empty.
    #[serde(default)]
    pub corpus_sha256: String,
    /// Tokens of a sequence.
    pub ctx_len: usize,
    /// Sequences.
    pub n_seqs: usize,
    /// Logits of a record.
    pub top_k: usize,
    /// Records of a sequence.
    pub positions_per_seq: usize,
    /// When it was made, or empty.
    #[serde(default)]
    pub created: String,
    /// Free text.
    #[serde(default)]
    pub notes: String,
}

/// A dump that can be read.
#[derive(Debug)]
pub struct Dump {
    folder: PathBuf,
    /// What it is of.
    pub manifest: Manifest,
    tokens: Vec<u32>,
}

impl Dump {
    /// Whether `path` is the folder of a dump.
    pub fn is_at(path: &Path) -> bool {
        path.join(MANIFEST).is_file()
    }

    /// Opens a dump.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::File`] for a manifest that makes no sense or tokens that don't fit it.
    pub fn open(folder: &Path) -> Result<Dump> {
        let path = folder.join(MANIFEST);
        let text = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
        let wrong = |message: String| Error::File { path: path.clone(), message };
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if manifest.format_version != VERSION {
            return Err(wrong(format!(
                "version {} is unknown, {VERSION} can be read",
                manifest.format_version
            )));
        }
        let Manifest { ctx_len, top_k, positions_per_seq, .. } = manifest;
        if ctx_len < 2 || top_k == 0 || positions_per_seq + 1 != ctx_len {
            return Err(wrong(format!("{positions_per_seq} records of {top_k} for {ctx_len} tokens")));
        }
        let path = folder.join(TOKENS);
        let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
        let expected = manifest.n_seqs.checked_mul(ctx_len).and_then(|count| count.checked_mul(4));
        if expected != Some(bytes.len()) {
            let message =
                format!("{} bytes, {} sequences of {ctx_len} expected", bytes.len(), manifest.n_seqs);
            return Err(Error::File { path, message });
        }
        let tokens = bytes.as_chunks().0.iter().map(|&token| u32::from_le_bytes(token)).collect();
        Ok(Dump { folder: folder.into(), manifest, tokens })
    }

    /// The tokens of each sequence.
    pub fn sequences(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.tokens.chunks_exact(self.manifest.ctx_len)
    }

    /// The records of sequence `index`.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::File`] if the file is of another size.
    pub fn records(&self, index: usize) -> Result<Vec<Top>> {
        let path = self.folder.join(format!("seq-{index}.bin"));
        let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
        let Manifest { top_k, positions_per_seq: positions, .. } = self.manifest;
        let record_bytes = top_k.checked_mul(6).and_then(|bytes| bytes.checked_add(4));
        let expected = record_bytes.and_then(|record| record.checked_mul(positions));
        match record_bytes {
            Some(record) if expected == Some(bytes.len()) => {
                Ok(bytes.chunks_exact(record).map(|record| Top::read(record, top_k)).collect())
            }
            _ => {
                let message = format!("{} bytes are not {positions} records of {top_k} logits", bytes.len());
                Err(Error::File { path, message })
            }
        }
    }
}

/// A dump that is being made.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    manifest: Manifest,
    tokens: Vec<u8>,
}

impl Recorder {
    /// Begins a dump of sequences of `ctx_len` tokens with `top_k` logits a position.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder can't be made.
    pub fn create(folder: &Path, model: &str, ctx_len: usize, top_k: usize) -> Result<Recorder> {
        std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        let manifest = Manifest {
            format_version: VERSION,
            model: model.into(),
            ctx_len,
            top_k,
            positions_per_seq: ctx_len - 1,
            ..Manifest::default()
        };
        Ok(Recorder { folder: folder.into(), manifest, tokens: Vec::new() })
    }

    /// Adds a sequence and the logits after each of its tokens but the last.
    ///
    /// # Errors
    /// Those of [`output::write`].
    ///
    /// # Panics
    /// If the sequence is of another length.
    pub fn add(&mut self, sequence: &[u32], logits: &Hidden) -> Result<()> {
        assert_eq!(
            (sequence.len(), logits.rows() + 1),
            (self.manifest.ctx_len, sequence.len()),
            "one row a position"
        );
        let mut bytes = Vec::new();
        for row in logits.values().chunks_exact(logits.columns()) {
            Top::of(row, self.manifest.top_k).write(&mut bytes);
        }
        output::write(&self.folder.join(format!("seq-{}.bin", self.manifest.n_seqs)), &bytes)?;
        self.tokens.extend(sequence.iter().flat_map(|token| token.to_le_bytes()));
        self.manifest.n_seqs += 1;
        Ok(())
    }

    /// Writes tokens and manifest: without them the folder is no dump.
    ///
    /// # Errors
    /// Those of [`output::write`].
    pub fn finish(self) -> Result<()> {
        output::write(&self.folder.join(TOKENS), &self.tokens)?;
        let manifest =
            serde_json::to_vec_pretty(&self.manifest).expect("texts and numbers, of which JSON has all");
        output::write(&self.folder.join(MANIFEST), &manifest)
    }
}

impl Top {
    /// The `count` largest of `logits`, rounded to f16; of a vocabulary of fewer the last is repeated as nothing.
    pub fn of(logits: &[f32], count: usize) -> Top {
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let descending =
            |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        let kept = count.min(order.len());
        if kept < order.len() {
            order.select_nth_unstable_by(kept, descending);
            order.truncate(kept);
        }
        order.sort_unstable_by(descending);
        let mut top = Top {
            logits: order.iter().map(|&token| f16::from_f32(logits[token as usize]).to_f32()).collect(),
            tokens: order,
            log_sum_exp: log_sum_exp(logits) as f32,
        };
        top.tokens.resize(count, 0);
        top.logits.resize(count, f32::NEG_INFINITY);
        top
    }

    /// Reads a record of `count` logits, which `bytes` are.
    fn read(bytes: &[u8], count: usize) -> Top {
        let (tokens, rest) = bytes.split_at(4 * count);
        let (logits, sum) = rest.split_at(2 * count);
        Top {
            tokens: tokens.as_chunks().0.iter().map(|&token| u32::from_le_bytes(token)).collect(),
            logits: logits.as_chunks().0.iter().map(|&logit| f16::from_le_bytes(logit).to_f32()).collect(),
            log_sum_exp: f32::from_le_bytes(*sum.first_chunk().expect("four bytes follow")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.tokens.iter().flat_map(|token| token.to_le_bytes()));
        out.extend(self.logits.iter().flat_map(|&logit| f16::from_f32(logit).to_le_bytes()));
        out.extend(self.log_sum_exp.to_le_bytes());
    }
}

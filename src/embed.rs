//! Texts as vectors: encoders, whose tokens all see each other, and how their rows become one. [`ENCODERS`] is the table.
//!
//! A folder of sentence-transformers says in `modules.json` what follows the encoder: pooling, dense layers, a norm.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::backend::cpu::{Activations, Cpu};
use crate::backend::{Backend, Hidden, Linear, Source};
use crate::error::{Error, Result};
use crate::file::Weights;
use crate::tensor::Tensor;
use crate::tokenizer::{Special, Tokenizer};

mod attention;
mod bert;
mod gemma;

/// Every encoder that we run.
pub static ENCODERS: &[&Row] = &[&bert::ROW, &gemma::ROW];

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// `general.architecture` in GGUF.
    pub name: &'static str,
    /// Models that people know it by.
    pub models: &'static str,
    /// Whether texts are cut by WordPiece, which only the `tokenizers` library does.
    word_piece: bool,
    load: fn(&Weights) -> Result<Box<dyn Encoder>>,
}

/// An encoder.
trait Encoder: std::fmt::Debug {
    /// The most tokens it takes.
    fn context(&self) -> usize;

    /// tokens × hidden. Ids are below the vocabulary, and no more than the context.
    fn forward(&self, ids: &[u32], ops: &dyn Backend) -> Result<Hidden>;

    /// Rows and columns of the embedding table.
    fn table(&self) -> (usize, usize);
}

/// How rows become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all.
    Mean,
    /// The first, that of `[CLS]`.
    Cls,
    /// The last.
    Last,
    /// The largest of each column.
    Max,
}

/// Text to ids.
#[derive(Debug)]
enum Cut {
    Own(Box<Tokenizer>),
    /// Special tokens around a text included.
    WordPiece(Box<tokenizers::Tokenizer>),
}

/// A dense layer behind the pooling.
#[derive(Debug)]
struct Dense {
    layer: Linear,
    tanh: bool,
}

/// A model that makes vectors of texts.
#[derive(Debug)]
pub struct Embedder {
    encoder: Box<dyn Encoder>,
    cut: Cut,
    dense: Vec<Dense>,
    /// What the folder asks for.
    pooling: Pooling,
    most: usize,
    ops: Cpu,
}

impl Embedder {
    /// Opens a folder of safetensors with `threads` threads, by default one a core.
    ///
    /// # Errors
    /// Those of [`Weights::open`]; [`Error::Unsupported`] for a model that is no encoder of ours, or a module behind it that is
    /// not known; a missing or ill-shaped key or tensor by name.
    pub fn open(path: impl AsRef<Path>, threads: Option<usize>) -> Result<Embedder> {
        let weights = Weights::open(path)?;
        let name = weights.metadata.str("general.architecture")?.unwrap_or_default();
        let row = ENCODERS.iter().find(|row| row.name == name).ok_or_else(|| {
            let known: Vec<_> = ENCODERS.iter().map(|row| row.models).collect();
            Error::unsupported("embedding model", name, &format!("these are: {}", known.join(", ")))
        })?;
        let encoder = (row.load)(&weights)?;
        let cut = if row.word_piece {
            word_piece(&weights)?
        } else {
            Cut::Own(Box::new(Tokenizer::from_weights(&weights)?))
        };
        let mut embedder = Embedder {
            most: encoder.context(),
            encoder,
            cut,
            dense: Vec::new(),
            pooling: Pooling::Mean,
            ops: Cpu::new(threads, None, Activations::default())?,
        };
        embedder.modules(&weights.path)?;
        Ok(embedder)
    }

    /// Reads what follows the encoder.
    fn modules(&mut self, folder: &Path) -> Result<()> {
        if let Some(most) = object(&folder.join("sentence_bert_config.json"))?
            .and_then(|json| json["max_seq_length"].as_u64())
        {
            self.most = self.most.min(usize::try_from(most).unwrap_or(usize::MAX)).max(2);
        }
        let modules = object(&folder.join("modules.json"))?.unwrap_or_default();
        for module in modules.as_array().into_iter().flatten() {
            let text = |name: &str| module[name].as_str().unwrap_or_default();
            let path = inside(folder, text("path"))?;
            match text("type").rsplit('.').next().unwrap_or_default() {
                "Transformer" | "Normalize" => {}
                "Pooling" => self.pooling = pooling(&path)?,
                "Dense" => {
                    let before =
                        self.dense.last().map_or(self.encoder.table().1, |last| last.layer.weight.rows());
                    self.dense.push(dense(&path, before)?);
                }
                other => {
                    return Err(Error::unsupported(
                        "module in modules.json",
                        other,
                        "Pooling, Dense and Normalize are",
                    ));
                }
            }
        }
        Ok(())
    }

    /// What the folder asks for.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// The most tokens of a text that count.
    pub fn most_tokens(&self) -> usize {
        self.most
    }

    /// Tokens of `text` with those around it, the text cut so that they are at most [`Embedder::most_tokens`].
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if it can't be cut, or its tokens are not the model's.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = match &self.cut {
            Cut::Own(tokenizer) => tokenizer.encode_prompt(text, Special::Text)?,
            Cut::WordPiece(tokenizer) => {
                let encoding =
                    tokenizer.encode(text, true).map_err(|error| Error::Tokenizer(error.to_string()))?;
                encoding.get_ids().to_vec()
            }
        };
        if ids.len() > self.most {
            tracing::warn!("a text of {} tokens is cut to {}", ids.len(), self.most);
            // The last token ends every text.
            ids.drain(self.most - 1..ids.len() - 1);
        }
        let (vocab, _) = self.encoder.table();
        match ids.iter().find(|&&id| id as usize >= vocab) {
            Some(id) => Err(Error::Tokenizer(format!("token {id} is outside the {vocab} of the model"))),
            None if ids.is_empty() => Err(Error::Tokenizer("a text without tokens has no vector".into())),
            None => Ok(ids),
        }
    }

    /// The vector of `text`, of length 1 if it is to be `normalized`.
    ///
    /// # Errors
    /// As [`Embedder::tokens`].
    pub fn embed(&self, text: &str, pooling: Pooling, normalized: bool) -> Result<Vec<f32>> {
        let rows = self.encoder.forward(&self.tokens(text)?, &self.ops)?;
        let mut vector = pooled(&rows, pooling);
        for Dense { layer, tanh } in &self.dense {
            let columns = vector.len();
            let made = layer.forward(Source::Plain(&Hidden::new(vector, columns)), &self.ops)?;
            vector = made.values().to_vec();
            if *tanh {
                vector.iter_mut().for_each(|value| *value = crate::math::tanh(*value));
            }
        }
        if normalized {
            let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt().max(1e-12);
            vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
        }
        Ok(vector)
    }
}

fn pooled(rows: &Hidden, pooling: Pooling) -> Vec<f32> {
    let count = rows.rows();
    let column = |column: usize| (0..count).map(move |row| rows.row(row)[column]);
    match pooling {
        Pooling::Cls => rows.row(0).to_vec(),
        Pooling::Last => rows.row(count - 1).to_vec(),
        Pooling::Mean => (0..rows.columns())
            .map(|c| (column(c).map(f64::from).sum::<f64>() / count as f64) as f32)
            .collect(),
        Pooling::Max => (0..rows.columns()).map(|c| column(c).fold(f32::NEG_INFINITY, f32::max)).collect(),
    }
}

/// The library's own tokenizer, whose limits of length are not ours.
fn word_piece(weights: &Weights) -> Result<Cut> {
    let json = weights
        .tokenizer_json
        .as_deref()
        .ok_or_else(|| Error::File { path: weights.path.clone(), message: "has no tokenizer.json".into() })?;
    let wrong = |error: tokenizers::Error| Error::Tokenizer(format!("tokenizer.json: {error}"));
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(wrong)?;
    tokenizer.with_truncation(None).map_err(wrong)?;
    tokenizer.with_padding(None);
    Ok(Cut::WordPiece(Box::new(tokenizer)))
}

/// A module's folder, which is inside the model's.
fn inside(folder: &Path, path: &str) -> Result<PathBuf> {
    let normal = |part| matches!(part, std::path::Component::Normal(_));
    if Path::new(path).components().all(normal) {
        return Ok(folder.join(path));
    }
    let message = format!("names {path:?}, which is not in this folder");
    Err(Error::File { path: folder.join("modules.json"), message })
}

/// A JSON file, `None` if there is none.
fn object(path: &Path) -> Result<Option<Json>> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| Error::File { path: path.into(), message: format!("is no JSON: {error}") }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

fn pooling(folder: &Path) -> Result<Pooling> {
    let config = object(&folder.join("config.json"))?.unwrap_or_default();
    let modes = [
        ("pooling_mode_mean_tokens", Pooling::Mean),
        ("pooling_mode_cls_token", Pooling::Cls),
        ("pooling_mode_lasttoken", Pooling::Last),
        ("pooling_mode_max_tokens", Pooling::Max),
    ];
    let asked = config
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, on)| name.starts_with("pooling_mode_") && on.as_bool() == Some(true));
    let asked: Vec<_> = asked.map(|(name, _)| name.as_str()).collect();
    match asked[..] {
        [name] if modes.iter().any(|(mode, _)| *mode == name) => {
            Ok(modes.iter().find(|(mode, _)| *mode == name).map_or(Pooling::Mean, |(_, pooling)| *pooling))
        }
        _ => Err(Error::unsupported(
            "pooling",
            asked.join(" and "),
            "mean, cls, last and max are, one of them",
        )),
    }
}

/// A layer that takes `inputs` numbers.
fn dense(folder: &Path, inputs: usize) -> Result<Dense> {
    let config = object(&folder.join("config.json"))?.unwrap_or_default();
    let activation = config["activation_function"].as_str().unwrap_or("torch.nn.modules.linear.Identity");
    let tanh = match activation.rsplit('.').next().unwrap_or_default() {
        "Identity" => false,
        "Tanh" => true,
        other => {
            return Err(Error::unsupported("activation of a dense layer", other, "Identity and Tanh are"));
        }
    };
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
    let weights = Weights::from_safetensors(path, bytes)?;
    let outputs = weights.tensor("linear.weight")?.rows();
    let weight = shaped(&weights, "linear.weight", &[outputs, inputs])?;
    let bias = match weights.tensors.contains_key("linear.bias") {
        true => Some(shaped(&weights, "linear.bias", &[outputs])?.to_f32()?.into()),
        false => None,
    };
    Ok(Dense { layer: Linear { weight, bias }, tanh })
}

/// The tensor `name`, which must have this shape.
fn shaped(weights: &Weights, name: &str, shape: &[usize]) -> Result<Tensor> {
    let tensor = weights.tensor(name)?;
    if tensor.shape() != shape {
        return Err(Error::tensor(name, format!("expected shape {shape:?}, found {:?}", tensor.shape())));
    }
    Ok(tensor)
}

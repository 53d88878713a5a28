//! Rotation folded into the weights: the residual stream is turned by a random orthogonal matrix R1 that the matrices around it
//! take in and out again, so that the logits stay and outliers are spread over all columns (QuaRot, SpinQuant). Values
//! and the attention's output are turned head by head, by R2. Norms have to have no weights of their own: these are
//! multiplied into what reads the norm's output.
//!
//! R1 = diag(s) H^T / sqrt(n), s random signs, H of [`hadamard::transform_order`]. What reads the stream becomes W R1, what
//! writes to it R1^T W. [`Rotation::new`] decides by names what becomes of each tensor, [`Rotation::fold`] does it to one.

use indexmap::IndexMap;

use crate::backend::cpu::pool::Pool;
use crate::error::{Error, Result};
use crate::file::{Entry, Value, Weights};
use crate::math::hadamard;
use crate::math::splitmix::SplitMix32;
use crate::model::Config;
use crate::simd::Isa;

/// Keys of the file that say what was done: the seed, what was folded, and what published methods do beyond it.
pub const SEED_KEY: &str = "hadal.rotation.seed";
const STEPS_KEY: &str = "hadal.rotation.steps";
const OMITTED_KEY: &str = "hadal.rotation.omitted";

/// What an architecture allows.
struct Family {
    architecture: &'static str,
    /// Whether the stream can be turned. A norm with weights behind a matrix that writes to it forbids that: its
    /// weights belong to single columns.
    stream: bool,
    omitted: &'static str,
}

static FAMILIES: &[Family] = &[
    Family { architecture: "llama", stream: true, omitted: PLAIN },
    Family { architecture: "qwen2", stream: true, omitted: PLAIN },
    Family { architecture: "qwen3", stream: true, omitted: PLAIN },
    Family {
        architecture: "gemma3",
        stream: false,
        omitted: "R1 (post-attention and post-feed-forward norms have weights), R3, R4",
    },
];

const PLAIN: &str = "mean-centering of the embedding, R3, R4";

/// What becomes of a matrix; a bias is a row, whose columns are the matrix's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    /// The norm whose weights its columns are multiplied by.
    pub norm: Option<&'static str>,
    /// Columns are multiplied by R1.
    pub reads: bool,
    /// Rows are multiplied by R1 transposed.
    pub writes: bool,
    /// Columns are multiplied by R2, head by head.
    pub reads_heads: bool,
    /// Rows are multiplied by R2 transposed, head by head.
    pub writes_heads: bool,
    /// All become 1.
    pub ones: bool,
}

const NOTHING: Fold =
    Fold { norm: None, reads: false, writes: false, reads_heads: false, writes_heads: false, ones: false };
const READS: Fold = Fold { reads: true, ..NOTHING };
const fn reads(norm: &'static str) -> Fold {
    Fold { norm: Some(norm), ..READS }
}
const ONES: Fold = Fold { ones: true, ..NOTHING };

/// By GGUF's name of the tensor, or what stands behind `blk.N.`.
static FOLDS: &[(&str, Fold)] = &[
    ("token_embd.weight", READS),
    ("output.weight", reads("output_norm.weight")),
    ("output_norm.weight", ONES),
    ("attn_norm.weight", ONES),
    ("ffn_norm.weight", ONES),
    ("attn_q.weight", reads("attn_norm.weight")),
    ("attn_k.weight", reads("attn_norm.weight")),
    ("attn_v.weight", Fold { writes_heads: true, ..reads("attn_norm.weight") }),
    ("attn_v.bias", Fold { reads_heads: true, ..NOTHING }),
    ("attn_output.weight", Fold { reads_heads: true, writes: true, ..NOTHING }),
    ("attn_output.bias", READS),
    ("ffn_gate.weight", reads("ffn_norm.weight")),
    ("ffn_up.weight", reads("ffn_norm.weight")),
    ("ffn_down.weight", Fold { writes: true, ..NOTHING }),
    ("ffn_down.bias", READS),
    // Rows of queries, keys, gates and what is up are not turned.
    ("attn_q.bias", NOTHING),
    ("attn_k.bias", NOTHING),
    ("attn_q_norm.weight", NOTHING),
    ("attn_k_norm.weight", NOTHING),
    ("ffn_gate.bias", NOTHING),
    ("ffn_up.bias", NOTHING),
    ("rope_freqs.weight", NOTHING),
];

/// What becomes of all tensors of a file.
#[derive(Clone, Debug)]
pub struct Rotation {
    seed: u32,
    head_dim: usize,
    folds: IndexMap<String, Fold>,
}

impl Rotation {
    /// Plans the rotation of `weights`, whose output matrix becomes a tensor of its own and whose metadata say what will have
    /// been done.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an architecture that we have no plan for, or sizes without a Hadamard matrix;
    /// [`Error::Tensor`] for a tensor that is quantized already or that the plan does not know; [`Error::Key`] for a
    /// file that is rotated.
    pub fn new(weights: &mut Weights, seed: u32) -> Result<Rotation> {
        if weights.metadata.get(SEED_KEY).is_some() {
            return Err(Error::key(SEED_KEY, "the file is rotated already"));
        }
        let config = Config::read(weights)?;
        let hint = "llama, qwen2, qwen3 and gemma3 can be rotated";
        let family = FAMILIES.iter().find(|family| family.architecture == config.architecture);
        let family =
            family.ok_or_else(|| Error::unsupported("rotation of", config.architecture.as_str(), hint))?;
        check_sizes(&config, family)?;
        if family.stream {
            untie(weights)?;
        }
        let mut folds = IndexMap::new();
        for (name, entry) in &weights.tensors {
            let fold = family.fold(name, entry)?;
            folds.insert(name.clone(), fold);
        }
        let steps = if family.stream { "norms, R1, R2, float" } else { "R2, float" };
        let metadata = &mut weights.metadata;
        metadata.set(SEED_KEY, Value::U32(seed));
        metadata.set(STEPS_KEY, Value::String(steps.into()));
        metadata.set(OMITTED_KEY, Value::String(family.omitted.into()));
        Ok(Rotation { seed, head_dim: config.head_dim, folds })
    }

    /// What becomes of the tensor `name`, if anything does.
    pub fn fold(&self, name: &str) -> Option<Fold> {
        self.folds.get(name).copied().filter(|fold| *fold != NOTHING)
    }

    /// Turns the tensor `name` in place: `values` are rows of `columns`; `norm` are the weights of [`Fold::norm`].
    pub(super) fn apply(
        &self,
        pool: &Pool,
        name: &str,
        columns: usize,
        norm: Option<&[f32]>,
        values: &mut Vec<f32>,
    ) {
        let Some(fold) = self.fold(name) else { return };
        if fold.ones {
            values.fill(1.0);
            return;
        }
        let stream = |n: usize| signs(self.seed, n, 0);
        let heads = || signs(self.seed, self.head_dim, layer(name).map_or(0, |layer| layer + 1));
        if fold.reads_heads {
            turn_rows(pool, values, self.head_dim, &heads(), None);
        }
        if fold.reads {
            turn_rows(pool, values, columns, &stream(columns), norm);
        }
        if fold.writes || fold.writes_heads {
            let rows = values.len() / columns.max(1);
            let mut turned = transposed(values, columns);
            if fold.writes {
                turn_rows(pool, &mut turned, rows, &stream(rows), None);
            } else {
                turn_rows(pool, &mut turned, self.head_dim, &heads(), None);
            }
            *values = transposed(&turned, rows);
        }
    }
}

impl Family {
    fn fold(&self, name: &str, entry: &Entry) -> Result<Fold> {
        if entry.shape.len() > 1 && entry.format.is_none_or(|format| format.block_len > 1) {
            let message = format!(
                "is {} already: rotate a file of f32, f16 or bf16 (`hadal quantize --type f32` makes one of what is left)",
                entry.type_name
            );
            return Err(Error::tensor(name, message));
        }
        let own =
            name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, own)| own);
        let known = FOLDS.iter().find(|(tensor, _)| *tensor == own).map(|(_, fold)| *fold);
        if self.stream {
            return known.ok_or_else(|| Error::tensor(name, "has no place in the rotation of a model"));
        }
        let heads =
            |fold: Fold| Fold { reads_heads: fold.reads_heads, writes_heads: fold.writes_heads, ..NOTHING };
        Ok(known.map_or(NOTHING, heads))
    }
}

fn check_sizes(config: &Config, family: &Family) -> Result<()> {
    if family.stream && !hadamard::has_order(config.hidden) {
        let what = format!("rows of {}", config.hidden);
        let hint = "they have to be 1, 12, 20 or 28 times a power of two";
        return Err(Error::unsupported("rotation of", what, hint));
    }
    if !config.head_dim.is_power_of_two() {
        let what = format!("heads of {}", config.head_dim);
        return Err(Error::unsupported("rotation of", what, "they have to be a power of two"));
    }
    Ok(())
}

/// The embedding is read without a norm, the output matrix behind one: they are no longer the same.
fn untie(weights: &mut Weights) -> Result<()> {
    if weights.tensors.contains_key("output.weight") {
        return Ok(());
    }
    let table = weights.tensors.get("token_embd.weight");
    let table = table.ok_or_else(|| Error::tensor("token_embd.weight", "is not in the file"))?.clone();
    weights.tensors.insert("output.weight".into(), table);
    Ok(())
}

/// The number in `blk.N.`.
fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// `n` random signs: those of R1 are on lane 0, of layer i's R2 on lane i + 1.
pub fn signs(seed: u32, n: usize, lane: u32) -> Vec<f32> {
    let state = seed ^ lane.wrapping_add(1).wrapping_mul(0x9e37_79b9);
    SplitMix32::new(state).take(n).map(|z| if z & 1 == 0 { 1.0 } else { -1.0 }).collect()
}

/// Every run of `len` values is multiplied by `norm`, then by the rotation that has `signs`.
fn turn_rows(pool: &Pool, values: &mut [f32], len: usize, signs: &[f32], norm: Option<&[f32]>) {
    let isa = Isa::detect().unwrap_or(Isa::Scalar);
    let factors: Vec<f32> = match norm {
        Some(norm) => norm.iter().zip(signs).map(|(norm, sign)| norm * sign).collect(),
        None => signs.to_vec(),
    };
    let per_part = (64 * 1024usize).div_ceil(len.max(1));
    pool.chunks_mut(values, len, per_part, |_, row| {
        row.iter_mut().zip(&factors).for_each(|(value, factor)| *value *= factor);
        hadamard::transform_order(isa, row);
    });
}

/// Rows of `columns` values as columns.
fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns.max(1);
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}

//! Formats under a budget: every matrix begins with the smallest one, then the step that removes most error a bit is taken
//! for as long as it fits. Errors are those of some rows of each matrix, relative to what is in them and weighed by
//! importance where there is some; or what the model was measured to lose ([`Sensitivity`](super::Sensitivity)).

use super::plan::{conversion, is_matrix};
use super::{Imatrix, Recipe, Settings};
use crate::error::{Error, Result};
use crate::file::{Entry, Weights};
use crate::quant::{Format, q2_k, q3_k, q4_k, q5_k, q6_k, q8_0, trellis};

/// From small to large.
static LADDER: &[&Format] =
    &[&q2_k::FORMAT, &q3_k::FORMAT, &q4_k::FORMAT, &q5_k::FORMAT, &q6_k::FORMAT, &q8_0::FORMAT];

/// Where the recipe's format is a trellis code.
static TRELLIS_LADDER: &[&Format] = &[
    &trellis::k1::FORMAT,
    &trellis::k2::FORMAT,
    &trellis::k3::FORMAT,
    &trellis::k4::FORMAT,
    &q5_k::FORMAT,
    &q6_k::FORMAT,
    &q8_0::FORMAT,
];

/// Rows of a matrix that are tried.
const ROWS: usize = 32;

/// A step that a matrix may be on.
struct Step {
    format: &'static Format,
    bits: u64,
    error: f64,
}

/// Replaces the formats of all matrices that no flag of their own fixes.
pub(super) fn allocate(
    weights: &Weights,
    settings: &Settings,
    imatrix: Option<&Imatrix>,
    target: f64,
    formats: &mut [Option<&'static Format>],
) -> Result<()> {
    let ladder = ladder(settings.recipe);
    let mut ladders = Vec::new();
    let (mut bits, mut count) = (0u64, 0u64);
    for (index, (name, entry)) in weights.tensors.iter().enumerate() {
        count += elements(entry);
        if settings.fixes(name, weights) || !is_matrix(name, entry) {
            bits += 8 * conversion(name, entry, formats[index])?.bytes;
            continue;
        }
        let steps = match &settings.sensitivity {
            Some(known) => steps(ladder, name, entry, |format| known.expect(name, format))?,
            None => {
                let importance = imatrix.and_then(|imatrix| imatrix.columns(name));
                let (rows, columns) = sample(name, entry)?;
                let error = |format: &Format| error(&rows, columns, format, importance);
                steps(ladder, name, entry, |format| Ok(error(format)? * elements(entry) as f64))?
            }
        };
        bits += steps[0].bits;
        ladders.push((index, steps, 0));
    }
    let budget = (target * count as f64) as u64;
    if bits > budget {
        let least = bits as f64 / count.max(1) as f64;
        return Err(Error::option("--target-bpw", format!("{target}: {least:.3} is the least here")));
    }
    while let Some((ladder, gain)) = best(&ladders, budget - bits) {
        ladders[ladder].2 += 1;
        bits += gain;
    }
    for (index, steps, on) in ladders {
        formats[index] = Some(steps[on].format);
    }
    Ok(())
}

/// The formats that matrices may get if `recipe` is asked for.
pub fn ladder(recipe: Option<Recipe>) -> &'static [&'static Format] {
    let is_trellis = |recipe: Recipe| TRELLIS_LADDER[..4].iter().any(|code| code.name == recipe.base.name);
    if recipe.is_some_and(is_trellis) { TRELLIS_LADDER } else { LADDER }
}

impl Settings {
    /// Whether a flag says which format the tensor has.
    fn fixes(&self, name: &str, weights: &Weights) -> bool {
        let embedding = name == "token_embd.weight";
        let output = name == "output.weight" || (embedding && !weights.tensors.contains_key("output.weight"));
        (embedding && self.embedding.is_some())
            || (output && self.output.is_some())
            || self.tensors.iter().any(|(pattern, _)| pattern.is_in(name))
    }
}

fn elements(entry: &Entry) -> u64 {
    entry.shape.iter().fold(1, |product, &dim| product.saturating_mul(dim as u64))
}

/// The ladder whose next step removes most error a bit, of those that fit into `left` bits, and the step's bits.
fn best(ladders: &[(usize, Vec<Step>, usize)], left: u64) -> Option<(usize, u64)> {
    let step = |(ladder, (_, steps, on)): (usize, &(usize, Vec<Step>, usize))| {
        let (now, next) = (&steps[*on], steps.get(on + 1)?);
        let bits = next.bits - now.bits;
        (bits <= left).then(|| (ladder, bits, (now.error - next.error) / bits as f64))
    };
    let steps = ladders.iter().enumerate().filter_map(step);
    // Of equal ones the first: the result is the same on every machine.
    let best = steps.reduce(|best, step| if step.2 > best.2 { step } else { best });
    best.map(|(ladder, bits, _)| (ladder, bits))
}

/// What the matrix takes and, as `error` says, loses on every step, without steps that are no gain.
fn steps(
    ladder: &[&'static Format],
    name: &str,
    entry: &Entry,
    error: impl Fn(&Format) -> Result<f64>,
) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for &format in ladder {
        let made = conversion(name, entry, Some(format))?;
        // Where it is copied it has that format already.
        let format = made.to.or(entry.format).unwrap_or(format);
        let error = match error(format) {
            Err(error @ Error::Format { .. }) => return Err(Error::tensor(name, error.to_string())),
            error => error?,
        };
        let step = Step { format, bits: 8 * made.bytes, error };
        match steps.last_mut() {
            Some(last) if step.bits <= last.bits => {
                if step.error < last.error {
                    *last = step;
                }
            }
            Some(last) if step.error >= last.error => {}
            _ => steps.push(step),
        }
    }
    Ok(steps)
}

/// Rows from all over the matrix, as f32, and their columns.
fn sample(name: &str, entry: &Entry) -> Result<(Vec<f32>, usize)> {
    let format = entry.format.expect("a matrix has a format of ours");
    let columns = entry.shape.last().copied().unwrap_or(1).max(1);
    let count = elements(entry) as usize / columns;
    let row_bytes = format.bytes_for(columns)?;
    let mut values = vec![0.0; ROWS.min(count) * columns];
    for (index, values) in values.chunks_mut(columns).enumerate() {
        let row = index * count / ROWS.min(count);
        let bytes = &entry.data[row * row_bytes..(row + 1) * row_bytes];
        format.decode(bytes, values).map_err(|error| Error::tensor(name, error.to_string()))?;
    }
    Ok((values, columns))
}

/// The weighed error of `rows` as `format`, relative to their weighed squares.
fn error(rows: &[f32], columns: usize, format: &Format, importance: Option<&[f32]>) -> Result<f64> {
    let mut bytes = vec![0; format.bytes_for(rows.len())?];
    let mut decoded = vec![0.0; rows.len()];
    format.encode_for_file(rows, importance.map(|all| &all[..columns]), &mut bytes)?;
    format.decode(&bytes, &mut decoded)?;
    let (mut error, mut energy) = (0.0, 0.0);
    for (index, (&value, &decoded)) in rows.iter().zip(&decoded).enumerate() {
        let weight = importance.map_or(1.0, |importance| f64::from(importance[index % columns]));
        error += weight * f64::from(value - decoded) * f64::from(value - decoded);
        energy += weight * f64::from(value) * f64::from(value);
    }
    Ok(if energy > 0.0 { error / energy } else { 0.0 })
}

//! `hadal fit`: how long a context fits in memory, with each kind of cache.

use std::io::{Write, stdout};

use clap::Args;
use hadal::cache::{CacheType, LayerShape};
use serde::Serialize;

use super::hub::ModelName;
use super::table::{grouped, table};
use super::value;

/// Show what context fits in memory with each kind of cache
#[derive(Args, Debug)]
pub struct Fit {
    /// A GGUF file (any part of a split one), a Hugging Face folder, or OWNER/NAME:QUANT of what was pulled
    file: ModelName,

    /// Memory for weights and cache, like 8GiB or 500MiB
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = value::bytes)]
    memory: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One kind of cache.
#[derive(Debug, Serialize)]
pub struct Row {
    /// As `--kv` takes it.
    pub cache: String,
    /// Of one element, keys and values together, in layers without a window.
    pub bits: f64,
    /// Of one more token, in all layers.
    pub token_bytes: u64,
    /// Of 8192 tokens, or the trained context if that is less.
    bytes: u64,
    /// Tokens that fit beside the weights, at most what the model was trained for; `None` if not even the weights do.
    context: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Report {
    memory_bytes: u64,
    weight_bytes: u64,
    trained_context: usize,
    caches: Vec<Row>,
}

/// Prints the table.
pub fn fit(arguments: &Fit) -> anyhow::Result<()> {
    let weights = arguments.file.weights()?;
    let model = hadal::model::load(&weights)?;
    let (shapes, trained) = (model.cache_shape(), model.config().context);
    let weight_bytes = weights.tensors.values().map(|entry| entry.data.len() as u64).sum();
    let room = arguments.memory.checked_sub(weight_bytes);
    let report = Report {
        memory_bytes: arguments.memory,
        weight_bytes,
        trained_context: trained,
        caches: rows(&shapes, trained, room),
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        page(&report, arguments.memory)
    };
    Ok(stdout().write_all(text.as_bytes())?)
}

/// One row a kind that the model's heads can be stored as; `room` is what the weights leave.
pub fn rows(shapes: &[LayerShape], trained: usize, room: Option<u64>) -> Vec<Row> {
    let row = |kind: CacheType| {
        let bytes = |context: usize| -> hadal::Result<u64> {
            shapes.iter().map(|shape| shape.bytes(kind, context)).sum()
        };
        let full: Vec<_> = shapes.iter().filter(|shape| shape.window.is_none()).collect();
        let elements: usize = full.iter().map(|shape| 2 * shape.heads * shape.dim).sum();
        let token_bytes = full.iter().map(|shape| shape.token_bytes(kind)).sum::<hadal::Result<usize>>();
        let token_bytes = token_bytes.ok()? as u64;
        Some(Row {
            cache: kind.to_string(),
            bits: token_bytes as f64 * 8.0 / elements.max(1) as f64,
            token_bytes,
            bytes: bytes(trained.min(8192)).ok()?,
            context: room.map(|room| longest(trained, |context| bytes(context).is_ok_and(|b| b <= room))),
        })
    };
    CacheType::all().filter_map(row).collect()
}

/// The largest context up to `most` that fits; fewer tokens always fit if more do.
fn longest(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut fitting, mut beyond) = (0, most + 1);
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            beyond = middle;
        }
    }
    fitting
}

fn page(report: &Report, memory: u64) -> String {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let short = report.trained_context.min(8192);
    let mut rows = vec![vec![
        "cache".into(),
        "bits".into(),
        "bytes/token".into(),
        format!("{} tokens", grouped(short as u64)),
        "context that fits".into(),
    ]];
    rows.extend(report.caches.iter().map(|row| {
        let context = match row.context {
            None => "the weights do not".into(),
            Some(context) if context == report.trained_context => {
                format!("{} (all)", grouped(context as u64))
            }
            Some(context) => grouped(context as u64),
        };
        vec![row.cache.clone(), format!("{:.2}", row.bits), grouped(row.token_bytes), mib(row.bytes), context]
    }));
    format!(
        "{} of memory, weights {}, trained for {} tokens\n\n{}",
        mib(memory),
        mib(report.weight_bytes),
        grouped(report.trained_context as u64),
        table(&rows, &[1, 2, 3, 4])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_fit_exactly() {
        let shape = |window| LayerShape { heads: 2, dim: 128, window };
        let shapes = [shape(None), shape(Some(64))];
        // 2 · 200 bytes a token, and the window's 1088 rows of 2 · 512 bytes.
        let room = 400 * 5000 + 1024 * 1088;
        let found = |room| {
            let rows = rows(&shapes, 131_072, room);
            let row = rows.iter().find(|row| row.cache == "turbo:k8v3").unwrap();
            (row.token_bytes, row.bits, row.context)
        };
        assert_eq!(found(Some(room)), (400, 6.25, Some(5000)));
        assert_eq!(found(Some(room - 1)).2, Some(4999));
        assert_eq!(found(Some(u64::MAX)).2, Some(131_072));
        assert_eq!(found(Some(0)).2, Some(0));
        assert_eq!(found(None).2, None);
        // Heads of 80 are stored in few ways.
        let odd = rows(&[LayerShape { heads: 1, dim: 80, window: None }], 10, None);
        assert_eq!(odd.iter().map(|row| row.cache.as_str()).collect::<Vec<_>>(), ["f32", "f16", "bf16"]);
    }
}

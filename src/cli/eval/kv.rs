//! `hadal eval kv`: what each kind of cache costs in quality, and what it takes in memory and time.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use clap::Args;
use hadal::cache::{CacheType, KINDS};
use hadal::engine::Engine;
use hadal::eval::kv::{Comparison, Divergence, Prompts, Speed, speeds};
use hadal::file::output;
use hadal::tokenizer::Special;
use hadal::{Error, Options};
use serde_json::json;

use super::plot;
use crate::cli::model::{ActivationsName, FileArgs};
use crate::cli::progress;
use crate::cli::table::{grouped, table};
use crate::cli::value;

/// Measure what each kind of cache costs: divergence of the next token from a cache of floats
#[derive(Args, Debug)]
pub struct Kv {
    /// The text; its tokens are cut into prompts
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,

    /// Kinds of caches [default: all that the model's heads can be stored as]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value::cache)]
    kinds: Vec<CacheType>,

    /// Tokens of a prompt
    #[arg(long, value_name = "N", default_value = "128", value_parser = value::count)]
    tokens: usize,

    /// How many of them are decoded with the quantized cache
    #[arg(long, value_name = "N", default_value = "32", value_parser = value::count)]
    steps: usize,

    /// Prompts at most
    #[arg(long, value_name = "N", default_value = "8", value_parser = value::count)]
    prompts: usize,

    /// Lengths of context to measure the speed of decoding at, like 128,2048,8192
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value::count)]
    speed: Vec<usize>,

    /// Write divergence against bits as a picture, or as a page with the table if the name ends with .html
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// What weights and keys are multiplied with: 8-bit blocks (fast) or f32 (slow, without what rounding adds)
    #[arg(long, value_name = "TYPE", default_value = "quantized")]
    activations: ActivationsName,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Threads [default: one a core]
    #[arg(short, long, value_name = "N", value_parser = value::count)]
    threads: Option<usize>,

    #[command(flatten)]
    model: FileArgs,
}

/// Tokens that are decoded to measure a speed.
const SPEED_STEPS: usize = 17;

/// Measures and prints a table.
pub fn kv(arguments: &Kv) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(&arguments.file).map_err(|error| Error::io(&arguments.file, error))?;
    let longest = arguments.speed.iter().map(|context| context + SPEED_STEPS).max();
    let context = arguments.tokens.max(longest.unwrap_or(0));
    let options = Options {
        context: Some(context),
        threads: arguments.threads,
        activations: arguments.activations.into(),
        ..Options::default()
    };
    let mut engine = arguments.model.open(&options)?;
    let tokens = engine.tokenizer().encode_prompt(&text, Special::Text)?;
    let kinds = if arguments.kinds.is_empty() { possible(&mut engine) } else { arguments.kinds.clone() };
    let cut = Prompts { tokens: arguments.tokens, steps: arguments.steps, most: arguments.prompts };
    let mut comparison = Comparison::new(&engine, &tokens, cut, &kinds)?;
    let progress = progress::bar(comparison.prompts() + arguments.speed.len(), progress::STEPS)?;
    for index in 0..comparison.prompts() {
        progress.set_message(format!("prompt {}", index + 1));
        comparison.run(&mut engine, index)?;
        progress.inc(1);
    }
    let mut decoded = Vec::new();
    // A text that is too short says the same again: the work is the same.
    let long: Vec<u32> = tokens.iter().copied().cycle().take(context).collect();
    for &context in &arguments.speed {
        progress.set_message(format!("{context} tokens"));
        decoded.extend(speeds(&mut engine, &long, context, SPEED_STEPS, &kinds)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let rows: Vec<_> = comparison
        .divergences()
        .into_iter()
        .map(|divergence| Row::new(&mut engine, divergence, &decoded))
        .collect::<hadal::Result<_>>()?;
    if let Some(path) = &arguments.plot {
        draw(path, &engine, &rows, &page(&rows, &arguments.speed))?;
    }
    let report = if arguments.json { object(&engine, &rows)? } else { page(&rows, &arguments.speed) };
    Ok(stdout().write_all(report.as_bytes())?)
}

/// Kinds that the model's heads can be stored as: each alone, then pairs of turbo.
fn possible(engine: &mut Engine) -> Vec<CacheType> {
    let pairs = [(8, 8), (8, 5), (8, 4), (8, 3), (8, 2), (4, 4), (4, 3), (4, 2)];
    let pairs = pairs.iter().filter_map(|(keys, values)| format!("turbo:k{keys}v{values}").parse().ok());
    let alone = KINDS.iter().filter(|kind| !kind.name.starts_with("turbo"));
    let alone = alone.filter_map(|kind| CacheType::new(kind, kind).ok());
    alone.chain(pairs).filter(|&kind| engine.convert_cache(kind).is_ok()).collect()
}

/// All about one kind.
pub struct Row {
    divergence: Divergence,
    /// Bits of an element of layers without a window.
    bits: f64,
    token_bytes: u64,
    speeds: Vec<Speed>,
}

impl Row {
    fn new(engine: &mut Engine, divergence: Divergence, speeds: &[Speed]) -> hadal::Result<Self> {
        engine.reset();
        engine.convert_cache(CacheType::F32)?;
        let floats = engine.info().cache_token_bytes;
        engine.convert_cache(divergence.kind)?;
        let token_bytes = engine.info().cache_token_bytes;
        Ok(Row {
            bits: 32.0 * token_bytes as f64 / floats.max(1) as f64,
            token_bytes,
            speeds: speeds.iter().filter(|speed| speed.kind == divergence.kind).copied().collect(),
            divergence,
        })
    }
}

fn page(rows: &[Row], contexts: &[usize]) -> String {
    let mut head: Vec<String> =
        ["cache", "bits", "bytes/token", "mean KL", "median", "p95", "same token"].map(String::from).to_vec();
    head.extend(contexts.iter().map(|context| format!("tokens/s at {}", grouped(*context as u64))));
    let mut lines = vec![head];
    lines.extend(rows.iter().map(|row| {
        let Divergence { kind, mean, median, p95, same_top } = row.divergence;
        let mut line = vec![
            kind.to_string(),
            format!("{:.2}", row.bits),
            grouped(row.token_bytes),
            format!("{mean:.6}"),
            format!("{median:.6}"),
            format!("{p95:.6}"),
            format!("{:.1} %", 100.0 * same_top),
        ];
        line.extend(row.speeds.iter().map(|speed| format!("{:.1}", speed.tokens_per_second)));
        line
    }));
    table(&lines, &(1..7 + contexts.len()).collect::<Vec<_>>())
}

fn object(engine: &Engine, rows: &[Row]) -> anyhow::Result<String> {
    let speed = |speed: &Speed| {
        json!({
            "context": speed.context,
            "tokens_per_second": speed.tokens_per_second,
            "cache_bytes": speed.cache_bytes,
        })
    };
    let row = |row: &Row| {
        json!({
            "cache": row.divergence.kind.to_string(),
            "bits": row.bits,
            "token_bytes": row.token_bytes,
            "mean_kl": row.divergence.mean,
            "median_kl": row.divergence.median,
            "p95_kl": row.divergence.p95,
            "same_top": row.divergence.same_top,
            "speeds": row.speeds.iter().map(speed).collect::<Vec<_>>(),
        })
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    Ok(serde_json::to_string_pretty(&json!({"model": engine.info().name, "caches": rows}))? + "\n")
}

fn draw(path: &Path, engine: &Engine, rows: &[Row], table: &str) -> hadal::Result<()> {
    let points = rows.iter().filter(|row| row.divergence.mean > 0.0);
    let points: Vec<_> = points
        .map(|row| plot::Point { name: row.divergence.kind.to_string(), x: row.bits, y: row.divergence.mean })
        .collect();
    let title = format!("{}: mean KL (nats) against bits an element", engine.info().name);
    let is_page = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
    let text = if is_page { plot::html(&title, &points, table) } else { plot::svg(&title, &points) };
    output::write(path, text.as_bytes())
}

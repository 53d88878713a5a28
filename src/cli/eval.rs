//! `hadal eval`: measures how good a model is, and how near to another one.

use std::io::{Read, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use hadal::engine::Engine;
use hadal::eval::Windows;
use hadal::eval::dump::{Dump, Recorder};
use hadal::eval::kl::Divergences;
use hadal::eval::perplexity::Losses;
use hadal::file::Entry;
use hadal::tokenizer::Special;
use hadal::{Error, Result};
use indicatif::ProgressBar;
use serde_json::json;

use super::hub::ModelName;
use super::model::{FileArgs, NumericsArgs};
use super::table::table;
use super::value;

mod kv;
mod plot;
mod report;
mod tasks;

/// Measure how good a model is
#[derive(Args, Debug)]
pub struct Eval {
    #[command(subcommand)]
    instrument: Instrument,
}

#[derive(Debug, Subcommand)]
enum Instrument {
    Ppl(Ppl),
    Kl(Kl),
    Dump(DumpArgs),
    Kv(kv::Kv),
    Choice(tasks::Choice),
    Gsm(tasks::Gsm),
    Compare(tasks::Compare),
    Report(report::Report),
}

/// Perplexity of a text
#[derive(Args, Debug)]
struct Ppl {
    #[command(flatten)]
    text: TextArgs,

    #[command(flatten)]
    model: EvalModel,

    /// How the result is printed
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: Output,
}

/// Divergence of a model's predictions from a reference's
#[derive(Args, Debug)]
struct Kl {
    /// The reference: a model, or the folder of a dump, which brings its text
    #[arg(long, value_name = "MODEL|DUMP")]
    reference: ModelName,

    #[command(flatten)]
    text: TextArgs,

    #[command(flatten)]
    model: EvalModel,

    /// How the result is printed
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: Output,
}

/// Store a model's predictions on a text, as a reference for `kl`
#[derive(Args, Debug)]
struct DumpArgs {
    #[command(flatten)]
    text: TextArgs,

    #[command(flatten)]
    model: EvalModel,

    /// The folder to write
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,

    /// Logits that are kept of each position
    #[arg(long, value_name = "N", default_value = "2048", value_parser = value::count)]
    top_k: usize,
}

#[derive(Args, Debug)]
struct TextArgs {
    /// The text: a file, or - for standard input
    #[arg(value_name = "TEXT")]
    path: Option<PathBuf>,

    /// Tokens of a window, of which the first half is context
    #[arg(short, long, value_name = "N", default_value = "512", value_parser = value::count)]
    ctx_size: usize,

    /// Score all tokens of a window but the first
    #[arg(long)]
    all: bool,

    /// Windows to measure at most
    #[arg(long, value_name = "N", value_parser = value::count)]
    chunks: Option<usize>,
}

#[derive(Args, Debug)]
struct EvalModel {
    #[command(flatten)]
    file: FileArgs,

    /// Threads [default: one a core]
    #[arg(short, long, value_name = "N", value_parser = value::count)]
    threads: Option<usize>,

    #[command(flatten)]
    numerics: NumericsArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Runs the instrument that was asked for.
pub fn eval(arguments: &Eval) -> anyhow::Result<()> {
    match &arguments.instrument {
        Instrument::Ppl(ppl) => ppl.run(),
        Instrument::Kl(kl) => kl.run(),
        Instrument::Dump(dump) => dump.run(),
        Instrument::Kv(kv) => kv::kv(kv),
        Instrument::Choice(choice) => tasks::choice(choice),
        Instrument::Gsm(gsm) => tasks::gsm(gsm),
        Instrument::Compare(compare) => tasks::compared(compare),
        Instrument::Report(report) => report::report(report),
    }
}

impl Ppl {
    fn run(&self) -> anyhow::Result<()> {
        let (text, windows) = (self.text.read()?, self.text.windows());
        let mut engine = self.model.open(windows.length)?;
        let all = windows.cut(&engine, &tokens(&engine, &text)?)?;
        let mut losses = Losses::default();
        let progress = progress(all.len())?;
        for window in &all {
            let logits = windows.logits(&mut engine, window)?;
            losses.add(&logits, windows.scored(window));
            progress.set_message(format!("perplexity {:.4}", losses.perplexity().perplexity));
            progress.inc(1);
        }
        progress.finish_and_clear();
        let found = losses.perplexity();
        self.output.print(&[
            ("perplexity", json!(found.perplexity)),
            ("standard_error", json!(found.standard_error)),
            ("tokens", json!(found.tokens)),
        ])
    }
}

impl Kl {
    fn run(&self) -> anyhow::Result<()> {
        let found = if Dump::is_at(&self.reference.path()?) { self.with_dump()? } else { self.with_model()? };
        let found = found.divergence();
        self.output.print(&[
            ("mean_kl", json!(found.mean_kl)),
            ("median_kl", json!(found.median_kl)),
            ("p95_kl", json!(found.p95_kl)),
            ("p99_kl", json!(found.p99_kl)),
            ("max_kl", json!(found.max_kl)),
            ("top1_agreement", json!(found.top1_agreement)),
            ("captured_mass", json!(found.captured_mass)),
            ("bits_per_weight", json!(self.model.bits_per_weight()?)),
        ])
    }

    fn with_model(&self) -> anyhow::Result<Divergences> {
        let (text, windows) = (self.text.read()?, self.text.windows());
        let mut reference =
            open(&FileArgs { model: Some(self.reference.clone()) }, &self.model, windows.length)?;
        let mut engine = self.model.open(windows.length)?;
        let all = windows.cut(&reference, &tokens(&reference, &text)?)?;
        if windows.cut(&engine, &tokens(&engine, &text)?)? != all {
            let message =
                "the text becomes other tokens than the reference's: the models have to share a tokenizer";
            return Err(Error::Tokenizer(message.into()).into());
        }
        let mut found = Divergences::default();
        let progress = progress(all.len())?;
        for window in &all {
            let expected = windows.logits(&mut reference, window)?;
            found.add(&expected, &windows.logits(&mut engine, window)?)?;
            progress.set_message(format!("mean KL {:.5}", found.mean()));
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(found)
    }

    fn with_dump(&self) -> anyhow::Result<Divergences> {
        let dump = Dump::open(&self.reference.path()?)?;
        let windows = Windows { length: dump.manifest.ctx_len, context: 0, most: usize::MAX };
        let mut engine = self.model.open(windows.length)?;
        let mut found = Divergences::default();
        let most = self.text.chunks.unwrap_or(usize::MAX);
        let progress = progress(dump.sequences().len().min(most))?;
        for (index, sequence) in dump.sequences().enumerate().take(most) {
            let logits = windows.logits(&mut engine, sequence)?;
            for (row, record) in dump.records(index)?.iter().enumerate() {
                found.add_top(record, logits.row(row))?;
            }
            progress.set_message(format!("mean KL {:.5}", found.mean()));
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(found)
    }
}

impl DumpArgs {
    fn run(&self) -> anyhow::Result<()> {
        let (text, windows) = (self.text.read()?, Windows { context: 0, ..self.text.windows() });
        let mut engine = self.model.open(windows.length)?;
        let all = windows.cut(&engine, &tokens(&engine, &text)?)?;
        let mut recorder =
            Recorder::create(&self.output, &engine.info().name.clone(), windows.length, self.top_k)?;
        let progress = progress(all.len())?;
        for window in &all {
            recorder.add(window, &windows.logits(&mut engine, window)?)?;
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(recorder.finish()?)
    }
}

impl TextArgs {
    fn windows(&self) -> Windows {
        let context = if self.all { 0 } else { self.ctx_size / 2 };
        Windows { length: self.ctx_size, context, most: self.chunks.unwrap_or(usize::MAX) }
    }

    fn read(&self) -> Result<String> {
        let Some(path) = &self.path else {
            return Err(Error::option("TEXT", "a text is needed: a file, or - for standard input"));
        };
        let io = |error| Error::io(path, error);
        if path == Path::new("-") {
            let mut text = String::new();
            stdin().read_to_string(&mut text).map_err(io)?;
            return Ok(text);
        }
        std::fs::read_to_string(path).map_err(io)
    }
}

impl EvalModel {
    /// Of the whole file; none of the model that is built in.
    fn bits_per_weight(&self) -> Result<Option<f64>> {
        let Some(model) = &self.file.model else { return Ok(None) };
        let weights = model.weights()?;
        let count = |entry: &Entry| entry.shape.iter().map(|&dim| dim as f64).product::<f64>();
        let weights = weights.tensors.values();
        let bytes: usize = weights.clone().map(|entry| entry.data.len()).sum();
        Ok(Some(bytes as f64 * 8.0 / weights.map(count).sum::<f64>().max(1.0)))
    }

    fn open(&self, context: usize) -> Result<Engine> {
        open(&self.file, self, context)
    }
}

fn open(file: &FileArgs, model: &EvalModel, context: usize) -> Result<Engine> {
    file.open(&model.numerics.options(Some(context), model.threads)?)
}

fn tokens(engine: &Engine, text: &str) -> Result<Vec<u32>> {
    engine.tokenizer().encode_prompt(text, Special::Text)
}

/// A bar with the figure so far.
fn progress(windows: usize) -> anyhow::Result<ProgressBar> {
    let progress = super::progress::bar(windows, "{msg:24} {wide_bar} {pos}/{len}, {eta} left")?;
    progress.enable_steady_tick(Duration::from_millis(200));
    Ok(progress)
}

impl Output {
    fn print(self, figures: &[(&str, serde_json::Value)]) -> anyhow::Result<()> {
        let text = match self {
            Output::Json => {
                let object: serde_json::Map<_, _> =
                    figures.iter().map(|(name, figure)| ((*name).to_owned(), figure.clone())).collect();
                serde_json::to_string_pretty(&object)? + "\n"
            }
            Output::Table => {
                let row = |(name, figure): &(&str, serde_json::Value)| {
                    let figure = match figure.as_f64().filter(|_| figure.is_f64()) {
                        Some(figure) => format!("{figure:.6}"),
                        None => figure.to_string(),
                    };
                    vec![name.replace('_', " "), figure]
                };
                table(&figures.iter().map(row).collect::<Vec<_>>(), &[1])
            }
        };
        Ok(stdout().write_all(text.as_bytes())?)
    }
}

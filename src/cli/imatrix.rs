//! `hadal imatrix`: which columns of a model's matrices count, measured with a text.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use hadal::backend::cpu::{Activations, Cpu};
use hadal::engine::Interrupt;
use hadal::eval::Windows;
use hadal::quantize::{Collector, Imatrix};
use hadal::tokenizer::Special;
use hadal::{Error, Options};

use super::interrupt::{self, Guard, Interrupted};
use super::model::FileArgs;
use super::progress;
use super::value;

/// Measure with a text which columns of a model's matrices count, for `quantize --imatrix`
#[derive(Args, Debug)]
pub struct ImatrixArgs {
    /// A text file like those that the model will be used for
    text: PathBuf,

    /// The file to write, which llama-quantize reads too
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Tokens of a window
    #[arg(short, long, value_name = "N", default_value = "512", value_parser = value::count)]
    ctx_size: usize,

    /// Windows to read at most
    #[arg(long, value_name = "N", value_parser = value::count)]
    chunks: Option<usize>,

    /// Threads [default: one a core]
    #[arg(short, long, value_name = "N", value_parser = value::count)]
    threads: Option<usize>,

    #[command(flatten)]
    file: FileArgs,
}

/// Runs the model over the text. Ctrl-C writes what was measured so far.
pub fn imatrix(arguments: &ImatrixArgs) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(&arguments.text).map_err(|error| Error::io(&arguments.text, error))?;
    let options =
        Options { context: Some(arguments.ctx_size), threads: arguments.threads, ..Options::default() };
    let mut engine = arguments.file.open(&options)?;
    let collector = Arc::new(Collector::new(Cpu::new(arguments.threads, None, Activations::Quantized)?));
    engine.set_backend("cpu", collector.clone());
    let windows =
        Windows { most: arguments.chunks.unwrap_or(usize::MAX), ..Windows::halves(arguments.ctx_size) };
    let all = windows.cut(&engine, &engine.tokenizer().encode_prompt(&text, Special::Text)?)?;
    interrupt::listen()?;
    let interrupt = Interrupt::default();
    let guard = Guard::new(interrupt.clone());
    let progress = progress::bar(all.len(), "{wide_bar} {pos}/{len} windows, {eta} left")?;
    let mut stopped = false;
    let mut chunks = 0;
    for window in &all {
        engine.reset();
        engine.prefill(window)?;
        progress.inc(1);
        chunks += 1;
        stopped = interrupt.take();
        if stopped {
            break;
        }
    }
    progress.finish_and_clear();
    drop(guard);
    let imatrix = Imatrix {
        datasets: vec![arguments.text.display().to_string()],
        chunks,
        chunk_size: arguments.ctx_size as u32,
        ..collector.imatrix()
    };
    imatrix.save(&arguments.output)?;
    if stopped { Err(Interrupted.into()) } else { Ok(()) }
}

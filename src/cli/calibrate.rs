//! Running a model over a text to learn what its matrices read.

use std::path::Path;
use std::sync::Arc;

use hadal::backend::cpu::{Activations, Cpu};
use hadal::engine::Engine;
use hadal::eval::Windows;
use hadal::quantize::{Collector, Hessians};
use hadal::tokenizer::Special;
use hadal::{Error, Options};

use super::progress;

/// Tokens of a window.
const WINDOW: usize = 512;

/// The products of what the matrices of the model `source` read of at most `most` windows of `text`.
pub fn hessians(source: &Path, text: &Path, most: usize, threads: Option<usize>) -> anyhow::Result<Hessians> {
    let words = std::fs::read_to_string(text).map_err(|error| Error::io(text, error))?;
    let options = Options { context: Some(WINDOW), threads, ..Options::default() };
    let mut engine = Engine::open_with(source, &options)?;
    let collector = Arc::new(Collector::with_products(Cpu::new(threads, None, Activations::Float)?));
    engine.set_backend("cpu", collector.clone());
    let windows = Windows { most, ..Windows::halves(WINDOW) };
    let all = windows.cut(&engine, &engine.tokenizer().encode_prompt(&words, Special::Text)?)?;
    let progress = progress::bar(all.len(), "{wide_bar} {pos}/{len} windows, {eta} left")?;
    for window in &all {
        engine.reset();
        engine.prefill(window)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(collector.hessians())
}

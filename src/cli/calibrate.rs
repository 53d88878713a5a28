//! Quantizing with a text, layer by layer, with a bar and an end for Ctrl-C that loses no more than a layer.

use std::path::Path;

use hadal::engine::{Engine, Interrupt};
use hadal::eval::Windows;
use hadal::file::Weights;
use hadal::quant::Format;
use hadal::quantize::{Calibrated, Calibration, Imatrix, Made, Method, Start};
use hadal::tokenizer::Special;
use hadal::{Error, Options};
use indexmap::IndexMap;

use super::interrupt::{self, Guard, Interrupted};
use super::progress;
use super::quantize::tell;
use super::table::escaped;

/// Tokens of a window.
const WINDOW: usize = 512;

/// What the flags say.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    pub method: Method,
    pub path: &'a Path,
    /// Windows that are read of it at most.
    pub windows: usize,
    pub threads: Option<usize>,
}

impl Text<'_> {
    /// Makes the matrices of `source` that have one of `formats`, for what becomes `target`.
    pub fn make<'a>(
        &self,
        source: &'a Weights,
        formats: IndexMap<String, &'static Format>,
        imatrix: Option<&'a Imatrix>,
        target: &Path,
        start: Start,
    ) -> anyhow::Result<(Calibrated<'a>, Calibration<'a>)> {
        let calibration = Calibration {
            method: self.method,
            text: self.path.display().to_string(),
            windows: self.cut(source)?,
            formats,
            imatrix,
        };
        interrupt::listen()?;
        let mut work = Calibrated::new(source, calibration.clone(), target, self.threads, start)?;
        let interrupt = Interrupt::default();
        let guard = Guard::new(interrupt.clone());
        let (done, steps) = (work.done(), work.steps());
        let progress =
            progress::bar(work.ticks(0..steps), "{msg:28!} {wide_bar} {percent:>3} %, {eta} left")?;
        progress.set_position(work.ticks(0..done) as u64);
        progress.reset_eta();
        for step in done..steps {
            let mut stopped = false;
            let made = work.step(|what| {
                progress.set_message(escaped(what));
                progress.inc(1);
                stopped = interrupt.take();
                if stopped { Err(Error::option("--calibration", "stopped")) } else { Ok(()) }
            });
            if stopped {
                progress.finish_and_clear();
                tell(&[format!("stopped after {step} of {steps} steps: --resume goes on")]);
                return Err(Interrupted.into());
            }
            let made = made?;
            progress.suspend(|| tell(&notes(&made)));
        }
        progress.finish_and_clear();
        drop(guard);
        Ok((work, calibration))
    }

    /// Windows of the text.
    fn cut(&self, source: &Weights) -> anyhow::Result<Vec<Vec<u32>>> {
        let words = std::fs::read_to_string(self.path).map_err(|error| Error::io(self.path, error))?;
        let options = Options { context: Some(WINDOW), threads: Some(1), ..Options::default() };
        let engine = Engine::from_weights(source, &options)?;
        let windows = Windows { most: self.windows, ..Windows::halves(WINDOW) };
        Ok(windows.cut(&engine, &engine.tokenizer().encode_prompt(&words, Special::Text)?)?)
    }
}

/// What is not as one might think.
fn notes(made: &[Made]) -> Vec<String> {
    let mut notes = Vec::new();
    for matrix in made {
        let name = escaped(&matrix.name);
        if matrix.skipped > 0 {
            notes.push(format!("{name}: {} inputs are no finite numbers and do not count", matrix.skipped));
        }
        if let Some(why) = matrix.fallback {
            notes.push(format!("{name}: rounded without feedback, as {why}"));
        }
    }
    notes
}

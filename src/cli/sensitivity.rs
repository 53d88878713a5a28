//! `hadal sensitivity`: what a model loses when one of its matrices has fewer bits, for each of them.

use std::path::PathBuf;

use clap::Args;
use hadal::backend::Hidden;
use hadal::convert::for_gguf;
use hadal::engine::Engine;
use hadal::eval::Windows;
use hadal::eval::kl::Divergences;
use hadal::file::Weights;
use hadal::quantize::{NamePattern, Recipe, Sensitivity, sensitivity as measured};
use hadal::tokenizer::Special;
use hadal::{Error, Options};

use super::hub::ModelName;
use super::{progress, value};

/// Tokens of a window.
const WINDOW: usize = 512;

/// Measure what a model loses when one matrix alone has fewer bits, for `quantize --sensitivity`
#[derive(Args, Debug)]
pub struct SensitivityArgs {
    /// The model: a GGUF file, a Hugging Face folder, or OWNER/NAME:QUANT of what was pulled
    source: ModelName,

    /// The recipe or format that files will be made with: it says which formats are tried
    #[arg(short, long, value_name = "TYPE", value_parser = value::recipe)]
    r#type: Recipe,

    /// A text like those that the model will be used for
    #[arg(long, value_name = "FILE")]
    text: PathBuf,

    /// Windows of 512 tokens that are read of it at most
    #[arg(long, value_name = "N", default_value = "4", value_parser = value::count)]
    windows: usize,

    /// Only matrices whose name matches
    #[arg(long, value_name = "REGEX", value_parser = NamePattern::new)]
    only: Option<NamePattern>,

    /// The file to write. What is in it already is not measured again
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = value::count)]
    threads: Option<usize>,
}

/// Measures one matrix after the other, and writes each.
pub fn sensitivity(arguments: &SensitivityArgs) -> anyhow::Result<()> {
    let mut weights = for_gguf(arguments.source.weights()?)?;
    let mut known = arguments.known()?;
    let text = std::fs::read_to_string(&arguments.text).map_err(|error| Error::io(&arguments.text, error))?;
    let reference = arguments.logits(&weights, &text)?;
    let wanted = |name: &&str| arguments.only.as_ref().is_none_or(|only| only.is_in(name));
    let names: Vec<String> = measured::matrices(&weights).filter(wanted).map(String::from).collect();
    let progress = progress::bar(names.len(), "{msg:28!} {wide_bar} {pos}/{len} matrices, {eta} left")?;
    for name in names {
        progress.set_message(name.clone());
        for &format in measured::ladder(Some(arguments.r#type)) {
            let made = measured::replacement(&weights, &name, format, arguments.threads)?;
            let format = made.as_ref().and_then(|made| made.format).unwrap_or(format);
            if known.of(&name, format).is_some() {
                continue;
            }
            let loss = match made {
                None => 0.0,
                Some(made) => {
                    let own = std::mem::replace(&mut weights.tensors[&name], made);
                    let found = arguments.logits(&weights, &text)?;
                    weights.tensors[&name] = own;
                    let mut divergences = Divergences::default();
                    for (expected, found) in reference.iter().zip(&found) {
                        divergences.add(expected, found)?;
                    }
                    divergences.divergence().mean_kl
                }
            };
            known.tensors.entry(name.clone()).or_default().insert(format.name.into(), loss);
        }
        known.save(&arguments.output)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(())
}

impl SensitivityArgs {
    /// What an earlier run measured on the same text.
    fn known(&self) -> anyhow::Result<Sensitivity> {
        let text = self.text.display().to_string();
        let none = Sensitivity { text, windows: self.windows, ..Sensitivity::default() };
        if !self.output.exists() {
            return Ok(none);
        }
        let known = Sensitivity::open(&self.output)?;
        if (&known.text, known.windows) != (&none.text, none.windows) {
            let message = format!("was measured on {}, {} windows", known.text, known.windows);
            return Err(Error::File { path: self.output.clone(), message }.into());
        }
        Ok(known)
    }

    /// Of the scored positions of each window.
    fn logits(&self, weights: &Weights, text: &str) -> anyhow::Result<Vec<Hidden>> {
        let options = Options { context: Some(WINDOW), threads: self.threads, ..Options::default() };
        let mut engine = Engine::from_weights(weights, &options)?;
        let windows = Windows { most: self.windows, ..Windows::halves(WINDOW) };
        let all = windows.cut(&engine, &engine.tokenizer().encode_prompt(text, Special::Text)?)?;
        all.iter().map(|window| Ok(windows.logits(&mut engine, window)?)).collect()
    }
}

//! `hadal recipe`: a model of few bits from start to end: rotated, calibrated, encoded and measured, with a page that says how.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use hadal::engine::Engine;
use hadal::eval::Windows;
use hadal::eval::kl::Divergences;
use hadal::eval::perplexity::Losses;
use hadal::file::{self, Weights};
use hadal::quantize::{Method, Plan, Recipe as Mixture, Settings};
use hadal::tokenizer::Special;
use hadal::{Error, Options};

use super::hub::ModelName;
use super::{calibrate, progress, quantize, value};

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub name: &'static str,
    /// The type that `quantize` takes.
    mixture: &'static str,
    /// Formats are chosen for so many bits a weight.
    target_bpw: Option<f64>,
}

/// All of them rotate, and make up for errors (ldlq).
pub static RECIPES: &[Recipe] = &[
    Recipe { name: "trellis-2.5", mixture: "trellis_k2", target_bpw: Some(2.5) },
    Recipe { name: "trellis-3.0", mixture: "trellis_k3", target_bpw: None },
    Recipe { name: "trellis-3.5", mixture: "trellis_k3", target_bpw: Some(3.5) },
    Recipe { name: "trellis-4.0", mixture: "trellis_k4", target_bpw: None },
    Recipe { name: "rot-q3k", mixture: "q3_k_m", target_bpw: None },
];

/// Make a model of few bits: rotate, learn from a text, encode, measure
#[derive(Args, Debug)]
pub struct RecipeArgs {
    /// trellis-2.5, trellis-3.0, trellis-3.5, trellis-4.0 (bits a weight) or rot-q3k
    #[arg(value_parser = value::named_recipe)]
    name: Recipe,

    /// The model, of f32, f16 or bf16: a GGUF file, a Hugging Face folder, or OWNER/NAME:QUANT of what was pulled
    source: ModelName,

    /// The file to write. A page of the same name, `.md`, says what was done and how good it is
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// A text like those that the model will be used for
    #[arg(long, value_name = "FILE")]
    calibration: PathBuf,

    /// Another text, to measure with
    #[arg(long, value_name = "FILE")]
    text: PathBuf,

    /// Windows of 512 tokens that are read of each text at most
    #[arg(long, value_name = "N", default_value = "64", value_parser = value::count)]
    windows: usize,

    /// Seed of the rotations
    #[arg(long, value_name = "N", default_value = "42")]
    seed: u32,

    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = value::count)]
    threads: Option<usize>,
}

/// Runs all steps. Stopped, it goes on at the tensor where it was.
pub fn recipe(arguments: &RecipeArgs) -> anyhow::Result<()> {
    let start = Instant::now();
    let RecipeArgs { source, seed, output, threads, .. } = arguments;
    let rotated = quantize::rotated(source, *seed, output, *threads, true)?;
    arguments.encode(&rotated)?;
    let made = start.elapsed();
    let figures = arguments.measure()?;
    let page = arguments.page(&figures, made)?;
    file::output::write(&arguments.output.with_extension("md"), page.as_bytes())?;
    std::fs::remove_file(&rotated).map_err(|error| Error::io(&rotated, error))?;
    Ok(stdout().write_all(page.as_bytes())?)
}

/// Of the result, beside the source.
struct Figures {
    divergences: Divergences,
    losses: [Losses; 2],
}

impl RecipeArgs {
    fn encode(&self, rotated: &Path) -> anyhow::Result<()> {
        let weights = Weights::open(rotated)?;
        let recipe = self.name;
        let settings =
            Settings { target_bpw: recipe.target_bpw, ..Settings::new(Mixture::by_name(recipe.mixture)) };
        let plan = Plan::new(&weights, &settings, None)?;
        let text = calibrate::Text {
            method: Method::Ldlq,
            path: &self.calibration,
            windows: self.windows,
            threads: self.threads,
        };
        quantize::make_calibrated(&weights, plan, text, &self.output, true)
    }

    fn measure(&self) -> anyhow::Result<Figures> {
        let windows = Windows { most: self.windows, ..Windows::halves(512) };
        let options = Options { context: Some(windows.length), threads: self.threads, ..Options::default() };
        let text = std::fs::read_to_string(&self.text).map_err(|error| Error::io(&self.text, error))?;
        let mut engines =
            [Engine::open_with(self.source.path()?, &options)?, Engine::open_with(&self.output, &options)?];
        let all = windows.cut(&engines[0], &engines[0].tokenizer().encode_prompt(&text, Special::Text)?)?;
        let mut figures = Figures { divergences: Divergences::default(), losses: Default::default() };
        let progress = progress::bar(all.len(), "{wide_bar} {pos}/{len} windows, {eta} left")?;
        for window in &all {
            let expected = windows.logits(&mut engines[0], window)?;
            let found = windows.logits(&mut engines[1], window)?;
            figures.divergences.add(&expected, &found)?;
            figures.losses[0].add(&expected, windows.scored(window));
            figures.losses[1].add(&found, windows.scored(window));
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(figures)
    }

    /// The page, in Markdown.
    fn page(&self, figures: &Figures, made: Duration) -> anyhow::Result<String> {
        let weights = Weights::open(&self.output)?;
        let count: u64 = weights.tensors.values().map(|t| t.shape.iter().product::<usize>() as u64).sum();
        let bytes: u64 = weights.tensors.values().map(|tensor| tensor.data.len() as u64).sum();
        let divergence = figures.divergences.divergence();
        let [source, found] = [0, 1].map(|i| figures.losses[i].perplexity());
        let mut page = format!("# {}\n\n", self.output.display());
        writeln!(page, "Made of {} by:\n", self.source)?;
        writeln!(
            page,
            "```sh\nhadal recipe {} {} --calibration {} --text {} --windows {} --seed {} -o {}\n```\n",
            self.name.name,
            self.source,
            self.calibration.display(),
            self.text.display(),
            self.windows,
            self.seed,
            self.output.display()
        )?;
        page += "| | |\n|---|---|\n";
        writeln!(page, "| bits per weight | {:.4} |", bytes as f64 * 8.0 / count.max(1) as f64)?;
        writeln!(page, "| bytes of weights | {bytes} |")?;
        writeln!(page, "| mean KL from the source | {:.5} |", divergence.mean_kl)?;
        writeln!(page, "| 99 % of positions below | {:.5} |", divergence.p99_kl)?;
        writeln!(page, "| same first token | {:.4} |", divergence.top1_agreement)?;
        writeln!(page, "| perplexity | {:.4} ± {:.4} |", found.perplexity, found.standard_error)?;
        writeln!(page, "| the source's | {:.4} |", source.perplexity)?;
        writeln!(page, "| seconds to make | {:.0} |", made.as_secs_f64())?;
        page += "\nTasks were not measured.\n";
        Ok(page)
    }
}

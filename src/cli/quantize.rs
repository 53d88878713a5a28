//! `hadal quantize`: a file of other formats from a model file.

use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};

use clap::Args;
use hadal::Error;
use hadal::convert::for_gguf;
use hadal::engine::Interrupt;
use hadal::file::Weights;
use hadal::quant::Format;
use hadal::quantize::{
    Conversion, Imatrix, NamePattern, Plan, Recipe, Rotation, Run, SEED_KEY, Sensitivity, Settings, Start,
};
use indicatif::{ProgressBar, ProgressStyle};

use super::hub::ModelName;
use super::interrupt::{self, Guard, Interrupted};
use super::table::{Row, escaped, grouped, table};
use super::{calibrate, convert, value};

/// Make a smaller file of a model
#[derive(Args, Debug)]
pub struct Quantize {
    /// The model: a GGUF file (any part of a split one), a Hugging Face folder, or OWNER/NAME:QUANT of what was pulled
    source: ModelName,

    /// Recipe or format: q4_k_m, q8_0, iq4_xs, ... (see `hadal formats`)
    #[arg(short, long, value_name = "TYPE", value_parser = value::recipe, required_unless_present = "target_bpw")]
    r#type: Option<Recipe>,

    /// The file to write; of MLX's types (affine4_g64, ...), which files do not hold, a folder
    #[arg(short, long, value_name = "FILE", required_unless_present = "dry_run")]
    output: Option<PathBuf>,

    /// A format for tensors whose name matches; may be given several times, the first that matches counts
    #[arg(long, value_name = "REGEX=TYPE", value_parser = value::tensor_type)]
    tensor_type: Vec<(NamePattern, &'static Format)>,

    /// Format of the output matrix
    #[arg(long, visible_alias = "output-tensor-type", value_name = "TYPE", value_parser = value::weight_format)]
    output_type: Option<&'static Format>,

    /// Format of the token embedding
    #[arg(long, value_name = "TYPE", value_parser = value::weight_format)]
    token_embedding_type: Option<&'static Format>,

    /// Choose formats so that the file has at most this many bits per weight
    #[arg(long, value_name = "BITS", value_parser = value::bits)]
    target_bpw: Option<f64>,

    /// What matrices cost in accuracy, as `hadal sensitivity` writes it, to choose formats by
    #[arg(long, value_name = "FILE", requires = "target_bpw")]
    sensitivity: Option<PathBuf>,

    /// Importance of columns, as `llama-imatrix` or `hadal imatrix` writes it
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,

    /// Make iq1_s, iq1_m, iq2_xxs and iq2_xs without importance, too: of little use but for trying
    #[arg(long)]
    allow_unweighted: bool,

    /// Fold random rotations into the weights first: logits stay, and few bits keep more of them
    #[arg(long)]
    rotate: bool,

    /// Seed of the rotations [default: 42]
    #[arg(long, value_name = "N", requires = "rotate")]
    seed: Option<u32>,

    /// How codes are chosen: each weight for itself (rtn), or with what is lost made up for by other weights of its row, from weight to
    /// weight (gptq) or from block to block (ldlq)
    #[arg(long, value_name = "METHOD", default_value = "rtn", value_parser = value::method)]
    method: value::Feedback,

    /// A text like those that the model will be used for, from which gptq and ldlq learn what matrices read
    #[arg(long, value_name = "FILE", required_if_eq_any([("method", "gptq"), ("method", "ldlq")]))]
    calibration: Option<PathBuf>,

    /// Windows of 512 tokens that are read of it at most
    #[arg(long, value_name = "N", default_value = "64", requires = "calibration", value_parser = value::count)]
    calibration_windows: usize,

    /// One format for all matrices, without the recipe's exceptions
    #[arg(long)]
    pure: bool,

    /// Split the result where the source is split
    #[arg(long)]
    keep_split: bool,

    /// Split the result into files of at most this size, like 2G or 300M
    #[arg(long, value_name = "SIZE", value_parser = value::split_size, conflicts_with = "keep_split")]
    split_max_size: Option<u64>,

    /// Fail if a tensor's rows do not fit its format, instead of taking the next best one
    #[arg(long)]
    strict: bool,

    /// Print what would be made and make nothing
    #[arg(long)]
    dry_run: bool,

    /// Go on where an earlier run was stopped
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,

    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = value::count)]
    threads: Option<usize>,
}

/// Plans, tells what is not as asked, and writes.
pub fn quantize(arguments: &Quantize) -> anyhow::Result<()> {
    let text = arguments.text();
    if let (Some(_), true, Some(output)) = (text, arguments.rotate && !arguments.dry_run, &arguments.output) {
        let rotated =
            rotated(&arguments.source, arguments.seed(), output, arguments.threads, arguments.resume)?;
        arguments.write(Weights::open(&rotated)?)?;
        return Ok(std::fs::remove_file(&rotated).map_err(|error| Error::io(&rotated, error))?);
    }
    arguments.write(arguments.source.weights()?)
}

/// `source` with rotations in its weights, in f32, beside what becomes `output`: what is calibrated is what will run.
pub fn rotated(
    source: &ModelName,
    seed: u32,
    output: &Path,
    threads: Option<usize>,
    resume: bool,
) -> anyhow::Result<PathBuf> {
    let target = output.with_extension("rotated.gguf");
    // One that is there was made by an earlier run, which was stopped later.
    if resume && target.exists() && Weights::open(&target)?.metadata.u32(SEED_KEY)? == Some(seed) {
        return Ok(target);
    }
    let mut weights = for_gguf(source.weights()?)?;
    let rotation = Rotation::new(&mut weights, seed)?;
    let mut plan = Plan::new(&weights, &Settings::new(Recipe::by_name("f32")), None)?;
    plan.rotation = Some(&rotation);
    make(&plan, &target, threads, resume)?;
    Ok(target)
}

/// Tells what is not as asked, writes the file and tells its size.
pub fn make(plan: &Plan, output: &Path, threads: Option<usize>, resume: bool) -> anyhow::Result<()> {
    tell(&notes(plan));
    interrupt::listen()?;
    write(Run::new(plan, output, threads, start(resume))?, plan)?;
    Ok(stdout().write_all(total(plan)?.as_bytes())?)
}

/// The same with a text: matrices are made layer by layer first.
pub fn make_calibrated(
    weights: &Weights,
    plan: Plan,
    text: calibrate::Text,
    output: &Path,
    resume: bool,
) -> anyhow::Result<()> {
    tell(&notes(&plan));
    let first = &plan.file.paths(output)[0];
    let (work, calibration) = text.make(weights, plan.block_formats(), plan.imatrix, first, start(resume))?;
    let told = total(&plan)?;
    let mut plan = Plan { ..plan };
    plan.take(work.weights(), &calibration);
    write(Run::new(&plan, output, text.threads, start(resume))?, &plan)?;
    drop(plan);
    work.remove();
    Ok(stdout().write_all(told.as_bytes())?)
}

pub fn start(resume: bool) -> Start {
    if resume { Start::Resume } else { Start::Anew }
}

impl Quantize {
    fn seed(&self) -> u32 {
        self.seed.unwrap_or(42)
    }

    /// What to calibrate with, if anything.
    fn text(&self) -> Option<calibrate::Text<'_>> {
        let (method, path) = (self.method.0?, self.calibration.as_deref()?);
        Some(calibrate::Text { method, path, windows: self.calibration_windows, threads: self.threads })
    }

    /// Writes what is asked for of `weights`, which are rotated already if they are to be calibrated.
    fn write(&self, weights: Weights) -> anyhow::Result<()> {
        let text = self.text();
        if self.r#type.is_some_and(|recipe| recipe.base.gguf_id.is_none()) {
            return self.write_folder(&weights, text);
        }
        let mut weights = for_gguf(weights)?;
        let rotate = self.rotate && (text.is_none() || self.dry_run);
        let rotation = rotate.then(|| Rotation::new(&mut weights, self.seed())).transpose()?;
        let imatrix = self.imatrix.as_deref().map(Imatrix::open).transpose()?;
        let mut plan = Plan::new(&weights, &self.settings()?, imatrix.as_ref())?;
        plan.rotation = rotation.as_ref();
        if self.keep_split {
            plan.keep_split()?;
        }
        if let Some(limit) = self.split_max_size {
            plan.file.split(limit);
        }
        if self.dry_run {
            let page = table(&rows(&plan), &[3, 4]) + &total(&plan)?;
            return Ok(stdout().write_all(page.as_bytes())?);
        }
        let output = self.output.as_deref().expect("clap asks for it");
        match text {
            None => make(&plan, output, self.threads, self.resume),
            Some(text) => make_calibrated(&weights, plan, text, output, self.resume),
        }
    }

    /// A folder of MLX, in which all matrices have one format.
    fn write_folder(&self, weights: &Weights, text: Option<calibrate::Text>) -> anyhow::Result<()> {
        let given = [
            ("--tensor-type", !self.tensor_type.is_empty()),
            ("--output-type", self.output_type.is_some()),
            ("--token-embedding-type", self.token_embedding_type.is_some()),
            ("--target-bpw", self.target_bpw.is_some()),
            ("--imatrix", self.imatrix.is_some()),
            ("--rotate", self.rotate && text.is_none()),
            ("--keep-split", self.keep_split),
            ("--dry-run", self.dry_run),
        ];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
            return Err(Error::option(name, "is of no use where a folder of MLX is made").into());
        }
        let output = self.output.as_deref().expect("clap asks for it");
        let target = convert::target(self.r#type, None, self.split_max_size, weights)?;
        convert::write_folder(weights, target, text, output, self.threads, self.resume)
    }

    fn settings(&self) -> hadal::Result<Settings> {
        Ok(Settings {
            pure: self.pure,
            output: self.output_type,
            embedding: self.token_embedding_type,
            tensors: self.tensor_type.clone(),
            target_bpw: self.target_bpw,
            sensitivity: self.sensitivity.as_deref().map(Sensitivity::open).transpose()?,
            strict: self.strict,
            unweighted: self.allow_unweighted,
            ..Settings::new(self.r#type)
        })
    }
}

/// Runs all steps, with a bar and an end for Ctrl-C that loses nothing.
fn write(mut run: Run, plan: &Plan) -> anyhow::Result<()> {
    let interrupt = Interrupt::default();
    let guard = Guard::new(interrupt.clone());
    let progress = ProgressBar::new(plan.weights());
    let style = "{msg:28!} {wide_bar} {percent:>3} %, {eta} left";
    progress.set_style(ProgressStyle::with_template(style)?);
    let done = run.done();
    progress.set_position(plan.conversions[..done].iter().map(Conversion::weights).sum());
    progress.reset_eta();
    let next = |done: usize| plan.conversions.get(done).map_or(String::new(), |next| escaped(&next.name));
    progress.set_message(next(done));
    while let Some(step) = run.next() {
        progress.inc(step?.weights());
        progress.set_message(next(run.done()));
        if interrupt.take() {
            progress.finish_and_clear();
            let done = run.done();
            run.pause()?;
            tell(&[format!("stopped after {done} of {} tensors: --resume goes on", plan.conversions.len())]);
            return Err(Interrupted.into());
        }
    }
    progress.finish_and_clear();
    drop(guard);
    Ok(run.finish()?)
}

/// A line a tensor: what it is, what it becomes.
fn rows(plan: &Plan) -> Vec<Row> {
    let mut rows =
        vec![["tensor", "shape", "from → to", "bytes", "bits/weight", ""].map(String::from).to_vec()];
    let row = |conversion: &Conversion| {
        let shape: Vec<_> = conversion.shape.iter().map(usize::to_string).collect();
        let types = match conversion.to {
            Some(_) => format!("{} → {}", conversion.from, conversion.type_name()),
            None => conversion.from.clone(),
        };
        vec![
            escaped(&conversion.name),
            shape.join(" × "),
            types,
            grouped(conversion.bytes),
            format!("{:.3}", conversion.bytes as f64 * 8.0 / conversion.weights().max(1) as f64),
            conversion.replaced.map_or_else(String::new, |wanted| format!("instead of {}", wanted.name)),
        ]
    };
    rows.extend(plan.conversions.iter().map(row));
    rows
}

/// Sizes of all together.
fn total(plan: &Plan) -> hadal::Result<String> {
    let replaced = plan.replaced().count();
    let replaced = match replaced {
        0 => String::new(),
        _ => format!(", {replaced} tensors of another format than asked for"),
    };
    let files = match plan.file.parts.len() {
        1 => String::new(),
        parts => format!(" in {parts} files"),
    };
    Ok(format!(
        "{} weights, {} bytes{files}, {:.3} bits per weight{replaced}\n",
        grouped(plan.weights()),
        grouped(plan.file.bytes()?),
        plan.bits_per_weight()
    ))
}

/// What is not as one might think.
fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    let again = plan.requantized();
    if again > 0 {
        notes.push(format!(
            "{again} tensors are quantized already and lose accuracy twice: a file of f16 or bf16 is a better source"
        ));
    }
    notes.extend(plan.replaced().map(|conversion| {
        let wanted = conversion.replaced.map_or("", |format| format.name);
        let columns = conversion.shape.last().copied().unwrap_or(1);
        let name = escaped(&conversion.name);
        format!("{name}: {} instead of {wanted}, rows of {columns}", conversion.type_name().to_lowercase())
    }));
    if let Some(imatrix) = plan.imatrix {
        let without = |conversion: &&Conversion| {
            conversion.to.is_some_and(|to| to.block_len > 1) && imatrix.columns(&conversion.name).is_none()
        };
        let names = plan.conversions.iter().filter(without).map(|conversion| escaped(&conversion.name));
        notes.extend(names.map(|name| format!("{name}: no importance")));
    }
    notes
}

/// On standard error; nothing can be done if that fails.
pub fn tell(notes: &[String]) {
    for note in notes {
        let _ = writeln!(stderr(), "note: {note}");
    }
}

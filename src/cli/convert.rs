//! `hadal convert`: a model folder as one file, or any model as a folder.

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};

use clap::Args;
use hadal::convert::for_gguf;
use hadal::engine::Interrupt;
use hadal::file::Weights;
use hadal::quant::{Format, bf16, f16};
use hadal::quantize::folder::{Folder, Target};
use hadal::quantize::{Plan, Recipe, Settings};

use super::hub::ModelName;
use super::interrupt::{Guard, Interrupted};
use super::{calibrate, interrupt, quantize, value};

/// Bytes of a file of a folder: 5 GB, as in transformers.
const SHARD: u64 = 5_000_000_000;

/// Make a GGUF file of a Hugging Face or MLX folder, or such a folder of any model
#[derive(Args, Debug)]
pub struct Convert {
    /// A folder with config.json, safetensors and tokenizer.json, a GGUF file, or OWNER/NAME:QUANT of what was pulled
    source: ModelName,

    /// The file to write, NAME.gguf, or the folder
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Recipe or format of the matrices, like f16 or q8_0; of a folder f32, f16, bf16 or, as MLX quantizes, affine4_g64,
    /// mxfp4 and their like [default: as they are, in a folder the type of --floats]
    #[arg(short, long, value_name = "TYPE", value_parser = value::recipe)]
    r#type: Option<Recipe>,

    /// Split the result into files of at most this size, like 2G or 300M
    #[arg(long, value_name = "SIZE", value_parser = value::split_size)]
    split_max_size: Option<u64>,

    /// What a folder holds everything else as, scales too: f32, f16 or bf16 [default: bf16 for Gemma, else f16]
    #[arg(long, value_name = "TYPE", value_parser = value::weight_format)]
    floats: Option<&'static Format>,

    /// Go on where an earlier run was stopped
    #[arg(long)]
    resume: bool,

    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = value::count)]
    threads: Option<usize>,
}

/// Writes the file or folder.
pub fn convert(arguments: &Convert) -> anyhow::Result<()> {
    if arguments.output.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("gguf")) {
        return folder(arguments);
    }
    let weights = for_gguf(arguments.source.weights()?)?;
    let mut plan = Plan::new(&weights, &Settings::new(arguments.r#type), None)?;
    if let Some(limit) = arguments.split_max_size {
        plan.file.split(limit);
    }
    quantize::make(&plan, &arguments.output, arguments.threads, arguments.resume)
}

fn folder(arguments: &Convert) -> anyhow::Result<()> {
    let weights = arguments.source.weights()?;
    let target = target(arguments.r#type, arguments.floats, arguments.split_max_size, &weights)?;
    write_folder(&weights, target, None, &arguments.output, arguments.threads, arguments.resume)
}

/// Writes the folder `output`, with what `text` says of matrices if there is one.
pub fn write_folder(
    weights: &Weights,
    target: Target,
    text: Option<calibrate::Text>,
    output: &Path,
    threads: Option<usize>,
    resume: bool,
) -> anyhow::Result<()> {
    let folder = Folder::new(weights, target)?;
    for name in folder.kept() {
        // Nothing can be done if that fails.
        let _ = writeln!(stderr(), "note: {name} stays {}: its rows are no whole groups", target.floats.name);
    }
    interrupt::listen()?;
    let start = quantize::start(resume);
    let made =
        text.map(|text| text.make(weights, folder.group_formats(), None, output, start)).transpose()?;
    let folder = match &made {
        Some((work, _)) => Folder::new(work.weights(), target)?,
        None => folder,
    };
    let interrupt = Interrupt::default();
    let guard = Guard::new(interrupt.clone());
    let mut stopped = false;
    let written = folder.write(output, threads, start, |_| {
        stopped = interrupt.take();
        if stopped { Err(hadal::Error::option("convert", "stopped")) } else { Ok(()) }
    });
    drop(guard);
    if stopped {
        // Nothing can be done if that fails.
        let _ = writeln!(stderr(), "note: stopped: --resume goes on");
        return Err(Interrupted.into());
    }
    written?;
    drop(folder);
    if let Some((work, _)) = made {
        work.remove();
    }
    Ok(())
}

/// What a folder holds if matrices are to be of `recipe`'s format and everything else is to be `floats`.
pub fn target(
    recipe: Option<Recipe>,
    floats: Option<&'static Format>,
    shard: Option<u64>,
    weights: &Weights,
) -> anyhow::Result<Target> {
    let gemma = weights.metadata.str("general.architecture")?.is_some_and(|name| name.starts_with("gemma"));
    // Gemma's activations leave the range of halves.
    let usual = floats.unwrap_or(if gemma { &bf16::FORMAT } else { &f16::FORMAT });
    let matrices = recipe.map_or(usual, |recipe| recipe.base);
    let plain = matrices.block_len == 1;
    let floats = if plain && floats.is_none() { matrices } else { usual };
    Ok(Target { matrices, floats, shard: shard.unwrap_or(SHARD) })
}

//! `hadal convert`: a model folder as one file.

use std::path::PathBuf;

use clap::Args;
use hadal::convert::for_gguf;
use hadal::file::Weights;
use hadal::quantize::{Plan, Recipe, Settings};

use super::{quantize, value};

/// Make a GGUF file of a Hugging Face folder
#[derive(Args, Debug)]
pub struct Convert {
    /// A folder with config.json, safetensors and tokenizer.json, or a GGUF file
    source: PathBuf,

    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Recipe or format of the matrices, like f16 or q8_0 [default: as they are]
    #[arg(short, long, value_name = "TYPE", value_parser = value::recipe)]
    r#type: Option<Recipe>,

    /// Split the result into files of at most this size, like 2G or 300M
    #[arg(long, value_name = "SIZE", value_parser = value::split_size)]
    split_max_size: Option<u64>,

    /// Go on where an earlier run was stopped
    #[arg(long)]
    resume: bool,

    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = value::count)]
    threads: Option<usize>,
}

/// Writes the file.
pub fn convert(arguments: &Convert) -> anyhow::Result<()> {
    let weights = for_gguf(Weights::open(&arguments.source)?)?;
    let mut plan = Plan::new(&weights, &Settings::new(arguments.r#type), None)?;
    if let Some(limit) = arguments.split_max_size {
        plan.file.split(limit);
    }
    quantize::make(&plan, &arguments.output, arguments.threads, arguments.resume)
}

//! `hadal inspect`: what is in a model file, also in one that we cannot run.

use std::io::{Write, stdout};

use super::hub::ModelName;

mod json;
mod report;
mod text;

use report::Report;

/// Show what a model file holds: formats, metadata, tensors
#[derive(Debug, clap::Args)]
pub struct Inspect {
    /// A GGUF file (any part of a split one), a Hugging Face folder, or OWNER/NAME:QUANT of what was pulled
    file: ModelName,

    /// List every tensor; in shapes the contiguous dimension is last
    #[arg(long)]
    tensors: bool,

    /// Print one JSON object with everything, tensors included
    #[arg(long)]
    json: bool,

    /// Do not shorten long texts and arrays
    #[arg(long)]
    full: bool,
}

/// Prints the contents of `args.file`.
pub fn inspect(args: &Inspect) -> anyhow::Result<()> {
    let weights = args.file.weights()?;
    let report = Report::new(&weights);
    let output = if args.json {
        let object = json::object(&report, &weights, args.full);
        format!("{}\n", serde_json::to_string_pretty(&object)?)
    } else {
        text::page(&report, &weights, args.full, args.tensors)
    };
    Ok(stdout().write_all(output.as_bytes())?)
}

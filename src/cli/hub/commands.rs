//! The commands.

use std::io::{Write, stdout};

use anyhow::bail;
use clap::Args;
use hadal::Error;
use hadal::engine::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};

use super::cache::Cache;
use super::download::Hub;
use super::{Reference, choose};
use crate::cli::interrupt::{self, Guard};
use crate::cli::table::{escaped, grouped, table};

/// Download a model from a hub, to be run with -m OWNER/NAME:QUANT
#[derive(Args, Debug)]
#[command(
    after_help = "Environment: HF_ENDPOINT (the hub), HF_TOKEN (for models that need one), HF_HOME or HF_HUB_CACHE \
    (where models are kept, shared with other programs)"
)]
pub struct Pull {
    /// The model: OWNER/NAME, or OWNER/NAME:QUANT for the GGUF file with that in its name
    #[arg(value_name = "MODEL")]
    model: Reference,

    /// Branch, tag or commit
    #[arg(long, value_name = "NAME", default_value = "main")]
    revision: String,
}

/// List the models that were pulled
#[derive(Args, Debug)]
pub struct List {}

/// Remove a model that was pulled
#[derive(Args, Debug)]
pub struct Remove {
    /// The model: OWNER/NAME for all of it, or OWNER/NAME:QUANT for one file
    #[arg(value_name = "MODEL")]
    model: Reference,
}

fn cache() -> anyhow::Result<Cache> {
    match Cache::open() {
        Some(cache) => Ok(cache),
        None => bail!("no folder for models: set HF_HOME"),
    }
}

/// Brings what is missing, and prints where the model is.
pub fn pull(arguments: &Pull) -> anyhow::Result<()> {
    let Pull { model, revision } = arguments;
    if !super::is_inside(revision) {
        return Err(Error::option("--revision", format!("{revision:?} is no branch, tag or commit")).into());
    }
    let (cache, hub) = (cache()?, Hub::new());
    let (commit, files) = hub.files(&model.repo, revision)?;
    let wanted = match choose(&files, model.quant.as_deref()) {
        Ok(wanted) => wanted,
        Err(message) => bail!("{} {message}", model.repo),
    };
    interrupt::listen()?;
    let stop = Interrupt::default();
    let guard = Guard::new(stop.clone());
    let blobs = cache.repo(&model.repo).join("blobs");
    std::fs::create_dir_all(&blobs).map_err(|error| Error::io(&blobs, error))?;
    let mut paths = Vec::new();
    for file in &wanted {
        let remote = hub.describe(&model.repo, &commit, file)?;
        let blob = blobs.join(&remote.hash);
        if !blob.exists() {
            let progress = ProgressBar::new(remote.bytes);
            let style = "{msg:28!} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
            progress.set_style(ProgressStyle::with_template(style)?);
            progress.set_message(escaped(file));
            hub.fetch(&remote, &blob, &progress, &stop)?;
            progress.finish_and_clear();
        }
        paths.push(cache.link(&model.repo, &commit, file, &remote.hash)?);
    }
    drop(guard);
    cache.set(&model.repo, revision, &commit)?;
    let lines: String = paths.iter().map(|path| format!("{}\n", path.display())).collect();
    Ok(stdout().write_all(lines.as_bytes())?)
}

/// A line a file.
pub fn list() -> anyhow::Result<()> {
    let mut rows = vec![["model", "file", "bytes"].map(String::from).to_vec()];
    let files = Cache::open().map(|cache| cache.all()).unwrap_or_default();
    rows.extend(files.iter().map(|file| vec![escaped(&file.repo), escaped(&file.file), grouped(file.bytes)]));
    Ok(stdout().write_all(table(&rows, &[2]).as_bytes())?)
}

/// Removes, and prints what.
pub fn remove(arguments: &Remove) -> anyhow::Result<()> {
    let removed = cache()?.remove(&arguments.model)?;
    let lines: String = removed.iter().map(|name| format!("removed {}\n", escaped(name))).collect();
    Ok(stdout().write_all(lines.as_bytes())?)
}

//! `hadal embed`: texts as vectors.

use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use hadal::Error;
use hadal::embed::{Embedder, Pooling};
use serde_json::json;

use super::hub::ModelName;
use super::value;

/// Turn texts into vectors with an embedding model
#[derive(Args, Debug)]
pub struct Embed {
    /// Texts; without any, each line of --file or standard input is one
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    texts: Vec<String>,

    /// Each line of FILE is a text
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// The folder of an embedding model, MiniLM or EmbeddingGemma, or OWNER/NAME of what was pulled
    #[arg(short, long, env = "HADAL_MODEL", value_name = "FOLDER")]
    model: ModelName,

    /// How the rows of tokens become one [default: as the folder says]
    #[arg(long, value_enum)]
    pooling: Option<Kind>,

    /// Leave vectors as long as they are; otherwise their length is 1
    #[arg(long)]
    no_normalize: bool,

    /// numbers, a line a text; or json: [{"text", "tokens", "embedding"}]
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,

    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = value::count)]
    threads: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Mean,
    Cls,
    Last,
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Prints a vector for each text.
pub fn embed(arguments: &Embed) -> anyhow::Result<()> {
    let texts = arguments.texts()?;
    let embedder = Embedder::open(&arguments.model.path()?, arguments.threads)?;
    let pooling = match arguments.pooling {
        None => embedder.pooling(),
        Some(Kind::Mean) => Pooling::Mean,
        Some(Kind::Cls) => Pooling::Cls,
        Some(Kind::Last) => Pooling::Last,
        Some(Kind::Max) => Pooling::Max,
    };
    let mut list = Vec::new();
    for text in &texts {
        let vector = embedder.embed(text, pooling, !arguments.no_normalize)?;
        if arguments.output == Output::Json {
            let tokens = embedder.tokens(text)?.len();
            list.push(json!({"text": text, "tokens": tokens, "embedding": vector}));
        } else {
            let numbers: Vec<_> = vector.iter().map(f32::to_string).collect();
            writeln!(stdout(), "{}", numbers.join(" "))?;
        }
    }
    if arguments.output == Output::Json {
        writeln!(stdout(), "{}", serde_json::to_string(&list)?)?;
    }
    Ok(())
}

impl Embed {
    fn texts(&self) -> anyhow::Result<Vec<String>> {
        if !self.texts.is_empty() {
            return Ok(self.texts.clone());
        }
        let mut text = String::new();
        match &self.file {
            Some(path) => text = std::fs::read_to_string(path).map_err(|source| Error::io(path, source))?,
            None if stdin().is_terminal() => {
                bail!("no text: give texts as arguments, with --file FILE, or on standard input")
            }
            None => {
                stdin().read_to_string(&mut text).map_err(|source| Error::io("standard input", source))?;
            }
        }
        Ok(text.lines().map(str::to_owned).collect())
    }
}

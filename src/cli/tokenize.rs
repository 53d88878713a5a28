//! `hadal tokenize`: text to tokens, and back.

use std::fmt::Write as _;
use std::io::{Write, stdout};

use anyhow::{anyhow, bail};
use clap::Args;
use hadal::engine::{Engine, Options};
use hadal::tokenizer::{Special, Tokenizer};
use serde_json::{Value, json};

use super::model::FileArgs;
use super::prompt::PromptArgs;

/// Show the tokens of a text
#[derive(Args, Debug)]
pub struct Tokenize {
    #[command(flatten)]
    prompt: PromptArgs,

    /// Print ids only, on one line
    #[arg(long)]
    ids: bool,

    /// Print a JSON array of {"id", "piece"}; a piece that is no UTF-8 is an array of bytes
    #[arg(long, conflicts_with = "ids")]
    json: bool,

    /// Leave out the tokens that begin and end every text
    #[arg(long)]
    no_bos: bool,

    /// Read control tokens, such as <|im_start|>, as such
    #[arg(long)]
    special: bool,

    /// The text is token ids, "1 2 3": print what they mean
    #[arg(long, conflicts_with_all = ["ids", "json", "no_bos", "special"])]
    decode: bool,

    #[command(flatten)]
    file: FileArgs,
}

/// Prints tokens, or text with `--decode`.
pub fn tokenize(arguments: &Tokenize) -> anyhow::Result<()> {
    let text = arguments.prompt.read(false)?;
    // Only the tokenizer is read, so that files with models we cannot run can be looked into.
    let (engine, own);
    let tokenizer = match &arguments.file.model {
        Some(model) => {
            own = Tokenizer::from_weights(&model.weights()?)?;
            &own
        }
        None => {
            engine = Engine::embedded(&Options::default())?;
            engine.tokenizer()
        }
    };
    let output =
        if arguments.decode { decode(tokenizer, &text)? } else { arguments.encode(tokenizer, &text)? };
    stdout().write_all(output.as_bytes())?;
    Ok(())
}

impl Tokenize {
    fn encode(&self, tokenizer: &Tokenizer, text: &str) -> anyhow::Result<String> {
        let special = if self.special { Special::Parse } else { Special::Text };
        let ids = if self.no_bos {
            tokenizer.encode(text, special)?
        } else {
            tokenizer.encode_prompt(text, special)?
        };
        if self.ids {
            let ids: Vec<_> = ids.iter().map(u32::to_string).collect();
            return Ok(ids.join(" ") + "\n");
        }
        let pieces = ids.iter().map(|&id| (id, tokenizer.piece(id, true)));
        if self.json {
            let list: Vec<Value> =
                pieces.map(|(id, piece)| json!({"id": id, "piece": json_piece(piece)})).collect();
            return Ok(serde_json::to_string_pretty(&list)? + "\n");
        }
        let mut lines = String::new();
        for (id, piece) in pieces {
            match std::str::from_utf8(piece) {
                Ok(text) => writeln!(lines, "{id:>7} {text:?}")?,
                Err(_) => writeln!(lines, "{id:>7} \"{}\"", piece.escape_ascii())?,
            }
        }
        Ok(lines)
    }
}

fn json_piece(piece: &[u8]) -> Value {
    std::str::from_utf8(piece).map_or_else(|_| json!(piece), |text| json!(text))
}

/// The text of ids that are separated by spaces or commas.
fn decode(tokenizer: &Tokenizer, text: &str) -> anyhow::Result<String> {
    let ids = text.split([' ', ',', '\n', '\t', '[', ']']).filter(|word| !word.is_empty());
    let ids = ids.map(|word| word.parse::<u32>().map_err(|_| anyhow!("--decode: {word:?} is no token id")));
    let ids = ids.collect::<anyhow::Result<Vec<u32>>>()?;
    let vocab = tokenizer.vocab_len();
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
        bail!("--decode: token {id} does not exist, the vocabulary has {vocab} tokens");
    }
    Ok(tokenizer.decode_with(&ids, true) + "\n")
}

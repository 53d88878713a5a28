//! Where a command's text comes from: an argument, a file or standard input.

use std::io::{IsTerminal, Read, stdin};
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use hadal::Error;

use super::value;

/// Flags for commands that take a text.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub struct PromptArgs {
    /// The text; -: standard input, which is also read when it is no terminal
    #[arg(value_name = "TEXT")]
    text: Option<String>,

    /// The text
    #[arg(short, long = "prompt", value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,

    /// Reads the text from FILE; one newline at its end is dropped
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl PromptArgs {
    /// The text, exactly as given; with `escape`, C escapes such as `\n` are replaced.
    pub fn read(&self, escape: bool) -> anyhow::Result<String> {
        let text = match (self.text.as_deref().or(self.prompt.as_deref()), &self.file) {
            (Some("-"), _) => standard_input()?,
            (Some(text), _) => text.to_owned(),
            (None, Some(path)) => {
                without_newline(std::fs::read_to_string(path).map_err(|source| Error::io(path, source))?)
            }
            (None, None) if stdin().is_terminal() => {
                bail!("no text: give one as an argument, with --file FILE, or on standard input")
            }
            (None, None) => standard_input()?,
        };
        Ok(if escape { value::escaped(&text) } else { text })
    }
}

fn standard_input() -> anyhow::Result<String> {
    let mut text = String::new();
    stdin().read_to_string(&mut text).map_err(|source| Error::io("standard input", source))?;
    Ok(without_newline(text))
}

/// Editors and `echo` end a text with a newline that nobody meant.
fn without_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

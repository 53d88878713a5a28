//! What the user types: lines edited in a terminal, with a history that is kept, or plain lines from a pipe.

use std::io::{BufRead, IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};

use hadal::Error;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

/// A message or a command, or none any more.
#[derive(Debug, PartialEq)]
pub enum Entry {
    Text(String),
    End,
}

/// Where entries come from.
pub enum Input {
    Terminal { editor: Box<DefaultEditor>, history: Option<PathBuf> },
    Pipe,
}

impl Input {
    /// The terminal, if there is one on both sides.
    pub fn new() -> anyhow::Result<Self> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Ok(Input::Pipe);
        }
        let mut editor = Box::new(DefaultEditor::new()?);
        let history = data_folder(std::env::consts::OS, |name| std::env::var_os(name).map(PathBuf::from))
            .map(|folder| folder.join("history"));
        if let Some(path) = &history {
            // There is none the first time, and a chat without history is still a chat.
            let _ = editor.load_history(path);
        }
        Ok(Input::Terminal { editor, history })
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal { .. })
    }

    /// The next entry. A line that ends with a backslash is joined with the next one.
    pub fn read(&mut self) -> anyhow::Result<Entry> {
        let mut text = String::new();
        let mut interrupts = 0;
        loop {
            let prompt = if text.is_empty() { "> " } else { "… " };
            match self.line(prompt)? {
                Line::Text(line) => {
                    interrupts = 0;
                    match line.strip_suffix('\\') {
                        Some(line) => text = text + line + "\n",
                        None => return Ok(Entry::Text(self.remember(text + &line))),
                    }
                }
                Line::Interrupted if interrupts == 0 => {
                    interrupts += 1;
                    text.clear();
                    super::tell("Ctrl-C again or Ctrl-D leaves");
                }
                Line::End if !text.is_empty() => return Ok(Entry::Text(text)),
                Line::Interrupted | Line::End => return Ok(Entry::End),
            }
        }
    }

    fn line(&mut self, prompt: &str) -> anyhow::Result<Line> {
        match self {
            Input::Terminal { editor, .. } => match editor.readline(prompt) {
                Ok(line) => Ok(Line::Text(line)),
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(error) => Err(error.into()),
            },
            Input::Pipe => {
                let mut line = String::new();
                let bytes = stdin()
                    .lock()
                    .read_line(&mut line)
                    .map_err(|source| Error::io("standard input", source))?;
                if bytes == 0 {
                    return Ok(Line::End);
                }
                Ok(Line::Text(line.trim_end_matches(['\n', '\r']).to_owned()))
            }
        }
    }

    /// Adds the entry to the history.
    fn remember(&mut self, text: String) -> String {
        if let Input::Terminal { editor, .. } = self
            && let Err(error) = editor.add_history_entry(&text)
        {
            tracing::debug!(%error, "the line is not kept in the history");
        }
        text
    }

    /// Writes the history.
    pub fn finish(&mut self) {
        if let Input::Terminal { editor, history: Some(path) } = self
            && let Err(error) = save(editor, path)
        {
            tracing::warn!(%error, path = %path.display(), "the history is not kept");
        }
    }
}

enum Line {
    Text(String),
    Interrupted,
    End,
}

fn save(editor: &mut DefaultEditor, path: &Path) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    Ok(editor.save_history(path)?)
}

/// The folder for files that the program keeps for its user, by each system's convention; `None` if the environment
/// doesn't tell. Relative paths are ignored, as the XDG base directory specification demands.
fn data_folder(system: &str, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.has_root());
    let base = match system {
        "windows" => absolute("APPDATA")?,
        "macos" => absolute("HOME")?.join("Library/Application Support"),
        _ => absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?,
    };
    Some(base.join("hadal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_folder_follows_the_system() {
        type Variables = &'static [(&'static str, &'static str)];
        let cases: [(&str, Variables, Option<&str>); 8] = [
            ("linux", &[("HOME", "/home/jane"), ("XDG_DATA_HOME", "/data")], Some("/data/hadal")),
            (
                "linux",
                &[("HOME", "/home/jane"), ("XDG_DATA_HOME", "data")],
                Some("/home/jane/.local/share/hadal"),
            ),
            (
                "linux",
                &[("HOME", "/home/jane"), ("XDG_DATA_HOME", "")],
                Some("/home/jane/.local/share/hadal"),
            ),
            ("freebsd", &[("HOME", "/home/jane")], Some("/home/jane/.local/share/hadal")),
            ("macos", &[("HOME", "/Users/jane")], Some("/Users/jane/Library/Application Support/hadal")),
            ("windows", &[("APPDATA", "/Users/jane/AppData")], Some("/Users/jane/AppData/hadal")),
            ("windows", &[("HOME", "/Users/jane")], None),
            ("linux", &[], None),
        ];
        let failures: Vec<_> = cases
            .iter()
            .filter_map(|(system, variables, expected)| {
                let value = |name: &str| {
                    variables.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value))
                };
                let found = data_folder(system, value);
                (found != expected.map(PathBuf::from)).then(|| format!("{system} {variables:?}: {found:?}"))
            })
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

//! What the user types: lines edited in a terminal, with a history that is kept, or plain lines from a pipe.

use std::io::{BufRead, IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};

use hadal::Error;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::cli::folder;

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
        let history = folder::data().map(|folder| folder.join("history"));
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

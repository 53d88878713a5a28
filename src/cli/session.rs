//! `--session`: what was said, and what the model computed for it, in a file from one run to the next.

use std::io::{Write, stderr};
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use hadal::engine::Engine;
use hadal::template::Message;
use serde::{Deserialize, Serialize};

/// The flag that keeps a conversation.
#[derive(Args, Debug)]
pub struct SessionArgs {
    /// Go on with the conversation in FILE, if it is there, and keep it there: nothing of it is computed again
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
}

/// What was said.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Talk {
    /// Of a chat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// Of a text that is continued: all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl SessionArgs {
    /// What was said before; nothing without a file.
    pub fn load(&self, engine: &mut Engine) -> anyhow::Result<Talk> {
        let Some(path) = self.session.as_deref().filter(|path| path.exists()) else {
            return Ok(Talk::default());
        };
        let note = engine.load_session(path)?;
        let talk = serde_json::from_str(&note)
            .map_err(|error| anyhow!("{}: no conversation of this program: {error}", path.display()))?;
        let _ = writeln!(stderr(), "{}: {} tokens", path.display(), engine.position());
        Ok(talk)
    }

    /// Keeps what was said.
    pub fn save(&self, engine: &Engine, talk: &Talk) -> anyhow::Result<()> {
        if let Some(path) = &self.session {
            engine.save_session(path, &serde_json::to_string(talk)?)?;
        }
        Ok(())
    }
}

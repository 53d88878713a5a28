//! A conversation as a file: a JSON array of `{"role", "content"}`, and whatever else a message has.

use std::fs;
use std::path::Path;

use anyhow::anyhow;
use hadal::Error;
use hadal::file::output;
use hadal::template::Message;

/// Writes `messages` to `path`. The file is complete or as it was before, whatever happens.
pub fn save(path: &Path, messages: &[Message]) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(messages)? + "\n";
    output::write(path, text.as_bytes())?;
    Ok(())
}

/// Reads the messages in `path`.
pub fn load(path: &Path) -> anyhow::Result<Vec<Message>> {
    let text = fs::read_to_string(path).map_err(|source| Error::io(path, source))?;
    serde_json::from_str(&text).map_err(|error| {
        anyhow!("{}: not a JSON array of messages, as /save writes it: {error}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_conversation_is_loaded_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.json");
        let messages = [Message::system("Be \"terse\"."), Message::user("Hé?\n"), Message::assistant("")];
        save(&path, &messages[..1]).unwrap();
        save(&path, &messages).unwrap();
        let found = load(&path).unwrap();
        assert_eq!(found, messages);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the file");
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.json");
        let cases = [
            ("", "EOF"),
            ("{}", "expected a sequence"),
            (r#"[{"role":"user"}]"#, "missing field `content`"),
            (r#"[{"role":7,"content":"a"}]"#, "expected a string"),
            ("[3]", "expected struct Message"),
        ];
        let mut failures = Vec::new();
        for (text, expected) in cases {
            fs::write(&path, text).unwrap();
            match load(&path) {
                Err(error) if error.to_string().contains(expected) => {}
                other => failures.push(format!("{text}: {other:?}")),
            }
        }
        assert!(load(&folder.path().join("absent")).is_err());
        assert!(save(&folder.path().join("absent/talk.json"), &[]).is_err());
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

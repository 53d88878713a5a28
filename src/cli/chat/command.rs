//! The commands of a chat: a table, from which the help is printed too.

use std::path::PathBuf;

/// What a line that begins with `/` asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Help,
    Exit,
    Clear,
    Regenerate,
    Undo,
    System(String),
    Set(String, String),
    Save(PathBuf),
    Load(PathBuf),
    Stats,
}

/// A row of the table.
pub struct Row {
    names: &'static [&'static str],
    /// What follows the name; empty if nothing does.
    argument: &'static str,
    help: &'static str,
    /// `None` if the argument is not as it should be.
    make: fn(&str) -> Option<Command>,
}

/// A command without argument.
fn bare(argument: &str, command: Command) -> Option<Command> {
    argument.is_empty().then_some(command)
}

fn path(argument: &str) -> Option<PathBuf> {
    (!argument.is_empty()).then(|| PathBuf::from(argument))
}

/// Every command.
pub static COMMANDS: &[Row] = &[
    Row {
        names: &["/help"],
        argument: "",
        help: "list the commands",
        make: |text| bare(text, Command::Help),
    },
    Row {
        names: &["/exit", "/quit"],
        argument: "",
        help: "leave (also Ctrl-D)",
        make: |text| bare(text, Command::Exit),
    },
    Row {
        names: &["/clear"],
        argument: "",
        help: "forget the conversation",
        make: |text| bare(text, Command::Clear),
    },
    Row {
        names: &["/regen"],
        argument: "",
        help: "answer the last message anew",
        make: |text| bare(text, Command::Regenerate),
    },
    Row {
        names: &["/undo"],
        argument: "",
        help: "take the last message and its answer back",
        make: |text| bare(text, Command::Undo),
    },
    Row {
        names: &["/system"],
        argument: "TEXT",
        help: "what the model is told first; without TEXT nothing",
        make: |text| Some(Command::System(text.to_owned())),
    },
    Row {
        names: &["/set"],
        argument: "NAME VALUE",
        help: "change a sampling flag, like /set temp 0.5",
        make: |text| {
            let (name, value) = text.split_once(char::is_whitespace)?;
            Some(Command::Set(name.to_owned(), value.trim().to_owned()))
        },
    },
    Row {
        names: &["/save"],
        argument: "FILE",
        help: "write the conversation as JSON",
        make: |text| path(text).map(Command::Save),
    },
    Row {
        names: &["/load"],
        argument: "FILE",
        help: "go on with a saved conversation",
        make: |text| path(text).map(Command::Load),
    },
    Row {
        names: &["/stats"],
        argument: "",
        help: "what the last answer took",
        make: |text| bare(text, Command::Stats),
    },
];

/// The command in `line`, if it begins with one `/`; or what is wrong with it.
pub fn parse(line: &str) -> Result<Option<Command>, String> {
    let line = line.trim();
    if !line.starts_with('/') || line.starts_with("//") {
        return Ok(None);
    }
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let row = COMMANDS.iter().find(|row| row.names.contains(&name));
    let row = row.ok_or_else(|| format!("{name} is no command; /help lists them, //text sends /text"))?;
    match (row.make)(argument.trim()) {
        Some(command) => Ok(Some(command)),
        None if row.argument.is_empty() => Err(format!("{name} takes nothing after it")),
        None => Err(format!("{name} needs {}", row.argument)),
    }
}

/// A message whose first character is a slash is typed with two.
pub fn unescaped(text: &str) -> &str {
    if text.starts_with("//") { &text[1..] } else { text }
}

/// One line a command.
pub fn help() -> String {
    let line =
        |row: &Row| format!("{:<20} {}", format!("{} {}", row.names.join(", "), row.argument), row.help);
    let mut lines: Vec<String> = COMMANDS.iter().map(line).collect();
    lines.push("A line that ends with \\ goes on in the next. Ctrl-C stops an answer.".into());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_or_refused() {
        let none: Result<Option<Command>, &str> = Ok(None);
        let some = |command| Ok(Some(command));
        let cases = [
            ("hello", none.clone()),
            ("", none.clone()),
            ("//etc/hosts", none.clone()),
            ("and/or", none),
            ("/help", some(Command::Help)),
            (" /exit ", some(Command::Exit)),
            ("/quit", some(Command::Exit)),
            ("/clear", some(Command::Clear)),
            ("/regen", some(Command::Regenerate)),
            ("/undo", some(Command::Undo)),
            ("/stats", some(Command::Stats)),
            ("/system Be  terse.", some(Command::System("Be  terse.".into()))),
            ("/system", some(Command::System(String::new()))),
            ("/set temp 0.5", some(Command::Set("temp".into(), "0.5".into()))),
            ("/set stop  a b", some(Command::Set("stop".into(), "a b".into()))),
            ("/save a b.json", some(Command::Save("a b.json".into()))),
            ("/load x", some(Command::Load("x".into()))),
            ("/set temp", Err("/set needs NAME VALUE")),
            ("/save", Err("/save needs FILE")),
            ("/load", Err("/load needs FILE")),
            ("/clear all", Err("/clear takes nothing after it")),
            ("/nope", Err("/nope is no command; /help lists them, //text sends /text")),
        ];
        let failures: Vec<_> = cases
            .into_iter()
            .filter_map(|(line, expected)| {
                let found = parse(line);
                (found != expected.map_err(String::from)).then(|| format!("{line:?}: {found:?}"))
            })
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }

    #[test]
    fn help_names_every_command() {
        for name in COMMANDS.iter().flat_map(|row| row.names) {
            assert!(help().contains(name), "{name}");
        }
        assert_eq!(unescaped("//etc"), "/etc");
    }
}

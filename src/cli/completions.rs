//! `hadal completions`: a script that teaches a shell the commands and flags.

use std::io::{Write, stdout};

use clap::Args;
use clap_complete::Shell;

/// Print a completion script for a shell
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Prints the script for `program`.
pub fn completions(arguments: &Completions, program: &mut clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, program, "hadal", &mut script);
    stdout().write_all(&script)?;
    Ok(())
}

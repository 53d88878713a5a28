//! The `hadal` program: reads the command line, runs one command, reports how it ended.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::main()
}

//! The `hadal` program: reads the command line and runs one command.

use clap::Parser;

mod cli;

/// Runs quantized language models: one file, the same answers on every CPU.
#[derive(Parser)]
#[command(name = "hadal", version)]
enum Program {
    Inspect(cli::inspect::Inspect),
}

fn main() -> anyhow::Result<()> {
    let Program::Inspect(inspect) = Program::parse();
    cli::inspect::inspect(&inspect)
}

//! `hadal eval`: measures how good a model is.

use clap::{Args, Subcommand};

mod kv;

/// Measure how good a model is
#[derive(Args, Debug)]
pub struct Eval {
    #[command(subcommand)]
    instrument: Instrument,
}

#[derive(Debug, Subcommand)]
enum Instrument {
    Kv(kv::Kv),
}

/// Runs an instrument.
pub fn eval(arguments: &Eval) -> anyhow::Result<()> {
    match &arguments.instrument {
        Instrument::Kv(kv) => kv::kv(kv),
    }
}

//! `hadal formats`: the table of weight formats.

use std::io::{Write, stdout};

use clap::Args;
use hadal::quant::FORMATS;

/// List the weight formats
#[derive(Args, Debug)]
pub struct Formats {}

/// Prints one line a format.
pub fn formats() -> anyhow::Result<()> {
    let mut table = line("format", "bits/weight", "block", "encodes", "input", "fastest code");
    for format in FORMATS {
        let dot = format.dot.as_ref();
        table += &line(
            format.name,
            &format!("{:.4}", format.bits_per_weight()),
            &format.block_len.to_string(),
            if format.has_encoder() { "yes" } else { "no" },
            dot.map_or("-", |dot| dot.input.name),
            dot.and_then(|dot| dot.arms.last()).map_or("-", |arm| arm.isa.name()),
        );
    }
    table += "\nencodes: hadal can make it; input: what a vector is rounded to before it is multiplied with such weights\n";
    stdout().write_all(table.as_bytes())?;
    Ok(())
}

fn line(name: &str, bits: &str, block: &str, encodes: &str, input: &str, isa: &str) -> String {
    format!("{name:<14}{bits:>12}{block:>7}  {encodes:<9}{input:<7}{isa}\n")
}

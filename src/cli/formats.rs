//! `hadal formats`: the tables of weight formats and of what caches store.

use std::io::{Write, stdout};

use clap::Args;
use hadal::cache::KINDS;
use hadal::quant::FORMATS;

/// List the weight formats, and the kinds of caches that --kv takes
#[derive(Args, Debug)]
pub struct Formats {}

/// Prints one line a format, then one a kind of cache.
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
    table += "\ncache       bits of keys, of values\n";
    for kind in KINDS {
        let bits = |store: Option<hadal::cache::Store>| {
            store.map_or("-".into(), |store| format!("{:.2}", store.format.bits_per_weight()))
        };
        let (keys, values) = (bits(kind.keys), bits(kind.values));
        table += &format!("{:<12}{keys:>12}{values:>11}  {}\n", kind.name, kind.about);
    }
    table += "\n--kv takes one of these, KEYS/VALUES, turbo (turbo8/turbo3) or turbo:kXvY\n";
    stdout().write_all(table.as_bytes())?;
    Ok(())
}

fn line(name: &str, bits: &str, block: &str, encodes: &str, input: &str, isa: &str) -> String {
    format!("{name:<14}{bits:>12}{block:>7}  {encodes:<9}{input:<7}{isa}\n")
}

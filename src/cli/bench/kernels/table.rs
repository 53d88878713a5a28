//! The results of the kernel bench.

use std::fmt::Write as _;
use std::io::{Write, stdout};

use serde::Serialize;

use crate::cli::bench::report::Spread;

/// One product of one format in one instruction set.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub format: &'static str,
    pub isa: &'static str,
    /// How the weights are laid out for this product.
    pub pack: &'static str,
    pub phase: &'static str,
    pub threads: usize,
    /// Rows of activations: tokens.
    pub rows: usize,
    /// Outputs: rows of the weights' matrix.
    pub n: usize,
    /// Inputs: its columns.
    pub k: usize,
    /// 10⁹ bytes of weights that are multiplied in a second.
    pub gbytes_per_second: Spread,
    /// 10⁹ multiplications and additions in a second.
    pub gmacs_per_second: Spread,
    /// 10⁹ bytes that as many threads read from memory in a second.
    pub read_gbytes_per_second: f64,
    /// The best speed over that; `None` if the weights may come from a cache.
    pub share_of_bandwidth: Option<f64>,
    /// The median speed over that of the row that this one was compared with.
    pub ratio: Option<f64>,
}

/// Prints a table for people; the ratio only where two were compared.
pub fn print_markdown(rows: &[Row]) -> anyhow::Result<()> {
    let comparing = rows.iter().any(|row| row.ratio.is_some());
    let mut text = String::from(
        "| format | isa | pack | phase | threads | rows | n x k | GB/s | best | GMAC/s | of memory |",
    );
    text += if comparing { " ratio |\n" } else { "\n" };
    text += "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";
    text += if comparing { " ---: |\n" } else { "\n" };
    for row in rows {
        let Row { format, isa, pack, phase, threads, rows, n, k, .. } = row;
        let (bytes, macs) = (row.gbytes_per_second, row.gmacs_per_second);
        let share = row.share_of_bandwidth.map_or("-".into(), |share| format!("{:.0}%", 100.0 * share));
        write!(text, "| {format} | {isa} | {pack} | {phase} | {threads} | {rows} | {n} x {k} ")?;
        write!(text, "| {:.2} | {:.2} | {:.2} | {share} |", bytes.median, bytes.max, macs.median)?;
        if let Some(ratio) = row.ratio {
            write!(text, " {ratio:.2} |")?;
        }
        text += "\n";
    }
    text += "\nGB/s of weights and GMAC/s: median";
    let mut told = None;
    for row in rows.iter().filter(|row| told.replace(row.threads) != Some(row.threads)) {
        write!(text, "; memory with {} threads: {:.2} GB/s", row.threads, row.read_gbytes_per_second)?;
    }
    text += "\n";
    stdout().write_all(text.as_bytes())?;
    Ok(())
}

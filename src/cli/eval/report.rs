//! `hadal eval report`: results of several models in a table and a picture, as a page.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use hadal::Error;
use hadal::file::output;
use serde_json::Value;

use super::plot::{Point, svg};
use crate::cli::table::table;

/// Put results of several models together, as a table and as a page with a plot
#[derive(Args, Debug)]
pub struct Report {
    /// What `eval kl --output json` printed, a file a model
    #[arg(required = true)]
    results: Vec<PathBuf>,

    /// Write a page with the divergence against bits per weight
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Columns: a figure's name, and its heading.
const COLUMNS: &[(&str, &str)] = &[
    ("bits_per_weight", "bits per weight"),
    ("mean_kl", "mean KL"),
    ("median_kl", "median"),
    ("p99_kl", "99 % below"),
    ("top1_agreement", "same first token"),
];

/// Prints the table, and writes the page if one is asked for.
pub fn report(arguments: &Report) -> anyhow::Result<()> {
    let results = arguments.results.iter().map(|path| read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let headings = COLUMNS.iter().map(|(_, heading)| *heading);
    let mut rows = vec![std::iter::once("model").chain(headings).map(String::from).collect::<Vec<_>>()];
    for (name, figures) in &results {
        let cells = figures.iter().map(|figure| format!("{figure:.5}"));
        rows.push(std::iter::once(name.clone()).chain(cells).collect());
    }
    if let Some(path) = &arguments.html {
        output::write(path, page(&rows, &results).as_bytes())?;
    }
    Ok(stdout().write_all(table(&rows, &[1, 2, 3, 4, 5]).as_bytes())?)
}

/// The file's name, and a figure for each column.
fn read(path: &Path) -> anyhow::Result<(String, Vec<f64>)> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let found: Value = serde_json::from_str(&text).with_context(|| format!("{}: no JSON", path.display()))?;
    let figure = |(name, _): &(&str, &str)| {
        let message = format!("has no {name}: it is to be what `eval kl --output json` printed");
        found.get(name).and_then(Value::as_f64).ok_or(Error::File { path: path.into(), message })
    };
    let figures = COLUMNS.iter().map(figure).collect::<Result<_, _>>()?;
    Ok((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), figures))
}

fn page(rows: &[Vec<String>], results: &[(String, Vec<f64>)]) -> String {
    let point =
        |(name, figures): &(String, Vec<f64>)| Point { name: name.clone(), x: figures[0], y: figures[1] };
    let points: Vec<_> = results.iter().map(point).filter(|point| point.y > 0.0).collect();
    let mut page =
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Divergence</title>\n<style>body { font-family: \
        sans-serif; max-width: 60em; margin: auto } td, th { text-align: right; padding: 0 0.7em }</style>\n"
            .to_owned();
    page += &svg("mean KL (nats) against bits per weight", &points);
    page += "<table>\n";
    for (index, row) in rows.iter().enumerate() {
        let tag = if index == 0 { "th" } else { "td" };
        let cell =
            |cell: &String| format!("<{tag}>{}</{tag}>", cell.replace('&', "&amp;").replace('<', "&lt;"));
        let _ = writeln!(page, "<tr>{}</tr>", row.iter().map(cell).collect::<String>());
    }
    page + "</table>\n"
}

//! The page that `inspect` prints for people: figures, formats, metadata, tensors, in columns.

use std::fmt::Write;

use hadal::file::metadata::{Array, Value};
use hadal::file::{Entry, Weights};

use super::json::shortest;
use super::report::{Report, Usage, stored_bytes};
use crate::cli::fit;
use crate::cli::table::{Row, escaped, grouped, table};

/// Characters of a text, and elements of an array, before it is cut.
const LONGEST_TEXT: usize = 80;
const LONGEST_ARRAY: usize = 6;

/// The whole page.
pub fn page(report: &Report, weights: &Weights, full: bool, tensors: bool) -> String {
    let mut page = table(&facts(report, weights, full), &[]);
    let _ = write!(page, "\n{}", table(&formats(report), &[1, 2, 3, 4]));
    if !report.caches.is_empty() {
        let _ = write!(page, "\n{}", table(&caches(report), &[1, 2]));
    }
    let _ = writeln!(page, "\nmetadata ({} keys)", weights.metadata.0.len());
    page += &table(&metadata(weights, full), &[]);
    if tensors {
        let _ = writeln!(page, "\ntensors ({})", weights.tensors.len());
        page += &table(&tensor_rows(weights, full), &[3, 4, 5]);
    }
    page
}

fn facts(report: &Report, weights: &Weights, full: bool) -> Vec<Row> {
    let row = |caption: &str, text: String| vec![caption.to_owned(), text];
    let mut rows = vec![row("file", escaped(&weights.path.display().to_string()))];
    rows.extend(report.facts.iter().map(|(caption, _, fact)| row(caption, value(fact, full))));
    let count = scaled(report.weights, &[(1e9, "billion"), (1e6, "million")]);
    rows.push(row("parameters", grouped(report.weights) + &count));
    let size = scaled(report.file_bytes, &[(1e9, "GB"), (1e6, "MB")]);
    rows.push(row("size", format!("{} bytes{size}", grouped(report.file_bytes))));
    if weights.parts.len() > 1 {
        let part = |(index, part): (usize, &hadal::file::Part)| {
            row(
                &format!("part {index}"),
                format!("{} bytes {}", grouped(part.bytes), escaped(&part.path.display().to_string())),
            )
        };
        rows.extend(weights.parts.iter().enumerate().map(part));
    }
    rows
}

fn formats(report: &Report) -> Vec<Row> {
    let mut rows =
        vec![["format", "tensors", "weights", "bytes", "bits per weight"].map(String::from).to_vec()];
    rows.extend(report.formats.iter().map(usage));
    rows.push(usage(&report.total()));
    rows
}

fn caches(report: &Report) -> Vec<Row> {
    let mut rows = vec![["cache", "bits", "bytes per token"].map(String::from).to_vec()];
    let row = |cache: &fit::Row| {
        vec![cache.cache.clone(), format!("{:.2}", cache.bits), grouped(cache.token_bytes)]
    };
    rows.extend(report.caches.iter().map(row));
    rows
}

fn usage(usage: &Usage) -> Row {
    let unknown = || "?".to_owned();
    vec![
        usage.type_name.clone(),
        grouped(usage.tensors),
        grouped(usage.weights),
        usage.bytes.map_or_else(unknown, grouped),
        usage.bits_per_weight().map_or_else(unknown, |bits| format!("{bits:.3}")),
    ]
}

fn metadata(weights: &Weights, full: bool) -> Vec<Row> {
    let row = |(key, own): (&String, &Value)| vec![cut(key, full), value(own, full)];
    weights.metadata.0.iter().map(row).collect()
}

fn tensor_rows(weights: &Weights, full: bool) -> Vec<Row> {
    let mut rows = vec![["name", "type", "shape", "bytes", "offset", "part"].map(String::from).to_vec()];
    let row = |(name, entry): (&String, &Entry)| {
        let shape: Vec<_> = entry.shape.iter().map(usize::to_string).collect();
        vec![
            cut(name, full),
            entry.type_name.clone(),
            shape.join(" × "),
            stored_bytes(entry).map_or_else(|| "?".to_owned(), grouped),
            grouped(entry.offset),
            entry.part.to_string(),
        ]
    };
    rows.extend(weights.tensors.iter().map(row));
    rows
}

fn value(value: &Value, full: bool) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::String(text) => cut(text, full),
        Value::Array(values) => array(values, full),
        numeric => match numeric.integer() {
            Some(integer) => integer.to_string(),
            None => number(numeric.float().unwrap_or(f64::NAN)),
        },
    }
}

fn array(values: &Array, full: bool) -> String {
    if let Some(values) = values.integers() {
        return list(values, full, |value| value.to_string());
    }
    if let Some(values) = values.floats() {
        return list(values, full, number);
    }
    match values {
        Array::Bool(values) => list(values.iter(), full, bool::to_string),
        Array::String(values) => list(values.iter(), full, |text| format!("\"{}\"", cut(text, full))),
        Array::Array(values) => list(values.iter(), full, |values| array(values, full)),
        _ => String::new(), // Numbers were above.
    }
}

fn list<T>(values: impl ExactSizeIterator<Item = T>, full: bool, text: impl Fn(T) -> String) -> String {
    let len = values.len();
    let shown = if full { len } else { len.min(LONGEST_ARRAY) };
    let mut list: Vec<_> = values.take(shown).map(text).collect();
    if shown < len {
        list.push(format!("... {} in all", grouped(len as u64)));
    }
    format!("[{}]", list.join(", "))
}

fn number(value: f64) -> String {
    format!("{:?}", shortest(value))
}

fn cut(text: &str, full: bool) -> String {
    let count = text.chars().count();
    if full || count <= LONGEST_TEXT {
        return escaped(text);
    }
    let head: String = text.chars().take(LONGEST_TEXT).collect();
    format!("{}... {} characters in all", escaped(&head), grouped(count as u64))
}

/// A large number in the first of `units` that it reaches, in brackets.
fn scaled(number: u64, units: &[(f64, &str)]) -> String {
    match units.iter().find(|(unit, _)| number as f64 >= *unit) {
        Some((unit, name)) => format!(" ({:.1} {name})", number as f64 / unit),
        None => String::new(),
    }
}

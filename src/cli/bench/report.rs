//! The results of a bench: numbers, and their printing as a Markdown table, JSON or CSV.

use std::fmt::Write as _;
use std::io::{Write, stdout};

use serde::Serialize;

/// One test of one model with one number of threads.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub model: String,
    pub format: String,
    pub weight_bytes: u64,
    pub parameters: u64,
    pub device: String,
    pub threads: usize,
    pub isa: &'static str,
    /// How keys and values are stored.
    pub cache: String,
    /// Of one more token, and of the whole context.
    pub cache_token_bytes: u64,
    pub cache_bytes: u64,
    pub test: String,
    pub repetitions: usize,
    pub tokens_per_second: Spread,
    pub load_ms: f64,
    /// Mean time until the first token could be drawn: a prompt test's whole prompt, a generation test's first step.
    pub first_token_ms: f64,
    /// The same of the run before those that count: pages that are not there yet, kernels to compile.
    pub cold_first_token_ms: f64,
    /// Layers that the GPU runs.
    pub gpu_layers: usize,
    /// What compiling the GPU's kernels took so far, the self-test's among them.
    pub compile_ms: Option<f64>,
    /// The most memory that the process ever held, files mapped into it included; `None` where the system doesn't
    /// tell.
    pub peak_rss_bytes: Option<u64>,
    /// Repacked weights and other scratch of the kernels for prompts.
    pub repack_bytes: usize,
    /// `None` on the CPU.
    pub gpu: Option<GpuRow>,
}

/// What a token of a test takes of a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct GpuRow {
    pub dispatches_per_token: f64,
    /// Those of the embedding, the head and the choice of a token are shared out among the layers.
    pub dispatches_per_layer: f64,
    pub submissions_per_token: f64,
    /// Of weights and caches.
    pub read_bytes_per_token: f64,
    pub readback_bytes_per_token: f64,
    /// 10⁹ bytes that copies within the device read and write in a second.
    pub copy_gbytes_per_second: f64,
    /// What is read at the median speed over that.
    pub share_of_bandwidth: f64,
    /// Each timed alone, the longest first; none where the device has no timestamps.
    pub kernels: Vec<KernelRow>,
}

/// What a kernel takes of a token.
#[derive(Clone, Debug, Serialize)]
pub struct KernelRow {
    /// With the format of its weights.
    pub kernel: String,
    pub dispatches_per_token: f64,
    pub microseconds_per_token: f64,
    pub gbytes_per_second: f64,
    pub gmacs_per_second: f64,
}

/// A sample of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    /// Standard deviation of the sample, 0 for one measurement.
    pub deviation: f64,
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Spread {
    /// # Panics
    /// If `values` is empty.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        Spread {
            mean,
            deviation: (squares / count.saturating_sub(1).max(1) as f64).sqrt(),
            min: values[0],
            median: (values[(count - 1) / 2] + values[count / 2]) / 2.0,
            max: values[count - 1],
        }
    }
}

/// Prints a table for people.
pub fn print_markdown(rows: &[Row]) -> anyhow::Result<()> {
    let mut text = String::from("| model | format | size | parameters | threads | isa | test | tokens/s |\n");
    text += "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: |\n";
    for row in rows {
        let Row { model, format, threads, test, .. } = row;
        let isa = if row.device == "cpu" { row.isa } else { &row.device };
        let mib = row.weight_bytes as f64 / f64::from(1 << 20);
        let millions = row.parameters as f64 / 1e6;
        let Spread { mean, deviation, .. } = row.tokens_per_second;
        let model = model.replace('|', "\\|");
        writeln!(
            text,
            "| {model} | {format} | {mib:.2} MiB | {millions:.2} M | {threads} | {isa} | {test} | {mean:.2} ± {deviation:.2} |"
        )?;
    }
    for row in rows {
        if let Some(gpu) = &row.gpu {
            describe(&mut text, row, gpu)?;
        }
    }
    stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Adds a line and a table about what a test took of a GPU.
fn describe(text: &mut String, row: &Row, gpu: &GpuRow) -> std::fmt::Result {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    write!(text, "\n{}, a token: {:.2} dispatches", row.test, gpu.dispatches_per_token)?;
    write!(
        text,
        " ({:.2} a layer), {:.2} submissions, ",
        gpu.dispatches_per_layer, gpu.submissions_per_token
    )?;
    write!(text, "{:.2} MiB read, ", mib(gpu.read_bytes_per_token))?;
    write!(text, "{:.0} bytes read back, ", gpu.readback_bytes_per_token)?;
    let copies = gpu.copy_gbytes_per_second;
    write!(text, "{:.0}% of the speed of copies, {copies:.2} GB/s; ", 100.0 * gpu.share_of_bandwidth)?;
    writeln!(text, "first token {:.1} ms, cold {:.1} ms", row.first_token_ms, row.cold_first_token_ms)?;
    if !gpu.kernels.is_empty() {
        *text += "\n| kernel | dispatches/token | µs/token | GB/s | GMAC/s |\n| --- | ---: | ---: | ---: | ---: |\n";
    }
    for row in &gpu.kernels {
        let KernelRow { kernel, dispatches_per_token, microseconds_per_token, .. } = row;
        write!(text, "| {kernel} | {dispatches_per_token:.2} | {microseconds_per_token:.1} ")?;
        writeln!(text, "| {:.2} | {:.2} |", row.gbytes_per_second, row.gmacs_per_second)?;
    }
    Ok(())
}

/// Prints an array of objects.
pub fn print_json(rows: &[impl Serialize]) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    out.write_all(serde_json::to_string_pretty(rows)?.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(())
}

/// Prints a header and a line a row; nested numbers are flattened with a dot, lists left out.
pub fn print_csv(rows: &[impl Serialize]) -> anyhow::Result<()> {
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut cells = Vec::new();
        flatten("", &serde_json::to_value(row)?, &mut cells);
        if index == 0 {
            let names: Vec<_> = cells.iter().map(|(name, _)| name.as_str()).collect();
            text += &(names.join(",") + "\n");
        }
        let values: Vec<_> = cells.iter().map(|(_, value)| value.as_str()).collect();
        text += &(values.join(",") + "\n");
    }
    stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Adds the columns of `value`: name and text, quoted as RFC 4180 asks.
fn flatten(name: &str, value: &serde_json::Value, cells: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, cells);
            }
        }
        serde_json::Value::String(text) => {
            cells.push((name.into(), format!("\"{}\"", text.replace('"', "\"\""))));
        }
        serde_json::Value::Array(_) => {}
        serde_json::Value::Null => cells.push((name.into(), String::new())),
        other => cells.push((name.into(), other.to_string())),
    }
}

/// The largest resident set of this process so far, in bytes: Linux's `VmHWM`.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_right() {
        let cases: [(&[f64], [f64; 5]); 3] = [
            (&[5.0], [5.0, 0.0, 5.0, 5.0, 5.0]),
            (&[4.0, 2.0], [3.0, 2.0f64.sqrt(), 2.0, 3.0, 4.0]),
            (&[9.0, 1.0, 2.0, 4.0], [4.0, (38.0f64 / 3.0).sqrt(), 1.0, 3.0, 9.0]),
        ];
        for (values, [mean, deviation, min, median, max]) in cases {
            assert_eq!(
                Spread::of(values.to_vec()),
                Spread { mean, deviation, min, median, max },
                "{values:?}"
            );
        }
    }

    #[test]
    fn cells_are_quoted_and_nested_names_joined() {
        let mut cells = Vec::new();
        let value = serde_json::json!({"a": "x \"y\", z", "b": {"c": 1.5, "d": null}});
        flatten("", &value, &mut cells);
        let expected = [("a", "\"x \"\"y\"\", z\""), ("b.c", "1.5"), ("b.d", "")];
        assert_eq!(cells, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells_the_peak() {
        assert!(peak_memory().is_some_and(|bytes| bytes > 1 << 16));
    }
}

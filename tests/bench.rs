//! `hadal bench` from outside: the rows of a model's tests and of the kernels.
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::process::Command;

use hadal::quant::FORMATS;
use hadal::simd::Isa;
use serde_json::Value;

/// Standard output of a run that must succeed, with nothing of the tester's environment that it would heed.
fn text(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hadal"));
    command.env_remove("HADAL_MODEL").env_remove("HADAL_DEVICE").env_remove("HADAL_ISA").args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bench_rows_have_every_field() {
    let with =
        |form| ["bench", "-p", "16,8", "-n", "4", "-d", "0,5", "-r", "2", "-t", "1,2", "--output", form];
    let rows: Value = serde_json::from_str(&text(&with("json"))).unwrap();
    let rows = rows.as_array().unwrap();
    let tests: Vec<_> =
        rows.iter().map(|row| (row["threads"].as_u64().unwrap(), row["test"].as_str().unwrap())).collect();
    let names = ["pp16", "pp8", "tg4", "pp16 @ d5", "pp8 @ d5", "tg4 @ d5"];
    let expected: Vec<_> = [1, 2].iter().flat_map(|&threads| names.map(|name| (threads, name))).collect();
    assert_eq!(tests, expected);
    for row in rows {
        for name in ["model", "format", "isa"] {
            assert!(row[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {row}");
        }
        assert_eq!((&row["device"], &row["repetitions"]), (&"cpu".into(), &2.into()), "{row}");
        let speed = |name: &str| row["tokens_per_second"][name].as_f64().unwrap();
        assert!(speed("min") > 0.0 && speed("min") <= speed("median"), "{row}");
        assert!(speed("median") <= speed("max") && speed("mean") <= speed("max"), "{row}");
        assert!(
            row["load_ms"].as_f64().unwrap() > 0.0 && row["first_token_ms"].as_f64().unwrap() > 0.0,
            "{row}"
        );
        let memory = &row["peak_rss_bytes"];
        assert!(
            if cfg!(target_os = "linux") { memory.as_u64() > Some(1 << 20) } else { memory.is_null() },
            "{row}"
        );
    }
    let table = text(&with("md"));
    assert!(table.lines().count() == 14 && table.contains("| pp16 @ d5 |"), "{table}");
    let csv = text(&with("csv"));
    assert!(csv.lines().count() == 13 && csv.contains("tokens_per_second.mean"), "{csv}");
}

/// `bench --kernels` with small matrices and `arguments`.
fn kernel_rows(arguments: &[&str]) -> Vec<Value> {
    let common =
        ["bench", "--kernels", "--shape", "64x256", "--rows", "5", "-t", "2", "-r", "3", "-o", "json"];
    let rows: Value = serde_json::from_str(&text(&[&common, arguments].concat())).unwrap();
    rows.as_array().unwrap().clone()
}

#[test]
fn kernel_rows_have_every_field() {
    let rows = kernel_rows(&["--cached"]);
    for format in FORMATS.iter().filter(|format| format.dot.is_some()) {
        let of_format: Vec<_> = rows.iter().filter(|row| row["format"] == format.name).collect();
        let isas = |runs: &dyn Fn(Isa) -> Option<Isa>| {
            Isa::available().filter(|&isa| runs(isa) == Some(isa)).count()
        };
        let dot = |isa| format.row_dot(isa).map(|dot| dot.isa());
        let arms =
            [isas(&dot), isas(&|isa| format.multiply(isa).map(|panel| panel.isa()).or_else(|| dot(isa)))];
        assert_eq!(of_format.len(), arms[0] + arms[1], "{}: {of_format:?}", format.name);
        let phases = [["decode"].repeat(arms[0]), ["prefill"].repeat(arms[1])].concat();
        for (row, phase) in of_format.iter().zip(&phases) {
            let isa = Isa::available().find(|isa| row["isa"] == isa.name()).unwrap();
            let packed = *phase == "prefill" && format.multiply(isa).is_some();
            let pack = if packed { "panel" } else { "none" };
            assert_eq!((&row["phase"], &row["pack"]), (&(*phase).into(), &pack.into()), "{row}");
            let sizes = ["rows", "n", "k", "threads"].map(|name| row[name].as_u64().unwrap());
            assert_eq!(sizes, [if *phase == "decode" { 1 } else { 5 }, 64, 256, 2], "{row}");
            let [bytes, macs] =
                ["gbytes_per_second", "gmacs_per_second"].map(|name| row[name]["median"].as_f64().unwrap());
            let macs_per_byte = sizes[0] as f64 * 8.0 / format.bits_per_weight();
            assert!(bytes > 0.0 && (macs / bytes / macs_per_byte - 1.0).abs() < 1e-6, "{row}");
            assert!(row["share_of_bandwidth"].is_null() && row["ratio"].is_null(), "{row}");
        }
    }
}

#[test]
fn two_kernels_are_compared() {
    let rows = kernel_rows(&["--format", "q4_0", "--compare", "scalar,scalar"]);
    let median = |row: &Value| row["gbytes_per_second"]["median"].as_f64().unwrap();
    assert_eq!(rows.len(), 4, "{rows:?}");
    for pair in rows.chunks(2) {
        let [ratio, inverse] = [0, 1].map(|side| pair[side]["ratio"].as_f64().unwrap());
        assert!((ratio - median(&pair[0]) / median(&pair[1])).abs() < 1e-6, "{pair:?}");
        assert!((ratio * inverse - 1.0).abs() < 1e-6, "{pair:?}");
    }
    let packs = kernel_rows(&["--format", "q8_0", "--compare", "panel,none"]);
    assert!(packs.iter().skip(2).all(|row| row["phase"] == "prefill"), "{packs:?}");
    assert_eq!((packs.len(), &packs[3]["pack"]), (4, &"none".into()), "{packs:?}");
    let [share, fastest, memory] = [
        &rows[0]["share_of_bandwidth"],
        &rows[0]["gbytes_per_second"]["max"],
        &rows[0]["read_gbytes_per_second"],
    ]
    .map(|number| number.as_f64().unwrap());
    assert!((share * memory / fastest - 1.0).abs() < 1e-6, "{rows:?}");
    assert!(rows[2]["phase"] == "prefill" && rows[2]["share_of_bandwidth"].is_null(), "{rows:?}");
    let table = text(&["bench", "--kernels", "--format", "f32", "--shape", "9x8", "--cached", "-r", "1"]);
    assert!(table.contains("| f32 | scalar | none | decode |") && table.contains("memory with"), "{table}");
}

/// Whether there is a GPU, which there must be in CI.
#[cfg(feature = "gpu")]
fn has_adapter() -> bool {
    let found = !hadal::backend::gpu::adapters().is_empty();
    if !found {
        assert!(std::env::var_os("HADAL_CI").is_none(), "CI has a software device");
        println!("skipped: no GPU adapter was found");
    }
    found
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpus_rows_tell_what_a_token_takes() {
    if !has_adapter() {
        return;
    }
    let with = |form| ["bench", "--gpu", "-p", "20", "-n", "4", "-r", "1", "--output", form];
    let rows: Value = serde_json::from_str(&text(&with("json"))).unwrap();
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {rows}"));
    for row in rows.as_array().unwrap() {
        let gpu = &row["gpu"];
        assert_ne!(row["device"], "cpu", "{row}");
        assert!(number(&row["cold_first_token_ms"]) > 0.0 && number(&row["first_token_ms"]) > 0.0, "{row}");
        let speed = number(&row["tokens_per_second"]["median"]);
        let (read, copies) = (number(&gpu["read_bytes_per_token"]), number(&gpu["copy_gbytes_per_second"]));
        let share = number(&gpu["share_of_bandwidth"]);
        assert!((share * copies * 1e9 / (read * speed) - 1.0).abs() < 1e-6, "{row}");
        let kernels = gpu["kernels"].as_array().unwrap();
        let dispatches: f64 = kernels.iter().map(|kernel| number(&kernel["dispatches_per_token"])).sum();
        // A device without timestamps lists none.
        let counted = number(&gpu["dispatches_per_token"]);
        assert!(kernels.is_empty() || (dispatches / counted - 1.0).abs() < 1e-6, "{row}");
        if row["test"] == "tg4" {
            assert!(number(&gpu["dispatches_per_layer"]) < 8.0, "{row}");
            assert_eq!(
                (&gpu["submissions_per_token"], &gpu["readback_bytes_per_token"]),
                (&1.0.into(), &8.0.into())
            );
            // Every weight once; the embedding, which is the head too, is a large part of this model.
            assert!(read > 0.9 * number(&row["weight_bytes"]), "{row}");
        }
    }
    let table = text(&with("md"));
    assert!(table.contains("tg4, a token: ") && table.contains("% of the speed of copies"), "{table}");
    assert_eq!(text(&with("csv")).lines().count(), 3);
}

#[cfg(feature = "gpu")]
#[test]
fn a_gpus_kernel_rows_have_every_field() {
    if !has_adapter() {
        return;
    }
    let rows = kernel_rows(&["--gpu", "--format", "q4_k,f16"]);
    assert_eq!(rows.len(), 4, "{rows:?}");
    for (row, (phase, tokens)) in
        rows.iter().zip([("decode", 1), ("prefill", 5), ("decode", 1), ("prefill", 5)])
    {
        assert_eq!(
            (&row["phase"], &row["rows"], &row["n"]),
            (&phase.into(), &tokens.into(), &64.into()),
            "{row}"
        );
        let format = hadal::quant::Format::by_name(row["format"].as_str().unwrap()).unwrap();
        let [bytes, macs] =
            ["gbytes_per_second", "gmacs_per_second"].map(|name| row[name]["median"].as_f64().unwrap());
        let macs_per_byte = f64::from(tokens) * 8.0 / format.bits_per_weight();
        assert!(bytes > 0.0 && (macs / bytes / macs_per_byte - 1.0).abs() < 1e-6, "{row}");
        assert_eq!(row["share_of_bandwidth"].is_null(), phase == "prefill", "{row}");
    }
    let table = text(&[
        "bench",
        "--kernels",
        "--gpu",
        "--format",
        "q8_0",
        "--shape",
        "9x32",
        "-r",
        "1",
        "--rows",
        "3",
    ]);
    assert!(table.contains("| q8_0 | prefill | 3 | 9 x 32 |") && table.contains("copies read"), "{table}");
}

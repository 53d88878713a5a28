//! Instruments: divergence and perplexity against references, teacher dumps, importance.
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hadal::backend::Hidden;
use hadal::backend::cpu::{Activations, Cpu};
use hadal::eval::Windows;
use hadal::eval::dump::{Dump, Manifest, Recorder};
use hadal::eval::kl::{Divergences, Top};
use hadal::eval::perplexity::Losses;
use hadal::quantize::Collector;
use hadal::tokenizer::Special;
use hadal::{Engine, Options};
use support::golden::Golden;

mod support {
    pub mod golden;
}

const HELDOUT: &str = "tests/data/austen/heldout.txt";

fn floats(golden: &Golden, name: &str) -> Vec<f32> {
    golden.get::<f32>(name).values
}

fn close(found: f64, expected: f64, tolerance: f64) -> bool {
    (found - expected).abs() <= tolerance
}

fn near(found: &[f64], expected: &[f32], tolerance: f64) {
    for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        assert!(close(found, f64::from(expected), tolerance), "{index}: {found}, not {expected}");
    }
}

/// `goldens/mlx/kl_dump`: six positions of a vocabulary of 300, 32 logits kept, computed in f64.
#[test]
fn divergence_is_the_references() {
    let golden = Golden::open("mlx/kl_dump.safetensors");
    let reference = Hidden::new(floats(&golden, "ref_logits"), 300);
    let candidate = Hidden::new(floats(&golden, "cand_logits"), 300);

    let single = |row: usize| {
        let mut one = Divergences::default();
        let row_of = |all: &Hidden| Hidden::new(all.row(row).to_vec(), 300);
        one.add(&row_of(&reference), &row_of(&candidate)).unwrap();
        one.mean()
    };
    // The reference's numbers are f32.
    near(&(0..6).map(single).collect::<Vec<_>>(), &floats(&golden, "kl_full"), 1e-6);

    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(folder.path(), "reference", 7, 32).unwrap();
    recorder.add(&[1, 2, 3, 4, 5, 6, 7], &reference).unwrap();
    recorder.finish().unwrap();
    let bytes = std::fs::read(folder.path().join("seq-0.bin")).unwrap();
    let records = golden.get::<u8>("records").values;
    // ln Σ exp may differ in the last bit of f32.
    for (position, (found, expected)) in bytes.chunks(196).zip(records.chunks(196)).enumerate() {
        assert!(found[..192] == expected[..192], "record {position}");
    }
    let dump = Dump::open(folder.path()).unwrap();
    let manifest: &Manifest = &dump.manifest;
    assert_eq!((manifest.n_seqs, manifest.positions_per_seq, manifest.top_k), (1, 6, 32));
    assert_eq!(dump.sequences().collect::<Vec<_>>(), [[1, 2, 3, 4, 5, 6, 7]]);
    let tops: Vec<Top> = dump.records(0).unwrap();
    near(
        &tops.iter().map(|top| f64::from(top.log_sum_exp)).collect::<Vec<_>>(),
        &floats(&golden, "lse"),
        1e-6,
    );

    let mut all = Divergences::default();
    let mut each = Vec::new();
    for (row, top) in tops.iter().enumerate() {
        let mut one = Divergences::default();
        one.add_top(top, candidate.row(row)).unwrap();
        each.push(one.divergence());
        all.add_top(top, candidate.row(row)).unwrap();
    }
    near(&each.iter().map(|it| it.mean_kl).collect::<Vec<_>>(), &floats(&golden, "kl_topk"), 1e-6);
    near(
        &each.iter().map(|it| it.captured_mass).collect::<Vec<_>>(),
        &floats(&golden, "captured_mass"),
        1e-6,
    );
    let all = all.divergence();
    let figures = [
        (all.mean_kl, 0.030791076943028003),
        (all.median_kl, 0.02981075004149815),
        (all.p95_kl, 0.04560031539022204),
        (all.top1_agreement, 0.8333333333333334),
    ];
    assert!(figures.iter().all(|&(found, expected)| close(found, expected, 1e-6)), "{all:?}");
}

#[test]
fn a_model_does_not_diverge_from_itself() {
    let mut engine = Engine::embedded(&Options::default()).unwrap();
    let text = std::fs::read_to_string(HELDOUT).unwrap();
    let tokens = engine.tokenizer().encode_prompt(&text, Special::Text).unwrap();
    let windows = Windows { length: 64, context: 0, most: 2 };
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(folder.path(), "austen", 64, 4096).unwrap();
    let mut divergences = Divergences::default();
    let mut losses = Losses::default();
    for window in windows.cut(&engine, &tokens).unwrap() {
        let logits = windows.logits(&mut engine, &window).unwrap();
        let again = windows.logits(&mut engine, &window).unwrap();
        divergences.add(&logits, &again).unwrap();
        losses.add(&logits, windows.scored(&window));
        recorder.add(&window, &logits).unwrap();
    }
    recorder.finish().unwrap();
    let found = divergences.divergence();
    assert_eq!((found.mean_kl, found.max_kl, found.top1_agreement, found.positions), (0.0, 0.0, 1.0, 126));
    assert_eq!(losses.perplexity().tokens, 126);

    // In a dump of more logits than there are tokens only the rounding to f16 is lost.
    let dump = Dump::open(folder.path()).unwrap();
    let mut divergences = Divergences::default();
    for (index, sequence) in dump.sequences().enumerate() {
        let logits = windows.logits(&mut engine, sequence).unwrap();
        for (row, top) in dump.records(index).unwrap().iter().enumerate() {
            divergences.add_top(top, logits.row(row)).unwrap();
        }
    }
    let found = divergences.divergence();
    assert!(found.max_kl.abs() < 5e-3 && found.top1_agreement > 0.97, "{found:?}");
    assert!(close(found.captured_mass, 1.0, 1e-3), "{found:?}");
}

#[test]
fn damaged_dumps_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let manifest = |ctx_len: usize, n_seqs: usize, top_k: usize, positions: usize, version: u32| {
        let json = serde_json::json!({"format_version": version, "model": "m", "ctx_len": ctx_len, "n_seqs": n_seqs,
            "top_k": top_k, "positions_per_seq": positions});
        write("manifest.json", json.to_string().as_bytes());
    };
    let refused = |part: &str| {
        let error = Dump::open(folder.path()).map(|dump| dump.records(0));
        let error = match error {
            Ok(records) => records.expect_err("damaged").to_string(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(part), "{error}");
    };
    assert!(!Dump::is_at(folder.path()));
    refused("manifest.json");
    write("manifest.json", b"{");
    refused("manifest.json");
    manifest(3, 1, 2, 2, 9);
    refused("version 9");
    manifest(3, 1, 2, 3, 1);
    refused("3 records of 2");
    manifest(3, 1, 0, 2, 1);
    refused("records of 0");
    manifest(3, usize::MAX, 2, 2, 1);
    write("tokens.bin", &[0; 12]);
    refused("12 bytes");
    manifest(3, 1, 2, 2, 1);
    refused("seq-0.bin");
    write("seq-0.bin", &[0; 31]);
    refused("31 bytes are not 2 records");
    manifest(3, 1, usize::MAX, 2, 1);
    refused("31 bytes");
    manifest(3, 1, 2, 2, 1);
    write("seq-0.bin", &[0; 32]);
    assert_eq!(Dump::open(folder.path()).unwrap().records(0).unwrap().len(), 2);
}

#[test]
fn importance_is_what_matrices_read() {
    let mut engine = Engine::embedded(&Options::default()).unwrap();
    let tokens: Vec<u32> = (5..45).collect();
    let expected = engine.prefill(&tokens).unwrap().to_vec();
    let collector = Arc::new(Collector::new(Cpu::new(Some(1), None, Activations::Quantized).unwrap()));
    engine.set_backend("cpu", collector.clone());
    assert_eq!(engine.prefill(&tokens).unwrap(), expected, "looking on changes nothing");
    let imatrix = collector.imatrix();
    // Seven matrices a layer, none of the embedding.
    assert_eq!(imatrix.entries.len(), 5 * 7);
    let columns = |name: &str| imatrix.columns(&format!("blk.0.{name}.weight")).unwrap();
    assert_eq!(columns("attn_q"), columns("attn_v"));
    assert_ne!(columns("attn_q"), columns("ffn_up"));
    assert!(imatrix.entries.values().all(|sums| sums.counts == [40.0]));
    // What is behind a norm has squares of about its weights'.
    let weights = hadal::file::Weights::open("models/austen/austen-q8_0.gguf").unwrap();
    let norm = weights.tensor("blk.0.attn_norm.weight").unwrap().to_f32().unwrap();
    let expected: f32 = norm.iter().map(|weight| weight * weight).sum();
    let found: f32 = columns("attn_q").iter().sum();
    assert!(found > expected * 0.3 && found < expected * 3.0, "{found} against {expected}");
}

#[test]
fn the_program_prints_figures() {
    let run = |arguments: &[&str]| -> serde_json::Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hadal"));
        command.env_remove("HADAL_MODEL").env_remove("HADAL_ISA").args(arguments);
        let output = command.output().expect("the program runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let austen = "models/austen/austen-q8_0.gguf";
    let text = [HELDOUT, "--ctx-size", "64", "--chunks", "3"];
    let json = ["--output", "json"];

    let ppl = run(&[&["eval", "ppl"][..], &text, &json].concat());
    assert_eq!(ppl["tokens"], 3 * 31);
    assert!(ppl["perplexity"].as_f64().unwrap() > 1.0 && ppl["standard_error"].as_f64().unwrap() > 0.0);

    let kl = run(&[&["eval", "kl", "-m", austen, "--reference", austen][..], &text, &json].concat());
    for (name, value) in kl.as_object().unwrap() {
        if name == "bits_per_weight" {
            assert!((8.5..8.6).contains(&value.as_f64().unwrap()), "{value}");
            continue;
        }
        let expected = if ["top1_agreement", "captured_mass"].contains(&name.as_str()) { 1.0 } else { 0.0 };
        assert_eq!(value.as_f64(), Some(expected), "{name}");
    }
    assert_eq!(kl.as_object().unwrap().len(), 8);

    // A dump, importance, a smaller model, and what the dump says about it.
    let program = |arguments: &[&str]| {
        let status = Command::new(env!("CARGO_BIN_EXE_hadal")).args(arguments).output().unwrap();
        assert!(status.status.success(), "{arguments:?}: {status:?}");
    };
    program(&[&["eval", "dump", "-o", &path("dump"), "--top-k", "500"][..], &text].concat());
    program(&["imatrix", HELDOUT, "-o", &path("importance.gguf"), "--ctx-size", "64", "--chunks", "3"]);
    let small = path("small.gguf");
    program(&["quantize", austen, "--type", "q4_k_m", "--imatrix", &path("importance.gguf"), "-o", &small]);
    let kl = run(&[&["eval", "kl", "-m", &small, "--reference", &path("dump")][..], &json].concat());
    let mean = kl["mean_kl"].as_f64().unwrap();
    assert!(mean > 1e-4 && mean < 0.1, "{kl}");
    assert!(kl["captured_mass"].as_f64().unwrap() > 0.9);
    assert!(Path::new(&path("dump")).join("seq-2.bin").exists());
}

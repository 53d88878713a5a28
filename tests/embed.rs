//! Texts as vectors, against references in float64 (`tests/data/embed/generate.py`).
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::path::{Path, PathBuf};
use std::process::Command;

use hadal::Engine;
use hadal::embed::{Embedder, Pooling};
use serde_json::Value as Json;

fn data(name: &str) -> PathBuf {
    Path::new("tests/data/embed").join(name)
}

fn json(path: &Path) -> Json {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(json: &Json) -> Vec<f64> {
    json.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The folder against its golden: ids are equal, vectors nearly.
fn check(folder: &Path, golden: &Json, tolerance: f64) {
    let embedder = Embedder::open(folder, Some(2)).unwrap();
    assert_eq!(embedder.pooling(), Pooling::Mean);
    for case in golden.as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let ids: Vec<f64> = embedder.tokens(text).unwrap().into_iter().map(f64::from).collect();
        assert_eq!(ids, numbers(&case["ids"]), "{text}");
        let expected = numbers(&case["vector"]);
        let length = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
        for normalized in [false, true] {
            let found = embedder.embed(text, Pooling::Mean, normalized).unwrap();
            assert_eq!(found.len(), expected.len());
            let unit = if normalized { length } else { 1.0 };
            let error = found
                .iter()
                .zip(&expected)
                .map(|(a, b)| (f64::from(*a) - b / unit).powi(2))
                .sum::<f64>()
                .sqrt();
            assert!(error <= tolerance * length / unit, "{text}: off by {error} of {}", length / unit);
        }
    }
}

#[test]
fn bert_and_embedding_gemma_agree_with_the_references() {
    for name in ["bert", "gemma"] {
        check(&data(name), &json(&data(name).join("golden.json")), 1e-5);
    }
}

/// The folder of a real model, or a line that there is none.
fn real(name: &str) -> Option<PathBuf> {
    let models =
        std::env::var_os("HADAL_TEST_MODELS").map_or_else(|| PathBuf::from("target/models"), PathBuf::from);
    let folder = models.join(name);
    if !folder.exists() {
        println!("skipped: no {}", folder.display());
        return None;
    }
    Some(folder)
}

#[test]
fn minilm_agrees_with_the_reference() {
    let Some(folder) = real("all-MiniLM-L6-v2") else { return };
    check(&folder, &json(&data("minilm.json")), 1e-4);
}

/// The example of EmbeddingGemma's model card, with the similarities that sentence-transformers gives it there.
#[test]
fn embedding_gemma_finds_the_planet_of_its_model_card() {
    let Some(folder) = real("embeddinggemma-300m") else { return };
    let embedder = Embedder::open(folder, Some(2)).unwrap();
    let embed = |text: &str| embedder.embed(text, Pooling::Mean, true).unwrap();
    let query = embed("task: search result | query: Which planet is known as the Red Planet?");
    assert_eq!(query.len(), 768);
    for (document, expected) in [
        ("Venus is often called Earth's twin because of its similar size and proximity.", 0.3011),
        ("Mars, known for its reddish appearance, is often referred to as the Red Planet.", 0.6359),
        ("Jupiter, the largest planet in our solar system, has a prominent red spot.", 0.4930),
        ("Saturn, famous for its rings, is sometimes mistaken for the Red Planet.", 0.4889),
    ] {
        let found: f32 =
            query.iter().zip(embed(&format!("title: none | text: {document}"))).map(|(a, b)| a * b).sum();
        assert!((found - expected).abs() < 1e-3, "{document}: {found}, not {expected}");
    }
}

#[test]
fn rows_are_pooled_as_asked() {
    let embedder = Embedder::open(data("bert"), Some(1)).unwrap();
    let vectors = [Pooling::Mean, Pooling::Cls, Pooling::Last, Pooling::Max]
        .map(|pooling| embedder.embed("the cat", pooling, false).unwrap());
    for (i, one) in vectors.iter().enumerate() {
        assert!(vectors[..i].iter().all(|other| other != one), "{i}");
        assert!(vectors[3].iter().zip(one).all(|(most, value)| most >= value));
    }
    // Longer than the positions: the last token stays.
    let ids = embedder.tokens(&"cat ".repeat(1000)).unwrap();
    assert_eq!((ids.len(), ids[0], ids[127]), (128, 2, 3));
}

#[test]
fn the_program_prints_vectors() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hadal"));
        command.env_remove("HADAL_MODEL").args(["embed", "-m", "tests/data/embed/bert"]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let rows: Json = serde_json::from_str(&run(&["-o", "json", "The cat sat.", "on"])).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    let vector = numbers(&rows[0]["embedding"]);
    assert!((vector.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5);
    let lines = run(&["The cat sat.", "--pooling", "cls", "--no-normalize"]);
    assert_eq!(lines.split_whitespace().count(), 32);
}

#[test]
fn what_is_no_encoder_is_refused() {
    let error = Embedder::open("tests/data/austen", None).unwrap_err().to_string();
    assert!(error.contains("llama") && error.contains("MiniLM"), "{error}");
    let error = Engine::open(data("gemma")).unwrap_err().to_string();
    assert!(error.contains("gemma-embedding"), "{error}");
}

//! A folder as a GGUF file: the same tokens and the same logits.
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::path::Path;

use hadal::convert::for_gguf;
use hadal::file::{RopePairs, Weights};
use hadal::quantize::{Plan, Recipe, Run, Settings, Start};
use hadal::tokenizer::Special;
use hadal::{Engine, Error};

const AUSTEN: &str = "tests/data/austen";

fn make(source: &Weights, recipe: Option<&str>, out: &Path) {
    let recipe = recipe.map(|name| Recipe::by_name(name).unwrap());
    let plan = Plan::new(source, &Settings::new(recipe), None).unwrap();
    let mut run = Run::new(&plan, out, Some(2), Start::Anew).unwrap();
    run.by_ref().for_each(|step| {
        step.unwrap();
    });
    run.finish().unwrap();
}

#[test]
fn a_converted_folder_is_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("austen.gguf");
    let source = for_gguf(Weights::open(AUSTEN).unwrap()).unwrap();
    assert_eq!(source.rope_pairs, RopePairs::Halves, "rows are turned when they are written");
    make(&source, None, &out);

    let mut before = Engine::open(AUSTEN).unwrap();
    let mut after = Engine::open(&out).unwrap();
    let text = std::fs::read_to_string("tests/data/austen/heldout.txt").unwrap();
    let ids = before.tokenizer().encode(&text[..20_000], Special::Text).unwrap();
    assert_eq!(after.tokenizer().encode(&text[..20_000], Special::Text).unwrap(), ids);
    assert_eq!(after.tokenizer().adds_bos(), before.tokenizer().adds_bos());
    assert_eq!(after.tokenizer().stops(), before.tokenizer().stops());
    // Heads are summed in another order.
    let (before, after) = (before.prefill(&ids[..200]).unwrap(), after.prefill(&ids[..200]).unwrap());
    for (before, after) in before.iter().zip(after) {
        assert!((before - after).abs() < 1e-3, "{before} {after}");
    }

    // Quantized on the way or afterwards, the bytes are the same.
    let [direct, later] = ["direct.gguf", "later.gguf"].map(|name| folder.path().join(name));
    make(&source, Some("q4_k_m"), &direct);
    make(&Weights::open(&out).unwrap(), Some("q4_k_m"), &later);
    let tensors = |path: &Path| -> Vec<_> {
        let weights = Weights::open(path).unwrap();
        weights.tensors.iter().map(|(name, entry)| (name.clone(), entry.data.to_vec())).collect()
    };
    assert!(tensors(&direct) == tensors(&later));
}

fn refusal(weights: Weights) -> Error {
    let Err(error) = for_gguf(weights) else { panic!("it is not refused") };
    error
}

#[test]
fn what_gguf_cannot_say_is_refused() {
    let mut weights = Weights::open(AUSTEN).unwrap();
    weights.tokenizer_json = None;
    assert!(refusal(weights).to_string().contains("tokenizer.json"));

    let mut weights = Weights::open(AUSTEN).unwrap();
    let entry = weights.tensors["output_norm.weight"].clone();
    weights.tensors.insert("vision.patch.weight".into(), entry);
    assert!(refusal(weights).to_string().contains("vision.patch.weight"));

    let mut weights = Weights::open(AUSTEN).unwrap();
    let mut json: serde_json::Value =
        serde_json::from_str(weights.tokenizer_json.as_deref().unwrap()).unwrap();
    json["pre_tokenizer"] = serde_json::json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "[a-z]"}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]});
    weights.tokenizer_json = Some(json.to_string());
    let error = refusal(weights);
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

//! What the browser's tests (`web/test`) expect: the same file says what this machine's CPU computes.

use std::path::Path;

use hadal::tokenizer::Special;
use hadal::{Engine, Options, Sampling};

/// What the embedded model makes of a prompt: its tokens, the logits behind them as the bits of every 16th and the sum
/// of all, and the text that it goes on with when it takes the most likely token.
fn expected() -> serde_json::Value {
    let prompt = "It is a truth universally acknowledged, that a single man in possession of a good fortune";
    let mut engine = Engine::embedded(&Options::default()).expect("the embedded model");
    let tokens = engine.tokenizer().encode_prompt(prompt, Special::Text).expect("ordinary text");
    let bits: Vec<u32> = engine.prefill(&tokens).expect("room").iter().map(|logit| logit.to_bits()).collect();
    let greedy = Sampling { max_tokens: Some(48), ..Sampling::greedy() };
    let text = engine.generate(prompt, &greedy).expect("room").collect::<hadal::Result<String>>();
    serde_json::json!({
        "prompt": prompt,
        "tokens": tokens,
        "bits": bits.iter().step_by(16).collect::<Vec<_>>(),
        "sum": bits.iter().fold(0u32, |sum, bits| sum.wrapping_add(*bits)),
        "greedy": text.expect("text"),
    })
}

/// `HADAL_UPDATE=1 cargo test --test web` writes the file instead of comparing it.
#[test]
fn the_browsers_tests_expect_what_this_cpu_computes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/web/austen.json");
    let made = serde_json::to_string(&expected()).expect("plain values");
    if std::env::var_os("HADAL_UPDATE").is_some() {
        std::fs::write(&path, made + "\n").expect("a file that can be written");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(made, kept.trim_end(), "{}", path.display());
}

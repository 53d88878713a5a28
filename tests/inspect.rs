//! `hadal inspect`: what people and programs see of small files made here, strange ones among them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use assert_cmd::Command;

mod support {
    pub mod gguf;
    pub mod safetensors;
}
use support::gguf::{File, Value};
use support::safetensors::floats;

/// Metadata of every kind, formats that we run and types that nobody runs.
fn odd() -> File {
    let tokens: Vec<_> = (0..70).map(|token| format!("token {token}")).collect();
    let tokens: Vec<_> = tokens.iter().map(String::as_str).collect();
    File::new()
        .key("general.architecture", Value::text("llama"))
        .key("general.name", Value::text("Odd\nmodel \u{1b}[31m\u{202e}"))
        .key("llama.context_length", Value::U32(512))
        .key("llama.block_count", Value::U32(1))
        .key("llama.embedding_length", Value::U32(64))
        .key("llama.attention.head_count", Value::Array(4, vec![Value::U32(4), Value::U32(2)]))
        .key("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5))
        .key("tokenizer.ggml.tokens", Value::texts(&tokens))
        .key("tokenizer.ggml.scores", Value::Array(6, vec![Value::F32(-0.5); 7]))
        .key("tokenizer.chat_template", Value::Text("{% for m in messages %}\n".repeat(9)))
        .key("nested", Value::Array(9, vec![Value::Array(7, vec![Value::Bool(true)])]))
        .key("double", Value::F64(0.1))
        .key("nothing", Value::F32(f32::NAN))
        .key("negative", Value::I64(-5))
        .tensor("token_embd.weight", &[64, 100], 2, vec![0; 100 * 36])
        .tensor("blk.0.attn_q.weight", &[64, 64], 8, vec![0; 64 * 68])
        .f32("output_norm.weight", &[1.0; 64])
        .tensor("positions", &[64], 26, vec![0; 256])
        .tensor("empty", &[64, 0], 0, vec![])
        .tensor("future", &[256, 2], 200, vec![0; 100])
}

/// What the program prints in a folder with these files.
fn inspect(files: &[(&str, Vec<u8>)], arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let output = command(folder.path(), arguments).assert().success().get_output().stdout.clone();
    String::from_utf8(output).unwrap()
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("hadal"));
    command.current_dir(folder).arg("inspect").args(arguments);
    command
}

#[test]
fn text() {
    insta::assert_snapshot!(inspect(&[("odd.gguf", odd().bytes())], &["odd.gguf", "--tensors"]));
}

#[test]
fn json() {
    insta::assert_snapshot!(inspect(&[("odd.gguf", odd().bytes())], &["odd.gguf", "--json"]));
}

#[test]
fn parts_of_a_split_model_are_listed() {
    let part = |no: u16| {
        let file = File::new().key("general.architecture", Value::text("llama"));
        file.key("split.no", Value::U16(no))
            .key("split.count", Value::U16(2))
            .f32(&format!("t{no}"), &[0.0; 8])
    };
    let files = [("m-00001-of-00002.gguf", part(0).bytes()), ("m-00002-of-00002.gguf", part(1).bytes())];
    insta::assert_snapshot!(inspect(&files, &["m-00002-of-00002.gguf", "--tensors"]));
}

#[test]
fn a_folder_of_an_unknown_model_is_listed() {
    let config = br#"{"model_type": "mamba9", "num_hidden_layers": 2, "hidden_size": 8}"#.to_vec();
    let weights =
        floats(&[("backbone.embeddings.weight", &[4, 8], 0.5), ("backbone.norm_f.weight", &[8], 1.0)]);
    let files = [("model/config.json", config), ("model/model.safetensors", weights)];
    insta::assert_snapshot!(inspect(&files, &["model", "--tensors"]));
}

#[test]
fn a_file_with_nothing_in_it_is_shown() {
    insta::assert_snapshot!(inspect(&[("nothing.gguf", File::new().bytes())], &["nothing.gguf"]));
}

#[test]
fn full_shortens_nothing() {
    let files = [("odd.gguf", odd().bytes())];
    let text = inspect(&files, &["odd.gguf", "--full"]);
    assert!(text.contains("\"token 69\"]") && !text.contains("in all"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&inspect(&files, &["odd.gguf", "--full", "--json"])).unwrap();
    assert_eq!(json["metadata"]["tokenizer.ggml.tokens"].as_array().map(Vec::len), Some(70));
}

#[test]
fn no_control_character_reaches_the_terminal() {
    let hostile = "\u{7}\u{1b}]0;x\u{7}\u{9b}31m\r\u{202e}";
    let file = File::new()
        .key(hostile, Value::texts(&[hostile]))
        .key("general.architecture", Value::text(hostile))
        .f32(hostile, &[1.0]);
    let text = inspect(&[("x.gguf", file.bytes())], &["x.gguf", "--tensors", "--full"]);
    let bad: Vec<_> = text.chars().filter(|&c| (c.is_control() && c != '\n') || c == '\u{202e}').collect();
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn a_file_that_does_not_open_is_told_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("note.txt"), "hello").unwrap();
    let output = command(folder.path(), &["note.txt"]).assert().failure().get_output().clone();
    assert!(output.stdout.is_empty());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("note.txt") && message.contains("text file"), "{message}");
}

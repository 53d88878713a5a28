//! Small vocabularies as the metadata of a GGUF file, and the models that tests find in a folder.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::path::PathBuf;

use hadal::file::metadata::{Array, Metadata, Value};

/// The character of GPT-2's alphabet for `byte`, computed the other way round than the library does.
pub fn byte_char(byte: u8) -> char {
    let kept = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if kept(byte) {
        return char::from(byte);
    }
    let moved = (0..byte).filter(|&before| !kept(before)).count() as u32;
    char::from_u32(0x100 + moved).unwrap()
}

/// `bytes` in GPT-2's alphabet.
pub fn spell(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| byte_char(byte)).collect()
}

pub fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

pub fn texts<T: AsRef<str>>(texts: &[T]) -> Value {
    Value::Array(Array::String(texts.iter().map(|text| text.as_ref().to_owned()).collect()))
}

pub fn numbers(numbers: &[i64]) -> Value {
    Value::Array(Array::Signed(numbers.to_vec()))
}

pub fn floats(floats: &[f64]) -> Value {
    Value::Array(Array::Float(floats.to_vec()))
}

/// Metadata with `tokenizer.ggml.` before every key.
pub fn metadata(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Metadata {
    Metadata(entries.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect())
}

/// A byte-level vocabulary: token and type of each, then the merges.
pub fn byte_level(tokens: &[(String, i64)], merges: &[&str]) -> Metadata {
    let (spellings, types): (Vec<_>, Vec<_>) = tokens.iter().cloned().unzip();
    metadata([
        ("model", text("gpt2")),
        ("pre", text("gpt-2")),
        ("tokens", texts(&spellings)),
        ("token_type", numbers(&types)),
        ("merges", texts(merges)),
    ])
}

/// All 256 bytes as tokens 0 to 255.
pub fn all_bytes() -> Vec<(String, i64)> {
    (0..=255).map(|byte| (spell(&[byte]), 1)).collect()
}

/// A SentencePiece vocabulary: token, score and type of each. Ids 0 to 2 are `<unk>`, `<s>`, `</s>`, then come 256 bytes.
pub fn sentencepiece(tokens: &[(&str, f64)]) -> Metadata {
    let mut all: Vec<(String, f64, i64)> =
        vec![("<unk>".into(), 0.0, 2), ("<s>".into(), 0.0, 3), ("</s>".into(), 0.0, 3)];
    all.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6)));
    all.extend(tokens.iter().map(|&(token, score)| (token.to_owned(), score, 1)));
    let spellings: Vec<_> = all.iter().map(|(token, ..)| token).collect();
    metadata([
        ("model", text("llama")),
        ("tokens", texts(&spellings)),
        ("scores", floats(&all.iter().map(|&(_, score, _)| score).collect::<Vec<_>>())),
        ("token_type", numbers(&all.iter().map(|&(.., kind)| kind).collect::<Vec<_>>())),
        ("bos_token_id", Value::Unsigned(1)),
        ("eos_token_id", Value::Unsigned(2)),
    ])
}

/// A file below `$HADAL_TEST_MODELS`, or nothing and a line that says so.
pub fn model(name: &str) -> Option<PathBuf> {
    let folder =
        std::env::var_os("HADAL_TEST_MODELS").map_or_else(|| PathBuf::from("target/models"), PathBuf::from);
    let path = folder.join(name);
    if !path.exists() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
}

//! Small vocabularies as the metadata of a GGUF file, and the models that tests find in a folder.
#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use hadal::file::metadata::{Array, Metadata, Value};
use hadal::tokenizer::Tokenizer;

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
    Value::Array(Array::String(texts.iter().collect()))
}

pub fn numbers(numbers: &[i64]) -> Value {
    Value::Array(Array::I64(numbers.to_vec()))
}

pub fn floats(floats: &[f64]) -> Value {
    Value::Array(Array::F64(floats.to_vec()))
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
        ("bos_token_id", Value::U32(1)),
        ("eos_token_id", Value::U32(2)),
    ])
}

/// All bytes, pieces of characters, two words, and the tokens of a chat.
pub fn chat_metadata() -> Metadata {
    let mut tokens = all_bytes();
    for piece in
        [&[0xF0, 0x9F][..], &[0x98, 0x80], &[0xE6, 0xAD], b"he", b" the", "é".as_bytes(), &[0xC3, 0x28]]
    {
        tokens.push((spell(piece), 1));
    }
    for (token, kind) in [("<|im_start|>", 3), ("<|im_end|>", 3), ("</think>", 4), ("[PAD]", 5), ("<s>", 3)] {
        tokens.push((token.to_owned(), kind));
    }
    byte_level(&tokens, &["h e", "Ġ t", "Ġt he", "æ Ń", "ð Ł", "Ã ©"])
}

/// The tokenizer of [`chat_metadata`].
pub fn chat() -> Tokenizer {
    Tokenizer::from_metadata(&chat_metadata()).unwrap()
}

/// SentencePiece's unigram model, without tokens for bytes.
pub fn unigram_metadata() -> Metadata {
    let tokens = ["<pad>", "</s>", "<unk>", "▁", "▁a", "a", "b", "ab", "▁ab", "é", "x"];
    let scores = [0.0, 0.0, 0.0, -2.0, -3.0, -4.0, -4.0, -5.0, -5.5, -6.0, -6.0];
    metadata([
        ("model", text("t5")),
        ("tokens", texts(&tokens)),
        ("scores", floats(&scores)),
        ("token_type", numbers(&[3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1])),
        ("eos_token_id", Value::U32(1)),
    ])
}

/// One of each kind.
pub fn all_kinds() -> [Tokenizer; 3] {
    let spm =
        sentencepiece(&[("▁", -1.0), ("a", -2.0), ("b", -2.0), ("▁a", -3.0), ("ab", -4.0), ("é", -5.0)]);
    [chat_metadata(), spm, unigram_metadata()].map(|metadata| Tokenizer::from_metadata(&metadata).unwrap())
}

/// `metadata` with one key more or another value.
pub fn set(mut metadata: Metadata, key: &str, value: Value) -> Metadata {
    metadata.0.insert(format!("tokenizer.ggml.{key}"), value);
    metadata
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

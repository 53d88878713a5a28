//! What vocabularies say: tokens that are structure, tokens that end an answer, files that make no sense, and small
//! tokenizer.json files in all their variants beside the reference.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hadal::file::metadata::{Metadata, Value};
use hadal::tokenizer::{Special, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use tokenizers::Tokenizer as Reference;

#[path = "support/vocabulary.rs"]
mod vocabulary;

use vocabulary::{
    all_bytes, byte_level, chat, chat_metadata, floats, numbers, sentencepiece, set, text, texts,
    unigram_metadata,
};

#[test]
fn control_tokens_are_structure_only_where_they_may_be() {
    let tokenizer = chat();
    let id = |token: &str| tokenizer.id(token).unwrap();
    let written = "a<|im_end|></think>";
    let ids = tokenizer.encode(written, Special::Text).unwrap();
    assert!(!ids.contains(&id("<|im_end|>")) && ids.contains(&id("</think>")));
    assert_eq!(tokenizer.decode(&ids), written);
    let ids = tokenizer.encode(written, Special::Parse).unwrap();
    assert_eq!(ids, [u32::from(b'a'), id("<|im_end|>"), id("</think>")]);
    assert_eq!(
        (tokenizer.decode(&ids), tokenizer.decode_with(&ids, true)),
        ("a</think>".into(), written.into())
    );
    assert!(tokenizer.is_control(id("<|im_end|>")) && !tokenizer.is_control(id("</think>")));
    assert_eq!(tokenizer.stops(), [id("<|im_end|>")]);
    // A place without use is never text, and an id that does not exist is nothing.
    assert_eq!((tokenizer.decode(&[id("[PAD]"), 99_999]), tokenizer.token(99_999)), (String::new(), None));
}

#[test]
fn everything_that_names_an_end_is_a_stop() {
    let names = ["<|end|>", "<|return|>", "<|call|>", "<|eom_id|>", "stop", "pause", "late", "<|im_end|>"];
    let mut tokens = all_bytes();
    tokens.extend(names.map(|name| (name.to_owned(), 3)));
    let id = |name: &str| 256 + names.iter().position(|&each| each == name).unwrap() as u64;
    let mut metadata = byte_level(&tokens, &[]);
    for (key, name) in [("eos_token_id", "stop"), ("eot_token_id", "pause")] {
        metadata = set(metadata, key, Value::U64(id(name)));
    }
    let metadata = set(metadata, "eos_token_ids", numbers(&[id("late") as i64, id("stop") as i64]));
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    // With <|return|> and <|call|> there, <|end|> ends a part of an answer only.
    let expected = ["<|return|>", "<|call|>", "<|eom_id|>", "stop", "pause", "late", "<|im_end|>"];
    assert_eq!(tokenizer.stops(), expected.map(|name| id(name) as u32));
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (None, Some(id("stop") as u32)));
}

#[test]
fn metadata_that_makes_no_sense_is_an_error() {
    let good = chat_metadata;
    let spm = || sentencepiece(&[("a", 0.0)]);
    let without = |mut metadata: Metadata, key: &str| {
        metadata.0.shift_remove(&format!("tokenizer.ggml.{key}"));
        metadata
    };
    let cases = [
        ("no model", without(good(), "model"), "tokenizer.ggml.model is missing"),
        ("bert", set(good(), "model", text("bert")), "tokenizer \"bert\" is not supported"),
        ("rwkv", set(good(), "model", text("rwkv")), "tokenizer \"rwkv\" is not supported"),
        ("pre", set(good(), "pre", text("qwen9")), "pre-tokenizer \"qwen9\" is not supported"),
        ("no tokens", without(good(), "tokens"), "tokenizer.ggml.tokens is missing"),
        ("empty", set(without(good(), "token_type"), "tokens", texts::<&str>(&[])), "vocabulary is empty"),
        ("tokens are numbers", set(good(), "tokens", numbers(&[1])), "expected an array of texts"),
        ("few types", set(good(), "token_type", numbers(&[1, 1])), "2 types for"),
        ("odd type", set(good(), "token_type", numbers(&vec![9; 268])), "no type 9"),
        ("no merges", without(good(), "merges"), "tokenizer.ggml.merges is missing"),
        ("merge of one", set(good(), "merges", texts(&["h e", "he"])), "entry 1, \"he\""),
        ("merge of nothing", set(good(), "merges", texts(&["h "])), "entry 0, \"h \""),
        ("bos", set(good(), "bos_token_id", Value::U32(9999)), "bos_token_id: token 9999 is outside"),
        (
            "eos",
            set(good(), "eos_token_id", Value::U64(1 << 40)),
            "eos_token_id: token 1099511627776 is outside",
        ),
        ("eos list", set(good(), "eos_token_ids", numbers(&[-1])), "eos_token_ids: -1 is no token"),
        (
            "unknown",
            set(good(), "unknown_token_id", Value::U32(9999)),
            "unknown_token_id: token 9999 is outside",
        ),
        ("no scores", without(spm(), "scores"), "tokenizer.ggml.scores is missing"),
        ("few scores", set(spm(), "scores", floats(&[0.0])), "1 scores for 260 tokens"),
        ("nan score", set(spm(), "scores", floats(&[f64::NAN; 260])), "score of token 0 is not a number"),
        ("infinite score", set(unigram_metadata(), "scores", floats(&[f64::INFINITY; 11])), "not finite"),
        ("charsmap", set(unigram_metadata(), "precompiled_charsmap", numbers(&[9, 0, 0, 0])), "charsmap"),
    ];
    for (name, metadata, part) in cases {
        let result = Tokenizer::from_metadata(&metadata);
        let message = result.map(|_| "no error".to_owned()).unwrap_or_else(|error| error.to_string());
        assert!(message.contains(part), "{name}: {message:?} does not say {part:?}");
    }
    assert!(
        Tokenizer::from_metadata(&without(good(), "pre")).is_ok(),
        "a missing pre-tokenizer is only a warning"
    );
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        prop::sample::select(vec!["", "gpt2", "llama", "t5", "default", "falcon", "x"]).prop_map(text),
        prop::collection::vec(-2i64..9, 0..300).prop_map(|values| numbers(&values)),
        prop::collection::vec(any::<f64>(), 0..300).prop_map(|values| floats(&values)),
        prop::collection::vec("[ab▁Ġ<>é ]{0,3}", 0..300).prop_map(|values| texts(&values)),
    ]
}

proptest! {
    /// Whatever is written under the keys, it is refused or it works.
    #[test]
    fn damaged_metadata_is_refused_or_works(
        base in 0usize..3,
        changes in prop::collection::vec((0usize..12, any_value()), 1..4),
        written in "[ab▁ <>|é歪]{0,9}",
    ) {
        const KEYS: [&str; 12] = [
            "model", "pre", "tokens", "token_type", "scores", "merges", "bos_token_id", "unknown_token_id", "add_space_prefix",
            "add_eos_token", "precompiled_charsmap", "remove_extra_whitespaces",
        ];
        let mut metadata = [chat_metadata(), sentencepiece(&[("a", 0.0)]), unigram_metadata()][base].clone();
        for (key, value) in changes {
            metadata = set(metadata, KEYS[key], value);
        }
        if let Ok(tokenizer) = Tokenizer::from_metadata(&metadata)
            && let Ok(ids) = tokenizer.encode_prompt(&written, Special::Parse)
        {
            tokenizer.decode(&ids);
        }
    }
}

/// A file in which `parts` replace those of a plain one.
fn file(parts: &Json) -> String {
    let mut file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": false, "ignore_merges": false,
            "vocab": {
                "<unk>": 0, "a": 1, "b": 2, "ab": 3, "▁": 4, "▁a": 5, "1": 6, "2": 7, "12": 8, ".": 9, "é": 10, "aba": 11,
                "Ġ": 12, "Ġa": 13, "-": 14,
            },
            "merges": [["▁", "a"], ["Ġ", "a"], ["a", "b"], ["1", "2"], ["ab", "a"]],
        },
    });
    for (key, part) in parts.as_object().unwrap() {
        match (&mut file[key], part) {
            (Json::Object(all), Json::Object(part)) => all.extend(part.clone()),
            (whole, part) => *whole = part.clone(),
        }
    }
    file.to_string()
}

fn added(id: u32, content: &str, options: &[&str]) -> Json {
    let has = |option| options.contains(&option);
    json!({
        "id": id, "content": content, "special": has("special"), "lstrip": has("lstrip"), "rstrip": has("rstrip"),
        "single_word": has("single_word"), "normalized": false,
    })
}

#[test]
fn small_files_read_like_the_reference() {
    let metaspace =
        |scheme| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    let sequence = |steps: Json| json!({"type": "Sequence", "pretokenizers": steps});
    let normalizers = |steps: Json| json!({"type": "Sequence", "normalizers": steps});
    let split = |behavior: &str, invert: bool| json!({"type": "Split", "pattern": {"Regex": "a|\\."}, "behavior": behavior, "invert": invert});
    let unigram = json!({"model": {
        "type": "Unigram", "unk_id": 0, "byte_fallback": false,
        "vocab": [["<unk>", 0.0], ["a", -1.0], ["ab", -2.5], ["▁", -2.0], ["▁a", -2.5], ["b", -1.2], ["aba", -3.0]],
    }, "pre_tokenizer": metaspace("always"), "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}});
    let llama = json!([{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]);
    let files = [
        ("plain", json!({})),
        ("no fusing", json!({"model": {"fuse_unk": false}})),
        (
            "whole words",
            json!({"model": {"ignore_merges": true}, "pre_tokenizer": {"type": "WhitespaceSplit"}}),
        ),
        ("merges as text", json!({"model": {"merges": ["a b", "▁ a"]}})),
        ("metaspace first", json!({"pre_tokenizer": metaspace("first")})),
        ("metaspace never", json!({"pre_tokenizer": metaspace("never")})),
        ("metaspace always", json!({"pre_tokenizer": metaspace("always")})),
        (
            "old metaspace",
            json!({"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}}),
        ),
        (
            "bytes",
            json!({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}}),
        ),
        (
            "bytes with space",
            json!({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}}),
        ),
        (
            "falcon",
            json!({"pre_tokenizer": sequence(json!([{"type": "Punctuation", "behavior": "Contiguous"},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}, {"type": "Digits", "individual_digits": false},
            {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": false}])),
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}}),
        ),
        ("digits", json!({"pre_tokenizer": {"type": "Digits", "individual_digits": true}})),
        ("words", json!({"pre_tokenizer": {"type": "Whitespace"}})),
        ("punctuation", json!({"pre_tokenizer": {"type": "Punctuation"}})),
        ("removed", json!({"pre_tokenizer": split("Removed", false)})),
        ("kept", json!({"pre_tokenizer": split("Removed", true)})),
        ("joined before", json!({"pre_tokenizer": split("MergedWithPrevious", false)})),
        ("joined after", json!({"pre_tokenizer": split("MergedWithNext", false)})),
        (
            "normal forms",
            json!({"normalizer": normalizers(json!([{"type": "NFKD"}, {"type": "NFC"}, {"type": "Lowercase"}]))}),
        ),
        ("trimmed", json!({"normalizer": {"type": "Strip", "strip_left": true, "strip_right": true}})),
        (
            "replaced",
            json!({"normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "-"}}),
        ),
        (
            "llama",
            json!({"normalizer": normalizers(json!([{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}])), "decoder": {"type": "Sequence", "decoders": llama}}),
        ),
        ("unigram", unigram),
        (
            "added",
            json!({"added_tokens": [added(0, "<unk>", &["special"]), added(15, "<|x|>", &["special", "lstrip"]),
            added(16, "<t>", &["rstrip"]), added(17, "day", &["single_word"]), added(18, "<|x|>>", &["special"])]}),
        ),
    ];
    let texts = [
        "",
        "a",
        "ab",
        "abab",
        " ab  a",
        "a b",
        "12 a.b",
        "x",
        "xx y",
        "é e\u{301} É",
        "A-B.A",
        " \t\n ",
        "a<|x|>b <|x|>> ",
        "<t>  a",
        "day today day.",
        "aba aba",
        "<unk>a",
        "1234 12.",
        "▁a ▁",
        "ﬁ①",
    ];
    let mut failures = Vec::new();
    for (name, parts) in files {
        let json = file(&parts);
        let ours = Tokenizer::from_json(&json, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        let reference: Reference = json.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        for text in texts {
            // The reference leaves out what it has no token for; we say so.
            let Ok(found) = ours.encode(text, Special::Parse) else { continue };
            let expected = reference.encode(text, false).unwrap().get_ids().to_vec();
            if found != expected {
                failures.push(format!("{name} {text:?}: {found:?}, reference {expected:?}"));
            }
            // It shows the token for unknown text unless that is a special one.
            let expected = reference.decode(&expected, true).unwrap().replace("<unk>", "");
            let found = ours.decode(&found);
            if found != expected {
                failures.push(format!("{name} {text:?}: decoded {found:?}, reference {expected:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn tokenizer_json_that_makes_no_sense_is_an_error() {
    let cases = [
        ("not json", "{".to_owned(), "tokenizer.json: EOF"),
        ("no model", "{}".to_owned(), "missing field `model`"),
        ("no tokens", file(&json!({"model": {"vocab": 1}})), "tokens with ids"),
        (
            "empty",
            file(&json!({"model": json!({"merges": []}), "x": 0})).replace(r#""a":1"#, r#""a":-1"#),
            "invalid value",
        ),
        (
            "far id",
            file(&json!({"added_tokens": [added(4_000_000_000, "x", &[])]})),
            "token 4000000000 in a vocabulary of",
        ),
        ("word pieces", file(&json!({"model": {"type": "WordPiece"}})), "\"WordPiece\" is not supported"),
        ("unigram with ids", file(&json!({"model": {"type": "Unigram"}})), "not that of a Unigram model"),
        ("affix", file(&json!({"model": {"end_of_word_suffix": "</w>"}})), "\"</w>\" is not supported"),
        ("merge of one", file(&json!({"model": {"merges": ["ab"]}})), "a merge of two texts"),
        ("merge of none", file(&json!({"model": {"merges": [[]]}})), "a merge of two texts"),
        ("normalizer", file(&json!({"normalizer": {"type": "Odd"}})), "normalizer \"Odd\" is not supported"),
        (
            "pre-tokenizer",
            file(&json!({"pre_tokenizer": {"type": "Odd"}})),
            "pre-tokenizer \"Odd\" is not supported",
        ),
        ("decoder", file(&json!({"decoder": {"type": "CTC"}})), "decoder \"CTC\" is not supported"),
        (
            "pattern",
            file(
                &json!({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}}),
            ),
            "pattern",
        ),
        (
            "empty pattern",
            file(&json!({"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": ""}})),
            "empty text",
        ),
        (
            "charsmap",
            file(&json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}})),
            "charsmap",
        ),
    ];
    for (name, json, part) in cases {
        let result = Tokenizer::from_json(&json, None);
        let message = result.map(|_| "no error".to_owned()).unwrap_or_else(|error| error.to_string());
        assert!(message.contains(part), "{name}: {message:?} does not say {part:?}");
        assert!(!message.contains('\n'), "{name}: {message:?} is more than a line");
    }
    let plain = file(&json!({}));
    assert!(Tokenizer::from_json(&plain, Some("[")).is_err());
    let config = r#"{"bos_token": {"content": "a"}, "eos_token": "b", "add_bos_token": true}"#;
    let tokenizer = Tokenizer::from_json(&plain, Some(config)).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.adds_bos()), (Some(1), Some(2), true));
}

#[test]
fn a_post_processor_says_what_begins_a_text() {
    let template = json!({"post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {
        "type": "TemplateProcessing", "pair": [], "special_tokens": {},
        "single": [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    }]}});
    let tokenizer = Tokenizer::from_json(&file(&template), None).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.adds_bos(), tokenizer.eos()), (Some(1), true, None));
    let roberta = json!({"post_processor": {"type": "RobertaProcessing", "cls": ["a", 1], "sep": ["b", 2]}});
    let tokenizer = Tokenizer::from_json(&file(&roberta), None).unwrap();
    assert_eq!(tokenizer.encode_prompt("12", Special::Text).unwrap(), [1, 8, 2]);
}

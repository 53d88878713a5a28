//! Hugging Face folders: they open under GGUF's names and keys, or say what is wrong with them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

use hadal::file::metadata::{Array, Value};
use hadal::file::{RopePairs, Weights};
use serde_json::{Value as Json, json};

mod support {
    pub mod safetensors;
}
use support::safetensors::floats;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn folder(config: &Json, files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn refusal(path: &Path) -> String {
    match Weights::open(path) {
        Ok(_) => "opened".to_owned(),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n'), "{message:?}");
            message
        }
    }
}

#[test]
fn a_real_folder_opens_under_gguf_names() {
    let weights = Weights::open(data("austen")).unwrap();
    let config: Json =
        serde_json::from_str(&std::fs::read_to_string(data("austen/config.json")).unwrap()).unwrap();
    let number = |name: &str| config[name].as_u64().unwrap() as usize;
    let (dim, heads, kv) =
        (number("hidden_size"), number("num_attention_heads"), number("num_key_value_heads"));
    let (head, ffn, vocab) = (number("head_dim"), number("intermediate_size"), number("vocab_size"));
    let mut expected =
        vec![("token_embd.weight".into(), vec![vocab, dim]), ("output_norm.weight".into(), vec![dim])];
    let layer: [(&str, Vec<usize>); 9] = [
        ("attn_norm", vec![dim]),
        ("attn_q", vec![heads * head, dim]),
        ("attn_k", vec![kv * head, dim]),
        ("attn_v", vec![kv * head, dim]),
        ("attn_output", vec![dim, heads * head]),
        ("ffn_norm", vec![dim]),
        ("ffn_gate", vec![ffn, dim]),
        ("ffn_up", vec![ffn, dim]),
        ("ffn_down", vec![dim, ffn]),
    ];
    for block in 0..number("num_hidden_layers") {
        expected
            .extend(layer.iter().map(|(name, shape)| (format!("blk.{block}.{name}.weight"), shape.clone())));
    }
    let mut found: Vec<_> =
        weights.tensors.iter().map(|(name, entry)| (name.clone(), entry.shape.clone())).collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    for name in weights.tensors.keys() {
        assert!(
            weights.tensor(name).unwrap().to_f32().unwrap().iter().all(|value| value.is_finite()),
            "{name}"
        );
    }
    let metadata = &weights.metadata;
    assert_eq!(metadata.str("general.architecture").unwrap(), Some("llama"));
    assert_eq!(metadata.str("general.name").unwrap(), Some("austen"));
    assert_eq!(metadata.usize("llama.block_count").unwrap(), Some(number("num_hidden_layers")));
    assert_eq!(metadata.usize("llama.attention.head_count_kv").unwrap(), Some(kv));
    assert_eq!(metadata.usize("llama.attention.key_length").unwrap(), Some(head));
    assert_eq!(metadata.str("llama.activation").unwrap(), config["hidden_act"].as_str());
    assert_eq!(weights.rope_pairs, RopePairs::Halves);
    assert!(weights.tokenizer_json.unwrap().starts_with('{') && weights.tokenizer_config_json.is_some());
}

/// Keys under which config.json and its companions appear.
#[test]
fn configs_become_keys() {
    let text = |text: &str| Value::String(text.into());
    let scaled = json!({"model_type": "llama", "rope_theta": 500000.0, "eos_token_id": [7, 8], "bos_token_id": 1,
        "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}});
    let qwen = json!({"model_type": "qwen2", "sliding_window": 32768, "use_sliding_window": false, "hidden_size": 8,
        "rope_scaling": {"type": "yarn", "factor": 4}, "tie_word_embeddings": true, "head_dim": null});
    let slid = json!({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": true,
        "layer_types": ["full_attention", "chunked_attention"]});
    let gemma = json!({"model_type": "gemma3", "eos_token_id": [1, 106], "text_config": {"model_type": "gemma3_text",
        "hidden_size": 2560, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "query_pre_attn_scalar": 64}});
    let newer = json!({"model_type": "gemma3_text", "_sliding_window_pattern": 4,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 2e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3}}});
    let flat = json!({"model_type": "qwen3", "rope_parameters": {"rope_theta": 3e6, "rope_type": "default"}});
    let strange = json!({"model_type": "mamba9", "num_hidden_layers": 3, "rope_scaling": {"type": "odd"}});
    let cases: Vec<(&Json, &str, Option<Value>)> = vec![
        (&scaled, "llama.rope.freq_base", Some(Value::F32(500000.0))),
        (&scaled, "llama.rope.scaling.type", Some(text("llama3"))),
        (&scaled, "llama.rope.scaling.factor", Some(Value::F32(32.0))),
        (&scaled, "llama.rope.scaling.low_freq_factor", Some(Value::F32(1.0))),
        (&scaled, "llama.rope.scaling.high_freq_factor", Some(Value::F32(4.0))),
        (&scaled, "llama.rope.scaling.original_context_length", Some(Value::U32(8192))),
        (&scaled, "llama.tie_word_embeddings", Some(Value::Bool(false))),
        (&scaled, "llama.activation", Some(text("silu"))),
        (&scaled, "tokenizer.ggml.bos_token_id", Some(Value::U32(1))),
        (&scaled, "tokenizer.ggml.eos_token_id", Some(Value::U32(7))),
        (&scaled, "tokenizer.ggml.eos_token_ids", Some(Value::Array(Array::U32(vec![7, 8])))),
        (&qwen, "qwen2.attention.sliding_window", None),
        (&qwen, "qwen2.rope.scaling.type", Some(text("yarn"))),
        (&qwen, "qwen2.rope.scaling.factor", Some(Value::F32(4.0))),
        (&qwen, "qwen2.tie_word_embeddings", Some(Value::Bool(true))),
        (&qwen, "qwen2.attention.key_length", None),
        (&slid, "qwen2.attention.sliding_window", Some(Value::U32(4096))),
        (&slid, "qwen2.attention.sliding_window_pattern", None),
        (
            &slid,
            "qwen2.attention.layer_types",
            Some(Value::Array(Array::String(["full_attention", "chunked_attention"].into_iter().collect()))),
        ),
        (&gemma, "general.architecture", Some(text("gemma3"))),
        (&gemma, "gemma3.embedding_length", Some(Value::U32(2560))),
        (&gemma, "gemma3.attention.head_count", Some(Value::U32(8))),
        (&gemma, "gemma3.attention.scale", Some(Value::F32(0.125))),
        (&gemma, "gemma3.attention.sliding_window_pattern", Some(Value::U32(6))),
        (&gemma, "gemma3.rope.scaling.type", Some(text("linear"))),
        (&gemma, "gemma3.rope.freq_base_swa", Some(Value::F32(10000.0))),
        (&gemma, "gemma3.activation", Some(text("gelu_pytorch_tanh"))),
        (&gemma, "gemma3.tie_word_embeddings", Some(Value::Bool(true))),
        (&gemma, "tokenizer.ggml.eos_token_ids", Some(Value::Array(Array::U32(vec![1, 106])))),
        (&newer, "gemma3.rope.freq_base", Some(Value::F32(2e6))),
        (&newer, "gemma3.rope.freq_base_swa", Some(Value::F32(5e3))),
        (&newer, "gemma3.rope.scaling.type", None),
        (
            &newer,
            "gemma3.attention.sliding_window_pattern",
            Some(Value::Array(Array::Bool(vec![true, false]))),
        ),
        (&flat, "qwen3.rope.freq_base", Some(Value::F32(3e6))),
        (&flat, "qwen3.rope.scaling.type", None),
        (&flat, "qwen3.attention.key_length", Some(Value::U32(128))),
        (&strange, "general.architecture", Some(text("mamba9"))),
        (&strange, "mamba9.block_count", Some(Value::U32(3))),
        (&strange, "mamba9.rope.scaling.type", Some(text("odd"))),
    ];
    let mut failures = Vec::new();
    for (config, key, expected) in cases {
        let folder = folder(config, &[("model.safetensors", floats(&[]))]);
        let found = Weights::open(folder.path()).unwrap().metadata.get(key).cloned();
        if found != expected {
            failures.push(format!("{key}: {found:?}, expected {expected:?}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn tensors_get_gguf_names() {
    // (model_type, name there, name here)
    let cases = [
        ("llama", "model.embed_tokens.weight", "token_embd.weight"),
        ("llama", "model.layers.12.post_attention_layernorm.weight", "blk.12.ffn_norm.weight"),
        ("llama", "lm_head.weight", "output.weight"),
        (
            "llama",
            "model.layers.0.self_attn.rotary_emb.inv_freq",
            "model.layers.0.self_attn.rotary_emb.inv_freq",
        ),
        ("qwen2", "model.layers.3.self_attn.k_proj.bias", "blk.3.attn_k.bias"),
        ("qwen3", "model.layers.3.self_attn.q_norm.weight", "blk.3.attn_q_norm.weight"),
        ("gemma3_text", "model.layers.1.post_attention_layernorm.weight", "blk.1.post_attention_norm.weight"),
        ("gemma3_text", "model.layers.1.pre_feedforward_layernorm.weight", "blk.1.ffn_norm.weight"),
        ("gemma3_text", "model.layers.1.post_feedforward_layernorm.weight", "blk.1.post_ffw_norm.weight"),
        ("gemma3_text", "language_model.model.norm.weight", "output_norm.weight"),
        ("gemma3_text", "model.language_model.norm.weight", "output_norm.weight"),
        ("gemma3_text", "layers.5.mlp.down_proj.weight", "blk.5.ffn_down.weight"),
        (
            "gemma3_text",
            "vision_tower.encoder.layers.0.mlp.fc1.weight",
            "vision_tower.encoder.layers.0.mlp.fc1.weight",
        ),
        ("mamba9", "model.embed_tokens.weight", "model.embed_tokens.weight"),
    ];
    let mut failures = Vec::new();
    for (model_type, there, here) in cases {
        let folder = folder(
            &json!({"model_type": model_type}),
            &[("model.safetensors", floats(&[(there, &[1], 0.5)]))],
        );
        let weights = Weights::open(folder.path()).unwrap();
        let names: Vec<_> = weights.tensors.keys().collect();
        if names != [here] {
            failures.push(format!("{model_type} {there}: {names:?}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn gemma_norms_are_read_with_one_added() {
    let names: [(&str, &[usize], f32); 4] = [
        ("model.norm.weight", &[4], 0.25),
        ("model.layers.0.input_layernorm.weight", &[4], -0.5),
        ("model.layers.0.self_attn.q_norm.weight", &[4], 1.0),
        ("model.layers.0.mlp.up_proj.weight", &[2, 4], 0.25),
    ];
    for (model_type, one) in [("gemma3_text", 1.0), ("qwen3", 0.0)] {
        let folder = folder(&json!({"model_type": model_type}), &[("model.safetensors", floats(&names))]);
        let weights = Weights::open(folder.path()).unwrap();
        let value = |name: &str| weights.tensor(name).unwrap().to_f32().unwrap()[3];
        assert_eq!(value("output_norm.weight"), 0.25 + one, "{model_type}");
        assert_eq!(value("blk.0.attn_norm.weight"), -0.5 + one, "{model_type}");
        assert_eq!(value("blk.0.attn_q_norm.weight"), 1.0 + one, "{model_type}");
        assert_eq!(value("blk.0.ffn_up.weight"), 0.25, "{model_type}");
    }
}

/// X06, as far as files go: a head beside tied embeddings is left out.
#[test]
fn a_tied_model_has_no_output_matrix() {
    let tensors = floats(&[("model.embed_tokens.weight", &[1], 1.0), ("lm_head.weight", &[1], 2.0)]);
    for (tied, expected) in [(json!(true), false), (json!(false), true), (Json::Null, true)] {
        let config = json!({"model_type": "llama", "tie_word_embeddings": tied});
        let folder = folder(&config, &[("model.safetensors", tensors.clone())]);
        let weights = Weights::open(folder.path()).unwrap();
        assert_eq!(weights.tensors.contains_key("output.weight"), expected, "{tied}");
        assert_eq!(weights.metadata.bool("llama.tie_word_embeddings").unwrap(), Some(!expected));
    }
}

fn index(map: &Json) -> Vec<u8> {
    json!({"metadata": {}, "weight_map": map}).to_string().into_bytes()
}

#[test]
fn shards_are_read_through_their_index() {
    let map = json!({"model.norm.weight": "b.safetensors", "lm_head.weight": "a.safetensors"});
    let files = [
        ("model.safetensors.index.json", index(&map)),
        ("a.safetensors", floats(&[("lm_head.weight", &[2], 3.0), ("unused", &[1], 0.0)])),
        ("b.safetensors", floats(&[("model.norm.weight", &[2], 4.0)])),
    ];
    let folder = folder(&json!({"model_type": "llama"}), &files);
    let weights = Weights::open(folder.path()).unwrap();
    let parts: Vec<_> = weights.parts.iter().map(|part| part.path.file_name().unwrap().to_owned()).collect();
    assert_eq!(parts, ["b.safetensors", "a.safetensors"]);
    assert_eq!(weights.tensors.len(), 2);
    for (name, part, value) in [("output_norm.weight", 0, 4.0), ("output.weight", 1, 3.0)] {
        assert_eq!(weights.tensors[name].part, part);
        assert_eq!(weights.tensor(name).unwrap().to_f32().unwrap(), [value; 2]);
    }
}

#[test]
fn broken_folders_say_what_is_wrong() {
    const INDEX: &str = "model.safetensors.index.json";
    let llama = || json!({"model_type": "llama"});
    let single = || ("model.safetensors", floats(&[("a", &[1], 1.0)]));
    let indexed = |shard: &str| vec![(INDEX, index(&json!({"a": shard})))];
    type Case<'a> = (&'a str, Json, Vec<(&'a str, Vec<u8>)>, &'a [&'a str]);
    let cases: Vec<Case> = vec![
        ("no weights", llama(), vec![], &["model.safetensors"]),
        ("pickle", llama(), vec![("pytorch_model.bin", vec![1])], &["pytorch_model.bin", "convert"]),
        ("no model_type", json!({"a": 1}), vec![single()], &["config.json", "model_type"]),
        ("no object", json!([1]), vec![single()], &["config.json", "JSON"]),
        (
            "twice",
            llama(),
            vec![(
                "model.safetensors",
                floats(&[("model.norm.weight", &[1], 1.0), ("norm.weight", &[1], 1.0)]),
            )],
            &["output_norm.weight", "two tensors"],
        ),
        (
            "cut",
            llama(),
            vec![("model.safetensors", single().1[..20].to_vec())],
            &["model.safetensors", "damaged"],
        ),
        ("empty", llama(), vec![("model.safetensors", vec![])], &["model.safetensors", "damaged"]),
        ("above", llama(), indexed("../a.safetensors"), &[INDEX, "no file of this folder"]),
        ("deep above", llama(), indexed("x/../../a.safetensors"), &[INDEX, "no file of this folder"]),
        ("root", llama(), indexed("/etc/passwd"), &[INDEX, "no file of this folder"]),
        ("nowhere", llama(), indexed(""), &[INDEX, "no file of this folder"]),
        ("missing shard", llama(), indexed("b.safetensors"), &["b.safetensors", "missing"]),
        (
            "missing tensor",
            llama(),
            [indexed("c.safetensors"), vec![("c.safetensors", floats(&[]))]].concat(),
            &[INDEX, "\"a\""],
        ),
        ("index without map", llama(), vec![(INDEX, b"{}".to_vec())], &[INDEX, "weight_map"]),
        ("index no JSON", llama(), vec![(INDEX, b"{".to_vec())], &[INDEX, "JSON"]),
        ("index of numbers", llama(), vec![(INDEX, index(&json!({"a": 1})))], &[INDEX, "\"a\""]),
        (
            "broken tokenizer",
            llama(),
            vec![single(), ("tokenizer_config.json", b"{".to_vec())],
            &["tokenizer_config.json"],
        ),
    ];
    let mut failures = Vec::new();
    for (case, config, files, words) in cases {
        let folder = folder(&config, &files);
        let message = refusal(folder.path());
        if words.iter().any(|word| !message.contains(word)) {
            failures.push(format!("{case}: wanted {words:?} in: {message}"));
        }
    }
    let bare = tempfile::tempdir().unwrap();
    if !refusal(bare.path()).contains("config.json") {
        failures.push(refusal(bare.path()));
    }
    std::fs::write(bare.path().join("x.gguf"), []).unwrap();
    if !refusal(bare.path()).contains("x.gguf") {
        failures.push(refusal(bare.path()));
    }
    let lone = data("austen/model.safetensors");
    if !refusal(&lone).contains("give the folder") {
        failures.push(refusal(&lone));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn templates_and_end_tokens_come_from_their_files() {
    let named = json!({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]});
    let plain = json!({"chat_template": "P", "add_bos_token": false});
    let bytes = |json: &Json| json.to_string().into_bytes();
    let weights = |files: &[(&str, Vec<u8>)]| {
        let config = json!({"model_type": "llama", "eos_token_id": 5});
        let files = [files, &[("model.safetensors", floats(&[]))]].concat();
        Weights::open(folder(&config, &files).path()).unwrap().metadata
    };
    let key = "tokenizer.chat_template";
    let metadata = weights(&[("tokenizer_config.json", bytes(&plain))]);
    assert_eq!(metadata.str(key).unwrap(), Some("P"));
    assert_eq!(metadata.bool("tokenizer.ggml.add_bos_token").unwrap(), Some(false));
    assert_eq!(metadata.i64s("tokenizer.ggml.eos_token_ids").unwrap(), Some(vec![5]));
    let metadata = weights(&[("tokenizer_config.json", bytes(&named))]);
    assert_eq!(metadata.str(key).unwrap(), Some("D"));
    assert_eq!(metadata.str("tokenizer.chat_template.tool_use").unwrap(), Some("T"));
    let generation = bytes(&json!({"eos_token_id": [9, 5], "bos_token_id": null}));
    let metadata = weights(&[
        ("tokenizer_config.json", bytes(&plain)),
        ("chat_template.jinja", b"J".to_vec()),
        ("generation_config.json", generation),
    ]);
    assert_eq!(metadata.str(key).unwrap(), Some("J"));
    assert_eq!(metadata.u32("tokenizer.ggml.eos_token_id").unwrap(), Some(9));
    assert_eq!(metadata.i64s("tokenizer.ggml.eos_token_ids").unwrap(), Some(vec![9, 5]));
}

//! Models of random weights.

use std::path::PathBuf;
use std::sync::Arc;

use hadal::file::{Metadata, RopePairs, Value, Weights};
use hadal::model::{self, Model};
use hadal::tensor::Bytes;

/// Random weights in [-0.5, 0.5), the same on every machine.
fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.f32() - 0.5).collect()
}

/// A small random model of `architecture` whose matrices are stored in `format`. Rows are `hidden` wide, a multiple of
/// the format's block; heads of 32, four to one key/value head; Gemma's windows see 24 tokens.
#[allow(dead_code, reason = "not every test uses all")]
pub fn random_model(architecture: &str, format: &str, hidden: usize) -> Arc<dyn Model> {
    model::load(&random_weights(architecture, format, hidden)).expect("a well-formed model")
}

/// The weights of [`random_model`].
pub fn random_weights(architecture: &str, format: &str, hidden: usize) -> Weights {
    let (heads, kv_heads) = (hidden / 32, (hidden / 128).max(1));
    let format = hadal::quant::Format::by_name(format).expect("a known format");
    let mut weights = Weights {
        path: PathBuf::from("random"),
        metadata: Metadata::default(),
        tensors: indexmap::IndexMap::new(),
        parts: Vec::new(),
        rope_pairs: RopePairs::Gguf,
        tokenizer_json: None,
        tokenizer_config_json: None,
    };
    let mut key = |name: &str, value: Value| {
        weights.metadata.0.insert(name.replace('*', architecture), value);
    };
    key("general.architecture", Value::String(architecture.into()));
    for (name, value) in [
        ("*.block_count", 2),
        ("*.context_length", 4096),
        ("*.embedding_length", hidden as u32),
        ("*.feed_forward_length", hidden as u32),
        ("*.attention.head_count", heads as u32),
        ("*.attention.head_count_kv", kv_heads as u32),
        ("*.attention.key_length", 32),
        ("*.attention.sliding_window_pattern", 2),
    ] {
        key(name, Value::U32(value));
    }
    if architecture == "gemma3" {
        key("*.attention.sliding_window", Value::U32(24));
    }
    key("*.attention.layer_norm_rms_epsilon", Value::F32(1e-6));

    let mut seed = 0;
    let mut add = |name: String, shape: &[usize]| {
        seed += 1;
        let values = noise(seed, shape.iter().product());
        let format = if shape.len() > 1 { format } else { &hadal::quant::f32::FORMAT };
        let values: Vec<f32> = if shape.len() > 1 {
            values.iter().map(|value| value * 0.25).collect()
        } else {
            values.iter().map(|value| value + 1.0).collect()
        };
        let mut bytes = vec![0; format.bytes_for(values.len()).expect("whole blocks")];
        format.encode(&values, &mut bytes).expect("finite");
        let entry = hadal::file::Entry {
            shape: shape.to_vec(),
            type_name: format.name.to_uppercase(),
            type_id: format.gguf_id,
            format: Some(format),
            offset: 0,
            part: 0,
            data: Bytes::Owned(bytes.into()),
        };
        weights.tensors.insert(name, entry);
    };
    add("token_embd.weight".into(), &[64, hidden]);
    add("output_norm.weight".into(), &[hidden]);
    for layer in 0..2 {
        for (name, shape) in [
            ("attn_norm.weight", &[hidden][..]),
            ("attn_q.weight", &[hidden, hidden]),
            ("attn_k.weight", &[kv_heads * 32, hidden]),
            ("attn_v.weight", &[kv_heads * 32, hidden]),
            ("attn_output.weight", &[hidden, hidden]),
            ("attn_q.bias", &[hidden]),
            ("attn_q_norm.weight", &[32]),
            ("attn_k_norm.weight", &[32]),
            ("post_attention_norm.weight", &[hidden]),
            ("ffn_norm.weight", &[hidden]),
            ("ffn_gate.weight", &[hidden, hidden]),
            ("ffn_up.weight", &[hidden, hidden]),
            ("ffn_down.weight", &[hidden, hidden]),
            ("post_ffw_norm.weight", &[hidden]),
        ] {
            add(format!("blk.{layer}.{name}"), shape);
        }
    }
    weights
}

//! A model as `config.json` and `generation_config.json`, from its keys under GGUF's names.

use serde_json::{Map, Value as Json, json};

use super::divisors_of;
use crate::error::{Error, Result};
use crate::file::metadata::Array;
use crate::file::{Value, Weights};
use crate::layers::rope::Scaling;
use crate::model::Config;

/// `general.architecture`, what transformers calls it, and its class.
const NAMES: &[(&str, &str, &str)] = &[
    ("llama", "llama", "LlamaForCausalLM"),
    ("qwen2", "qwen2", "Qwen2ForCausalLM"),
    ("qwen3", "qwen3", "Qwen3ForCausalLM"),
    ("gemma3", "gemma3_text", "Gemma3ForCausalLM"),
];

/// The rules of Llama 3.1 and 3.2: factor, low and high frequency factor, original context. GGUF keeps only what they come
/// to.
const LLAMA3: &[[f64; 4]] = &[[8.0, 1.0, 4.0, 8192.0], [32.0, 1.0, 4.0, 8192.0]];

/// The `config.json` of `weights`, less how they are stored.
///
/// # Errors
/// [`Error::Unsupported`] for an architecture or rope scaling that has no name there, and those of [`Config::read`].
pub fn config(weights: &Weights) -> Result<Map<String, Json>> {
    let config = Config::read(weights)?;
    let architecture = config.architecture.as_str();
    let Some((_, model_type, class)) = NAMES.iter().find(|(name, ..)| *name == architecture) else {
        let known: Vec<_> = NAMES.iter().map(|(name, ..)| *name).collect();
        let hint = format!("{} are", known.join(", "));
        return Err(Error::unsupported("architecture in config.json", architecture, &hint));
    };
    let biased = |name: &str| weights.tensors.contains_key(&format!("blk.0.{name}.bias"));
    let mut json = object(json!({
        "architectures": [class],
        "model_type": model_type,
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "intermediate_size": config.inner,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context,
        "rms_norm_eps": float(config.eps),
        "rope_theta": float(config.rope_base),
        "tie_word_embeddings": !weights.tensors.contains_key("output.weight"),
        "attention_bias": biased("attn_q"),
        "mlp_bias": biased("ffn_gate"),
    }));
    if config.rope_dim != config.head_dim {
        json.insert("partial_rotary_factor".into(), json!(config.rope_dim as f64 / config.head_dim as f64));
    }
    if let Some(scaling) = scaling(&config)? {
        json.insert("rope_scaling".into(), scaling);
    }
    if let Some(window) = config.window {
        json.insert("sliding_window".into(), json!(window));
        json.insert("use_sliding_window".into(), json!(true));
    }
    if architecture == "gemma3" {
        gemma(weights, &config, &mut json)?;
    } else {
        json.insert("hidden_act".into(), json!("silu"));
    }
    json.extend(token_ids(weights)?);
    Ok(json)
}

fn gemma(weights: &Weights, config: &Config, json: &mut Map<String, Json>) -> Result<()> {
    let metadata = &weights.metadata;
    json.insert("hidden_activation".into(), json!("gelu_pytorch_tanh"));
    // The 27B model alone is scaled by hidden / heads, which its GGUF files do not say.
    let usual = if config.layers == 62 { config.hidden / config.heads } else { config.head_dim } as f64;
    let scalar =
        metadata.f32("gemma3.attention.scale")?.map_or(usual, |scale| f64::from(scale).powi(-2).round());
    json.insert("query_pre_attn_scalar".into(), json!(scalar));
    let local = metadata.f32("gemma3.rope.freq_base_swa")?.unwrap_or(10_000.0);
    json.insert("rope_local_base_freq".into(), float(local));
    match metadata.get("gemma3.attention.sliding_window_pattern") {
        Some(Value::Array(Array::Bool(layers))) => {
            let kind = |&sliding: &bool| if sliding { "sliding_attention" } else { "full_attention" };
            json.insert("layer_types".into(), layers.iter().map(kind).collect());
        }
        other => {
            let pattern = other.and_then(Value::integer).unwrap_or(6);
            json.insert("sliding_window_pattern".into(), json!(pattern as i64));
        }
    }
    for (name, cap) in [
        ("attn_logit_softcapping", config.attention_softcap),
        ("final_logit_softcapping", config.final_softcap),
    ] {
        if let Some(cap) = cap {
            json.insert(name.into(), float(cap));
        }
    }
    Ok(())
}

fn scaling(config: &Config) -> Result<Option<Json>> {
    let rule = |[factor, low, high, original]: [f64; 4]| {
        json!({"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": original as u64})
    };
    Ok(Some(match &config.rope_scaling {
        Scaling::None => return Ok(None),
        Scaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        &Scaling::Llama3 { factor, low, high, original } => rule([factor, low, high, original]),
        Scaling::Yarn { factor, original, beta_fast, beta_slow, attention_factor } => json!({
            "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": *original as u64,
            "beta_fast": beta_fast, "beta_slow": beta_slow, "attention_factor": attention_factor}),
        Scaling::Factors(stored) => {
            let fits = |numbers: &&[f64; 4]| {
                let [factor, low, high, original] = **numbers;
                let made = divisors_of(config, &Scaling::Llama3 { factor, low, high, original });
                made.len() == stored.len() && made.iter().zip(stored).all(|(a, b)| (a - b).abs() <= 1e-4 * b)
            };
            let found = LLAMA3.iter().find(fits).copied();
            rule(found.ok_or_else(|| {
                let hint = "the divisors in rope_freqs.weight are those of no rule that we know";
                Error::unsupported("rope scaling in config.json", "rope_freqs.weight", hint)
            })?)
        }
    }))
}

/// Ids of special tokens: all that end an answer, where there are several.
///
/// # Errors
/// [`Error::Key`] for an id that is none.
pub fn token_ids(weights: &Weights) -> Result<Map<String, Json>> {
    let mut ids = Map::new();
    for (name, key) in [("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")] {
        if let Some(id) = weights.metadata.u64(&format!("tokenizer.ggml.{key}_token_id"))? {
            ids.insert(name.into(), json!(id));
        }
    }
    if let Some(Value::Array(ends)) = weights.metadata.get("tokenizer.ggml.eos_token_ids")
        && let Some(ends) = ends.integers().filter(|ends| ends.len() > 1)
    {
        ids.insert("eos_token_id".into(), ends.map(|id| json!(id as u64)).collect());
    }
    Ok(ids)
}

/// The shortest decimal that is this f32.
fn float(value: f32) -> Json {
    value.to_string().parse::<f64>().map_or(Json::Null, |value| json!(value))
}

fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(object) => object,
        _ => Map::new(),
    }
}

//! `config.json` as GGUF keys.

use serde_json::{Map, Value as Json};

use super::names::{Architecture, Assumed};
use crate::file::metadata::{Array, Metadata, Value};

/// Names of config.json and the keys that they become, under the architecture's name: numbers, texts and booleans
/// that keep their meaning. Of two names for one key the first one present counts.
static KEYS: &[(&str, &str)] = &[
    ("vocab_size", "vocab_size"),
    ("max_position_embeddings", "context_length"),
    ("hidden_size", "embedding_length"),
    ("num_hidden_layers", "block_count"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("head_dim", "attention.value_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("_sliding_window_pattern", "attention.sliding_window_pattern"),
    ("sliding_window_pattern", "attention.sliding_window_pattern"),
    ("rope_theta", "rope.freq_base"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    // Ours: GGUF has no key for these three, as each of its architectures has one answer.
    ("hidden_activation", "activation"),
    ("hidden_act", "activation"),
    ("tie_word_embeddings", "tie_word_embeddings"),
];

/// Names inside `rope_scaling` or `rope_parameters` and their keys. GGUF bakes Llama 3's two factors into a tensor
/// and has no keys for them; a folder has no such tensor.
static ROPE_KEYS: &[(&str, &str)] = &[
    ("rope_theta", "rope.freq_base"),
    ("factor", "rope.scaling.factor"),
    ("original_max_position_embeddings", "rope.scaling.original_context_length"),
    ("low_freq_factor", "rope.scaling.low_freq_factor"),
    ("high_freq_factor", "rope.scaling.high_freq_factor"),
    ("attention_factor", "rope.scaling.attn_factor"),
    ("beta_fast", "rope.scaling.yarn_beta_fast"),
    ("beta_slow", "rope.scaling.yarn_beta_slow"),
];

/// A parsed config.json.
pub(super) struct Config {
    json: Map<String, Json>,
}

impl Config {
    /// The object of config.json; in a model with images, its `text_config` overrides what is outside of it.
    pub fn new(mut json: Map<String, Json>) -> Config {
        if let Some(Json::Object(text)) = json.remove("text_config") {
            json.extend(text);
        }
        json.retain(|_, value| !value.is_null());
        Config { json }
    }

    pub fn get(&self, name: &str) -> Option<&Json> {
        self.json.get(name)
    }

    pub fn model_type(&self) -> Option<&str> {
        self.get("model_type")?.as_str()
    }

    /// Fills in what transformers assumes.
    pub fn assume(&mut self, architecture: &Architecture) {
        for (name, value) in architecture.defaults {
            self.json.entry(*name).or_insert_with(|| match *value {
                Assumed::Bool(value) => value.into(),
                Assumed::Integer(value) => value.into(),
                Assumed::Float(value) => value.into(),
                Assumed::Text(value) => value.into(),
            });
        }
    }

    /// Whether the output matrix is the embedding, whatever else the files hold.
    pub fn is_tied(&self) -> bool {
        self.get("tie_word_embeddings") == Some(&Json::Bool(true))
    }

    /// Adds the keys of the architecture that GGUF calls `name`.
    pub fn translate(&self, name: &str, metadata: &mut Metadata) {
        let mut keys = Keys { name, metadata };
        keys.copy(&self.json, KEYS);
        self.attention(&mut keys);
        for rope in ["rope_scaling", "rope_parameters"] {
            if let Some(Json::Object(rope)) = self.get(rope) {
                self.rope(rope, &mut keys);
            }
        }
        if let (Some(dim), Some(part)) = (self.head_dim(), self.number("partial_rotary_factor")) {
            keys.set("rope.dimension_count", Value::U32((dim * part) as u32));
        }
    }

    fn head_dim(&self) -> Option<f64> {
        self.number("head_dim")
            .or_else(|| Some(self.number("hidden_size")? / self.number("num_attention_heads")?))
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    fn attention(&self, keys: &mut Keys) {
        if let Some(scalar) = self.number("query_pre_attn_scalar") {
            keys.set("attention.scale", Value::F32((1.0 / scalar.sqrt()) as f32));
        }
        if let Some(window) = self.get("sliding_window").and_then(value)
            && self.get("use_sliding_window") != Some(&Json::Bool(false))
        {
            keys.set("attention.sliding_window", window);
        }
        let Some(Value::Array(Array::String(layers))) = self.get("layer_types").and_then(value) else {
            return;
        };
        // As GGUF has it: whether each layer has a window. Kinds that are neither are kept by name.
        if layers.iter().all(|layer| ["sliding_attention", "full_attention"].contains(&layer)) {
            let sliding = layers.iter().map(|layer| layer == "sliding_attention").collect();
            keys.replace("attention.sliding_window_pattern", Value::Array(Array::Bool(sliding)));
        } else {
            keys.set("attention.layer_types", Value::Array(Array::String(layers)));
        }
    }

    /// `rope` is flat, or has an object for each kind of layer.
    fn rope(&self, rope: &Map<String, Json>, keys: &mut Keys) {
        if let Some(Json::Object(full)) = rope.get("full_attention") {
            self.rope(full, keys);
        }
        if let Some(Json::Object(sliding)) = rope.get("sliding_attention") {
            if let Some(theta) = sliding.get("rope_theta").and_then(value) {
                keys.replace("rope.freq_base_swa", theta);
            }
            keys.rope_type("rope.scaling.type_swa", sliding);
        }
        if rope.values().any(Json::is_object) {
            return;
        }
        keys.rope_type("rope.scaling.type", rope);
        if let Some(theta) = rope.get("rope_theta").and_then(value) {
            keys.replace("rope.freq_base", theta);
        }
        keys.copy(rope, ROPE_KEYS);
    }
}

/// Where keys of one architecture are put.
struct Keys<'a> {
    name: &'a str,
    metadata: &'a mut Metadata,
}

impl Keys<'_> {
    /// Sets `key` unless it is set.
    fn set(&mut self, key: &str, value: Value) {
        self.metadata.0.entry(format!("{}.{key}", self.name)).or_insert(typed(key, value));
    }

    fn replace(&mut self, key: &str, value: Value) {
        self.metadata.0.insert(format!("{}.{key}", self.name), typed(key, value));
    }

    fn copy(&mut self, from: &Map<String, Json>, table: &[(&str, &str)]) {
        for (name, key) in table {
            if let Some(value) = from.get(*name).and_then(value) {
                self.set(key, value);
            }
        }
    }

    /// The kind of scaling, whichever of its two names it has; `default` is none.
    fn rope_type(&mut self, key: &str, rope: &Map<String, Json>) {
        let kind = rope.get("rope_type").or_else(|| rope.get("type")).and_then(value);
        if let Some(kind) = kind.filter(|kind| *kind != Value::String("default".into())) {
            self.set(key, kind);
        }
    }
}

/// GGUF's readers want floats under these keys; in config.json they may be whole numbers.
static FLOATS: &[&str] = &[
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "rope.freq_base_swa",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "rope.scaling.factor",
    "rope.scaling.low_freq_factor",
    "rope.scaling.high_freq_factor",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
];

fn typed(key: &str, value: Value) -> Value {
    match value.integer() {
        Some(integer) if FLOATS.contains(&key) => Value::F32(integer as f32),
        _ => value,
    }
}

/// A JSON value as metadata, in the types that GGUF's converters write: 32 bits where they do. `None` for null, objects
/// and arrays of several types.
pub(super) fn value(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Bool(value) => Value::Bool(*value),
        Json::String(text) => Value::String(text.clone()),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => u32::try_from(value).map_or(Value::U64(value), Value::U32),
            (None, Some(value)) => i32::try_from(value).map_or(Value::I64(value), Value::I32),
            (None, None) => Value::F32(number.as_f64()? as f32),
        },
        Json::Array(values) => Value::Array(array(values)?),
        Json::Null | Json::Object(_) => return None,
    })
}

fn array(values: &[Json]) -> Option<Array> {
    let texts = || values.iter().map(Json::as_str).collect::<Option<_>>();
    let unsigned = || values.iter().map(|value| u32::try_from(value.as_u64()?).ok()).collect::<Option<_>>();
    let floats = || values.iter().map(|value| Some(value.as_f64()? as f32)).collect::<Option<_>>();
    let bools = || values.iter().map(Json::as_bool).collect::<Option<_>>();
    unsigned()
        .map(Array::U32)
        .or_else(|| floats().map(Array::F32))
        .or_else(|| texts().map(Array::String))
        .or_else(|| bools().map(Array::Bool))
}

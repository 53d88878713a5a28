//! The JSON form of `inspect`: one object with everything.

use hadal::file::metadata::{Array, Value};
use hadal::file::{Entry, Weights};
use serde_json::{Map, Value as Json, json};

use super::report::{Report, Usage, stored_bytes};

/// Longer arrays are given by their beginning, unless all is asked for.
const SHORT: usize = 64;

/// Everything about the model; `full` keeps long arrays whole.
pub fn object(report: &Report, weights: &Weights, full: bool) -> Json {
    let mut object = Map::new();
    object.insert("path".into(), weights.path.display().to_string().into());
    for (_, name, fact) in &report.facts {
        object.insert((*name).into(), value(fact, full));
    }
    object.insert("parameters".into(), report.weights.into());
    object.insert("bytes".into(), report.file_bytes.into());
    object.insert("bits_per_weight".into(), report.total().bits_per_weight().into());
    let files = weights
        .parts
        .iter()
        .map(|part| json!({"path": part.path.display().to_string(), "bytes": part.bytes}));
    object.insert("files".into(), files.collect());
    object.insert("formats".into(), report.formats.iter().map(format).collect());
    if !report.caches.is_empty() {
        object.insert("caches".into(), json!(report.caches));
    }
    let metadata: Map<_, _> =
        weights.metadata.0.iter().map(|(key, own)| (key.clone(), value(own, full))).collect();
    object.insert("metadata".into(), metadata.into());
    object.insert("tensors".into(), weights.tensors.iter().map(tensor).collect());
    object.into()
}

fn format(usage: &Usage) -> Json {
    json!({
        "format": usage.type_name,
        "tensors": usage.tensors,
        "weights": usage.weights,
        "bytes": usage.bytes,
        "bits_per_weight": usage.bits_per_weight(),
    })
}

fn tensor((name, entry): (&String, &Entry)) -> Json {
    json!({
        "name": name,
        "shape": entry.shape,
        "type": entry.type_name,
        "type_id": entry.type_id,
        "bytes": stored_bytes(entry),
        "offset": entry.offset,
        "part": entry.part,
    })
}

fn value(value: &Value, full: bool) -> Json {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => array(values, full),
        numeric => match numeric.integer() {
            Some(integer) => whole(integer),
            None => number(numeric.float().unwrap_or(f64::NAN)),
        },
    }
}

fn array(values: &Array, full: bool) -> Json {
    if let Some(values) = values.integers() {
        return list("integer", values, full, whole);
    }
    if let Some(values) = values.floats() {
        return list("float", values, full, number);
    }
    match values {
        Array::Bool(values) => list("bool", values.iter(), full, |value| (*value).into()),
        Array::String(values) => list("string", values.iter(), full, Json::from),
        Array::Array(values) => list("array", values.iter(), full, |value| array(value, full)),
        _ => Json::Null, // Numbers were above.
    }
}

fn list<T>(
    kind: &str,
    values: impl ExactSizeIterator<Item = T>,
    full: bool,
    json: impl Fn(T) -> Json,
) -> Json {
    let len = values.len();
    if full || len <= SHORT {
        return values.map(json).collect();
    }
    let first: Json = values.take(SHORT).map(json).collect();
    json!({"type": kind, "len": len, "first": first})
}

/// Metadata has at most 64 bits, with or without a sign.
fn whole(integer: i128) -> Json {
    u64::try_from(integer).map_or_else(|_| (integer as i64).into(), Json::from)
}

/// NaN and the infinities, which JSON lacks, become null.
fn number(value: f64) -> Json {
    shortest(value).into()
}

/// The number with the fewest digits that is the same f32, if `value` is one: files store 1e-5 as f32, and
/// 9.999999747378752e-6 is not what anyone wrote.
pub fn shortest(value: f64) -> f64 {
    let narrow = value as f32;
    if f64::from(narrow) == value { narrow.to_string().parse().unwrap_or(value) } else { value }
}

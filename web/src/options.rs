//! Options as JSON: what is absent keeps the library's default.

use hadal::engine::Device;
use hadal::template::Message;
use hadal::{Error, Options, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// How a model is opened.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Open {
    /// `auto`, `webgpu` or `cpu`.
    device: Option<String>,
    context_length: Option<usize>,
    /// Kind of the key/value cache.
    kv: Option<String>,
    batch: Option<usize>,
    threads: Option<usize>,
    /// `floor`: of the GPU no more than every WebGPU device has.
    limits: Option<String>,
    /// Whether the GPU's device will have subgroups, of which wgpu does not know.
    #[serde(default)]
    subgroups: bool,
    /// Whether it was seen to convert all halves.
    #[serde(default)]
    halves: bool,
}

/// How the next token is chosen: the fields of [`hadal::Sampling`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sampling {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repeat_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    dry_multiplier: Option<f32>,
    /// Up to 2⁵³ as a number, above that as text.
    seed: Option<serde_json::Value>,
    stop: Option<Vec<String>>,
    max_tokens: Option<usize>,
}

fn read<T: DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| Error::option("options", error.to_string()))
}

/// Reads [`Open`].
pub fn open(json: &str) -> Result<Options> {
    let asked: Open = read(json)?;
    let defaults = Options::default();
    Ok(Options {
        device: match asked.device.as_deref() {
            Some("cpu") => Device::Cpu,
            Some("webgpu") => Device::Gpu(None),
            Some("auto") | None => Device::Auto,
            Some(other) => {
                let message = format!("{other:?} is not one of \"auto\", \"webgpu\", \"cpu\"");
                return Err(Error::option("option device", message));
            }
        },
        context: asked.context_length,
        cache: asked.kv.map_or(Ok(defaults.cache), |kind| kind.parse())?,
        batch: asked.batch.unwrap_or(defaults.batch),
        threads: asked.threads,
        gpu_floor: asked.limits.as_deref() == Some("floor"),
        gpu_variants: [(asked.halves, "HALVES"), (asked.subgroups, "SUBGROUPS")]
            .into_iter()
            .filter_map(|(has, flag)| has.then_some(flag))
            .collect(),
        ..defaults
    })
}

/// Reads [`Sampling`].
pub fn sampling(json: &str) -> Result<hadal::Sampling> {
    let asked: Sampling = read(json)?;
    let defaults = hadal::Sampling::default();
    Ok(hadal::Sampling {
        temperature: asked.temperature.unwrap_or(defaults.temperature),
        top_k: asked.top_k.unwrap_or(defaults.top_k),
        top_p: asked.top_p.unwrap_or(defaults.top_p),
        min_p: asked.min_p.unwrap_or(defaults.min_p),
        typical_p: asked.typical_p.unwrap_or(defaults.typical_p),
        repeat_penalty: asked.repeat_penalty.unwrap_or(defaults.repeat_penalty),
        presence_penalty: asked.presence_penalty.unwrap_or(defaults.presence_penalty),
        frequency_penalty: asked.frequency_penalty.unwrap_or(defaults.frequency_penalty),
        dry_multiplier: asked.dry_multiplier.unwrap_or(defaults.dry_multiplier),
        seed: asked.seed.map(|seed| self::seed(&seed)).transpose()?,
        stop: asked.stop.unwrap_or(defaults.stop),
        max_tokens: asked.max_tokens,
        ..defaults
    })
}

fn seed(given: &serde_json::Value) -> Result<u64> {
    let seed = given.as_u64().or_else(|| given.as_str()?.parse().ok());
    seed.ok_or_else(|| Error::option("seed", format!("{given} is no whole number of at least 0")))
}

/// The messages before the last one, and its text.
pub fn messages(json: &str) -> Result<(Vec<Message>, String)> {
    let mut messages: Vec<Message> = read(json)?;
    let last = messages.pop().filter(|last| last.role == "user");
    let last = last.ok_or_else(|| Error::option("messages", "the last one has to be the user's"))?;
    Ok((messages, last.content))
}

//! The figures that `inspect` prints, counted from a model's headers.

use hadal::file::{Entry, Value, Weights};

use crate::cli::fit;

/// A model in figures.
pub struct Report<'a> {
    /// Keys that say most, as (caption, JSON name, value); those that the file has.
    pub facts: Vec<(&'static str, &'static str, &'a Value)>,
    /// Weights in all.
    pub weights: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// By type, in order of appearance.
    pub formats: Vec<Usage>,
    /// What caches take; none for a model that we don't run.
    pub caches: Vec<fit::Row>,
}

/// What tensors of one type take.
#[derive(Default)]
pub struct Usage {
    pub type_name: String,
    pub tensors: u64,
    pub weights: u64,
    /// `None` if the type's size is unknown.
    pub bytes: Option<u64>,
}

/// Captions, JSON names and keys; `{}` is the architecture.
static FACTS: &[(&str, &str, &str)] = &[
    ("architecture", "architecture", "general.architecture"),
    ("name", "name", "general.name"),
    ("context", "context_length", "{}.context_length"),
    ("layers", "block_count", "{}.block_count"),
    ("width", "embedding_length", "{}.embedding_length"),
    ("heads", "head_count", "{}.attention.head_count"),
    ("kv heads", "head_count_kv", "{}.attention.head_count_kv"),
];

impl<'a> Report<'a> {
    pub fn new(weights: &'a Weights) -> Report<'a> {
        let metadata = &weights.metadata;
        let architecture = metadata.str("general.architecture").ok().flatten().unwrap_or_default();
        let fact = |&(caption, name, key): &(&'static str, &'static str, &str)| {
            Some((caption, name, metadata.get(&key.replace("{}", architecture))?))
        };
        let mut formats: Vec<Usage> = Vec::new();
        for entry in weights.tensors.values() {
            match formats.iter_mut().find(|usage| usage.type_name == entry.type_name) {
                Some(usage) => usage.add(entry),
                None => {
                    let mut usage =
                        Usage { type_name: entry.type_name.clone(), bytes: Some(0), ..Usage::default() };
                    usage.add(entry);
                    formats.push(usage);
                }
            }
        }
        Report {
            facts: FACTS.iter().filter_map(fact).collect(),
            weights: formats.iter().map(|usage| usage.weights).fold(0, u64::saturating_add),
            file_bytes: weights.parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add),
            formats,
            caches: caches(weights),
        }
    }

    /// All formats together; tensors of unknown size make the sum unknown.
    pub fn total(&self) -> Usage {
        let mut total = Usage { type_name: "all".into(), bytes: Some(0), ..Usage::default() };
        for usage in &self.formats {
            total.tensors += usage.tensors;
            total.weights = total.weights.saturating_add(usage.weights);
            total.bytes = total.bytes.zip(usage.bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        total
    }
}

fn caches(weights: &Weights) -> Vec<fit::Row> {
    let model = hadal::model::load(weights);
    model.map(|model| fit::rows(&model.cache_shape(), model.config().context, None)).unwrap_or_default()
}

impl Usage {
    fn add(&mut self, entry: &Entry) {
        self.tensors += 1;
        self.weights = self.weights.saturating_add(elements(entry));
        self.bytes = self.bytes.zip(stored_bytes(entry)).map(|(sum, bytes)| sum.saturating_add(bytes));
    }

    /// Stored bits for each weight, scales and all.
    pub fn bits_per_weight(&self) -> Option<f64> {
        let bytes = self.bytes.filter(|_| self.weights > 0)?;
        Some(bytes as f64 * 8.0 / self.weights as f64)
    }
}

/// The product of the dimensions. Shapes of unknown types are as the file states them, and may be absurd.
pub fn elements(entry: &Entry) -> u64 {
    entry.shape.iter().fold(1, |product, &dim| product.saturating_mul(dim as u64))
}

/// Bytes that a tensor takes, or `None` if its type's size is unknown.
pub fn stored_bytes(entry: &Entry) -> Option<u64> {
    let bytes = entry.data.len() as u64;
    (bytes > 0 || elements(entry) == 0).then_some(bytes)
}

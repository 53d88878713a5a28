//! What was loaded, in numbers.

use crate::backend::cpu::Cpu;
use crate::cache::{CacheType, KvCache};
use crate::file::Weights;
use crate::model::Config;
use crate::simd::Isa;

/// Facts about a loaded model, for people and for `bench`.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// `general.name`, or the file's name.
    pub name: String,
    /// `general.architecture`.
    pub architecture: String,
    /// The format that most weights are stored in.
    pub format: String,
    /// Weights in all.
    pub parameters: u64,
    /// Bytes of all tensors.
    pub weight_bytes: u64,
    /// Tokens that fit.
    pub context: usize,
    /// Tokens the model was trained for.
    pub trained_context: usize,
    /// Vocabulary entries of the model.
    pub vocab: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Threads in use.
    pub threads: usize,
    /// Instruction set in use.
    pub isa: Isa,
    /// How keys and values are stored.
    pub cache: CacheType,
    /// Bytes of the full key/value cache.
    pub cache_bytes: u64,
    /// Bytes that one more token takes in it.
    pub cache_token_bytes: u64,
    /// Layers that are stored in halves although the cache is quantized, because they have a sliding window.
    pub dense_layers: usize,
}

impl Info {
    pub(super) fn new(weights: &Weights, config: &Config, cpu: &Cpu, cache: &KvCache) -> Self {
        let elements = |shape: &[usize]| shape.iter().product::<usize>() as u64;
        let mut per_format: Vec<(&str, u64)> = Vec::new();
        for entry in weights.tensors.values().filter(|entry| entry.shape.len() > 1) {
            let name = entry.format.map_or(entry.type_name.as_str(), |format| format.name);
            match per_format.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += elements(&entry.shape),
                None => per_format.push((name, elements(&entry.shape))),
            }
        }
        let most = per_format.iter().max_by_key(|(_, count)| *count);
        let file_name = weights.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = weights.metadata.str("general.name").ok().flatten().map(str::to_owned);
        Info {
            name: name.or(file_name).unwrap_or_default(),
            architecture: config.architecture.clone(),
            format: most.map_or_else(String::new, |(name, _)| (*name).to_owned()),
            parameters: weights.tensors.values().map(|entry| elements(&entry.shape)).sum(),
            weight_bytes: weights.tensors.values().map(|entry| entry.data.len() as u64).sum(),
            context: cache.context(),
            trained_context: config.context,
            vocab: config.vocab,
            layers: config.layers,
            threads: cpu.threads(),
            isa: cpu.isa(),
            cache: cache.kind(),
            cache_bytes: cache.bytes(),
            cache_token_bytes: cache.token_bytes(),
            dense_layers: cache.dense_layers(),
        }
    }

    /// Says how `cache` stores keys and values.
    pub(super) fn set_cache(&mut self, cache: &KvCache) {
        (self.cache, self.cache_bytes) = (cache.kind(), cache.bytes());
        (self.cache_token_bytes, self.dense_layers) = (cache.token_bytes(), cache.dense_layers());
    }
}

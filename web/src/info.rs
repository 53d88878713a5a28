//! What was loaded and what runs it.

use serde::Serialize;

/// Facts for programs and people; `ts/types.ts` says what each means.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Info<'a> {
    name: &'a str,
    architecture: &'a str,
    format: &'a str,
    parameters: u64,
    weight_bytes: u64,
    parts: usize,
    context_length: usize,
    trained_context_length: usize,
    vocabulary: usize,
    layers: usize,
    kv: String,
    kv_bytes: u64,
    device: &'a str,
    gpu_layers: usize,
    gpu_bytes: u64,
    threads: usize,
    simd: &'a str,
    can_chat: bool,
}

/// JSON.
pub fn info(engine: &hadal::Engine, parts: usize) -> String {
    let facts = engine.info();
    #[cfg(feature = "gpu")]
    let gpu_bytes = engine.gpu().map_or(0, |device| device.memory_used());
    #[cfg(not(feature = "gpu"))]
    let gpu_bytes = 0;
    let info = Info {
        name: &facts.name,
        architecture: &facts.architecture,
        format: &facts.format,
        parameters: facts.parameters,
        weight_bytes: facts.weight_bytes,
        parts,
        context_length: facts.context,
        trained_context_length: facts.trained_context,
        vocabulary: facts.vocab,
        layers: facts.layers,
        kv: facts.cache.to_string(),
        kv_bytes: facts.cache_bytes,
        // Browsers may keep the name to themselves.
        device: if engine.device().is_empty() { "WebGPU" } else { engine.device() },
        gpu_layers: engine.gpu_layers(),
        gpu_bytes,
        threads: facts.threads,
        simd: facts.isa.name(),
        can_chat: engine.template().is_some(),
    };
    serde_json::to_string(&info).unwrap_or_default()
}

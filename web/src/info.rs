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
    gpu_variants: Vec<&'static str>,
    scratch_bytes: u64,
    module_bytes: u64,
    threads: usize,
    simd: &'a str,
    can_chat: bool,
}

/// Of this module's memory, which grows and never shrinks.
fn module_bytes() -> u64 {
    #[cfg(target_arch = "wasm32")]
    return core::arch::wasm32::memory_size(0) as u64 * 65_536;
    #[cfg(not(target_arch = "wasm32"))]
    0
}

/// JSON.
pub fn info(engine: &hadal::Engine, parts: usize) -> String {
    let facts = engine.info();
    #[cfg(feature = "gpu")]
    let (gpu_bytes, gpu_variants) =
        engine.gpu().map_or((0, vec![]), |device| (device.memory_used(), device.variants().to_vec()));
    #[cfg(not(feature = "gpu"))]
    let (gpu_bytes, gpu_variants) = (0, vec![]);
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
        gpu_variants,
        scratch_bytes: engine.scratch_bytes(),
        module_bytes: module_bytes(),
        threads: facts.threads,
        simd: facts.isa.name(),
        can_chat: engine.template().is_some(),
    };
    serde_json::to_string(&info).unwrap_or_default()
}

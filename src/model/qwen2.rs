//! Qwen2 and Qwen2.5: Llama's graph with biases on query, key and value (Yang et al. 2024).

use std::sync::Arc;

use super::llama::Llama;
use super::load::Loader;
use super::{Architecture, Model};
use crate::error::Result;
use crate::file::Weights;

/// The table row.
pub static ARCHITECTURE: Architecture = Architecture {
    name: "qwen2",
    models: "Qwen2, Qwen2.5, Qwen2.5-Coder, DeepSeek-R1-Distill-Qwen",
    features: "QKV biases, SwiGLU; linear and yarn rope",
    load,
};

fn load(weights: &Weights) -> Result<Arc<dyn Model>> {
    let loader = Loader::new(weights)?;
    let rope = loader.rope(loader.config.rope_base, &loader.config.rope_scaling, false);
    Ok(Arc::new(Llama::load(&loader, rope, |index| loader.attention(index))?))
}

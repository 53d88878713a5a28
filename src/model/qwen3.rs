//! Qwen3: Llama's graph with normalized query and key heads instead of biases (Yang et al. 2025).

use std::sync::Arc;

use super::llama::Llama;
use super::load::Loader;
use super::{Architecture, Model};
use crate::error::Result;
use crate::file::Weights;

/// The table row.
pub static ARCHITECTURE: Architecture = Architecture {
    name: "qwen3",
    models: "Qwen3 (dense)",
    features: "QK-norm, SwiGLU; linear and yarn rope",
    load,
};

fn load(weights: &Weights) -> Result<Arc<dyn Model>> {
    let loader = Loader::new(weights)?;
    let rope = loader.rope(loader.config.rope_base, &loader.config.rope_scaling, false);
    Ok(Arc::new(Llama::load(&loader, rope, |index| loader.normed_attention(index))?))
}

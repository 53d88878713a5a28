//! Hadal runs quantized language models.

pub mod backend;
pub mod cache;

pub mod error;
pub mod file;
pub mod layers;
pub mod math;
pub mod model;
pub mod quant;
pub mod sample;
pub mod simd;
pub mod template;
pub mod tensor;
pub mod tokenizer;

pub use error::{Error, Result};
pub use sample::{Sampler, Sampling};

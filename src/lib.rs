//! Hadal runs quantized language models.

pub mod error;
pub mod file;
pub mod quant;
pub mod sample;
pub mod simd;
pub mod tensor;

pub use error::{Error, Result};
pub use sample::{Sampler, Sampling};

//! Hadal runs quantized language models.

pub mod error;
pub mod file;
pub mod quant;
pub mod simd;
pub mod template;
pub mod tensor;
pub mod tokenizer;

pub use error::{Error, Result};

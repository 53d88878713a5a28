//! Hadal runs quantized language models.

pub mod backend;
pub mod cache;
pub mod engine;
pub mod error;
pub mod eval;
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

pub use engine::{Chat, Engine, Finish, Options};
pub use error::{Error, Result};
pub use sample::{Sampler, Sampling};

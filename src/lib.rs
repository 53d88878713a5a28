//! Hadal runs quantized language models on CPUs: one file, the same answers everywhere.
//!
//! # A first text
//! The library carries a tiny model, so this needs no file:
//! ```
//! use hadal::{Engine, Options, Sampling};
//! # fn main() -> hadal::Result<()> {
//! let mut engine = Engine::embedded(&Options::default())?;
//! let settings = Sampling { max_tokens: Some(12), seed: Some(1), ..Sampling::default() };
//! for piece in engine.generate("It is a truth", &settings)? {
//!     print!("{}", piece?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # A conversation
//! Any GGUF file whose architecture is in [`model::ARCHITECTURES`] will do, or a folder of safetensors:
//! ```no_run
//! use hadal::{Engine, Sampling};
//! # fn main() -> hadal::Result<()> {
//! let mut engine = Engine::open("SmolLM2-135M-Instruct.Q4_1.gguf")?;
//! let mut chat = engine.chat().system("You are terse.");
//! for piece in chat.send("Why is the sky blue?", &Sampling::default()) {
//!     print!("{}", piece?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Tokens and logits
//! ```
//! use hadal::tokenizer::Special;
//! use hadal::{Engine, Options};
//! # fn main() -> hadal::Result<()> {
//! let mut engine = Engine::embedded(&Options::default())?;
//! let tokens = engine.tokenizer().encode("a single man in possession of a good", Special::Text)?;
//! let logits = engine.prefill(&tokens)?;
//! let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("a vocabulary");
//! println!("{}", engine.tokenizer().decode(&[best as u32]));
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//! - [`engine`]: open a model, generate, chat. [`sample`]: how the next token is chosen.
//! - [`tokenizer`] and [`template`]: text to tokens and back, conversations to text.
//! - [`model`]: graphs, the table [`model::ARCHITECTURES`]. [`layers`]: what they are made of. [`backend`]: the operations
//!   under them. [`cache`]: keys and values.
//! - [`file`](mod@file): GGUF and safetensors as names -> [`tensor`]s. [`quant`]: the table [`quant::FORMATS`] of storage formats.
//! - [`quantize`]: making such files. [`convert`]: folders as GGUF. [`embed`]: texts as vectors.
//! - [`simd`] and [`math`]: what makes every machine give the same bits. [`eval`]: perplexity.

pub mod backend;
pub mod cache;
pub mod convert;
pub mod embed;
pub mod engine;
pub mod error;
pub mod eval;
pub mod file;
pub mod layers;
pub mod math;
pub mod model;
pub mod quant;
pub mod quantize;
pub mod sample;
pub mod simd;
pub mod template;
pub mod tensor;
pub mod tokenizer;

pub use engine::{Chat, Engine, Finish, Options};
pub use error::{Error, Result};
pub use sample::{Sampler, Sampling};

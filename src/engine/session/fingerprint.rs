//! What tells models and tokenizers apart: hashes, equal ones of which mean that a cache of one is a cache of the other.

use std::fmt::{self, Write};

use twox_hash::xxhash3_128::Hasher;

use crate::file::{Metadata, Weights};
use crate::tokenizer::Tokenizer;

/// Bytes of each end of a tensor that count.
const END: u64 = 4096;

/// Of a model: its keys, less the tokenizer's, and of each tensor name, shape, type and both ends. A fine-tuned model
/// differs everywhere, and gigabytes are not read only to start.
pub fn model(weights: &Weights) -> String {
    let mut text = Text(Hasher::new());
    let Metadata(keys) = &weights.metadata;
    for (key, value) in keys.iter().filter(|(key, _)| !key.starts_with("tokenizer.")) {
        text.add(format_args!("{key:?} {value:?}\n"));
    }
    for (name, entry) in &weights.tensors {
        let data = &entry.data;
        text.add(format_args!("{name:?} {} {:?} {}\n", entry.type_name, entry.shape, data.len()));
        let size = data.size();
        for end in [0..size.min(END), size.saturating_sub(END)..size] {
            data.slice(end).inspect(|end| text.0.write(end));
        }
    }
    text.hex()
}

/// Of a tokenizer: what each id stands for, and where text ends.
pub fn tokenizer(tokenizer: &Tokenizer) -> String {
    let mut text = Text(Hasher::new());
    for id in 0..tokenizer.vocab_len() as u32 {
        text.add(format_args!("{:?}\n", tokenizer.token(id)));
    }
    text.add(format_args!("{:?} {:?}", tokenizer.bos(), tokenizer.eos()));
    text.hex()
}

/// A hash of text, in which everything is quoted: no two lists give the same.
struct Text(Hasher);

impl Text {
    fn add(&mut self, text: fmt::Arguments) {
        self.write_fmt(text).expect("a hash takes anything");
    }

    fn hex(&self) -> String {
        format!("{:032x}", self.0.finish_128())
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

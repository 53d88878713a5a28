//! Which tokens begin and end a text or an answer.

use crate::error::{Error, Result};
use crate::file::Metadata;

use super::vocabulary::{Kind, Vocabulary};

/// See the methods of [`super::Tokenizer`] of the same names.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub adds_bos: bool,
    pub adds_eos: bool,
    pub stops: Vec<u32>,
}

/// Control tokens that end a turn or a text, whatever else the file says of them.
pub(super) const NAMES: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<turn|>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "</s>",
];

const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const ALSO: [&str; 2] = ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
/// An array, as Hugging Face's generation settings have it.
const LIST: &str = "tokenizer.ggml.eos_token_ids";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";

impl Ends {
    /// Adds what `metadata` says: BOS and EOS unless they are known, and stops.
    ///
    /// # Errors
    /// [`Error::Key`] for an id outside the vocabulary.
    pub fn complete(&mut self, metadata: &Metadata, vocabulary: &Vocabulary) -> Result<()> {
        let checked = |key: &str, id: Option<u64>| match id {
            Some(id) if id >= vocabulary.len() as u64 => {
                Err(Error::key(key, format!("token {id} is outside the vocabulary of {}", vocabulary.len())))
            }
            id => Ok(id.map(|id| id as u32)),
        };
        let id = |key: &str| checked(key, metadata.u64(key)?);
        self.bos = self.bos.or(id(BOS)?);
        let eos = id(EOS)?;
        self.eos = self.eos.or(eos);
        self.stops.extend(eos);
        for key in ALSO {
            self.stops.extend(id(key)?);
        }
        for id in metadata.i64s(LIST)?.unwrap_or_default() {
            let id = u64::try_from(id).map_err(|_| Error::key(LIST, format!("{id} is no token")))?;
            self.stops.extend(checked(LIST, Some(id))?);
        }
        self.adds_bos = metadata.bool(ADD_BOS)?.unwrap_or(self.adds_bos);
        self.adds_eos = metadata.bool(ADD_EOS)?.unwrap_or(self.adds_eos);
        self.add_names(vocabulary);
        Ok(())
    }

    /// Adds the stops that are known by name, and puts them in order.
    pub fn add_names(&mut self, vocabulary: &Vocabulary) {
        self.stops.extend(self.eos);
        let control = |name: &str| vocabulary.id(name).filter(|&id| vocabulary.kind(id) == Kind::Control);
        self.stops.extend(NAMES.iter().filter_map(|name| control(name)));
        // Where answers end with <|return|> or a call, <|end|> only ends one part of them (gpt-oss, solar-open).
        let has = |name| control(name).is_some();
        let parts = (has("<|return|>") && has("<|call|>")) || (has("<|flush|>") && has("<|calls|>"));
        if let Some(end) = control("<|end|>").filter(|&end| parts && self.eos != Some(end)) {
            self.stops.retain(|&id| id != end);
        }
        self.stops.sort_unstable();
        self.stops.dedup();
    }
}

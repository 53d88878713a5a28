//! What becomes of text that no token covers: its characters, their bytes, or one token that says "unknown".

use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};

/// The tokens to fall back to.
#[derive(Debug, Default)]
pub(super) struct Fallback {
    /// By byte, the tokens `<0x00>` to `<0xFF>`.
    pub bytes: Option<Box<[u32; 256]>>,
    /// The token for everything else.
    pub unknown: Option<u32>,
    /// Whether unknown characters in a row are one token.
    pub fuse: bool,
}

impl Fallback {
    /// Appends tokens for `text`, which is not a token as a whole. `in_unknown` says whether the token before stands for
    /// unknown text, and is kept up to date.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if there is nothing to fall back to. Leaving the text out would be worse.
    pub fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        in_unknown: &mut bool,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut buffer = [0; 4];
        for char in text.chars() {
            let char = &*char.encode_utf8(&mut buffer);
            if let Some(id) = vocabulary.text_id(char) {
                ids.push(id);
                *in_unknown = false;
            } else if let Some(bytes) = &self.bytes {
                ids.extend(char.bytes().map(|byte| bytes[usize::from(byte)]));
                *in_unknown = false;
            } else if let Some(unknown) = self.unknown {
                if !(*in_unknown && self.fuse) {
                    ids.push(unknown);
                }
                *in_unknown = true;
            } else {
                return Err(Error::Tokenizer(format!("the vocabulary has no token for {char:?}")));
            }
        }
        Ok(())
    }
}

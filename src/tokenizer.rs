//! Text to tokens and back. [`Tokenizer`] is made from the metadata of a GGUF file or from `tokenizer.json`; it is read-only
//! and shared freely. A text goes through these steps, each in a file of its own: tokens that are found as a whole
//! (`special`), normal forms (`normal`), words (`split`, `pattern`, `pre`), and merging (`bpe`, `unigram`, `fallback`).
//! [`Stream`] turns the tokens of an answer into text as they come.
//!
//! Of the `tokenizers` crate the normal forms are used, and the tests compare with all of it. Its readers and decoders
//! panic on damaged files and its word patterns stop without a word at a million backtracking steps, so those
//! parts are our own.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::file::{Metadata, Weights};

mod alphabet;
mod bpe;
mod charsmap;
mod ends;
mod export;
mod fallback;
mod gguf;
mod json;
mod normal;
mod pattern;
mod pre;
mod shield;
mod special;
mod split;
mod stream;
mod unigram;
mod vocabulary;

pub(crate) use shield::is_mark;
pub use stream::Stream;

use bpe::Bpe;
use ends::Ends;
use normal::Normal;
use shield::Shield;
use special::{Added, Finder, Part};
use split::{After, Step, Words};
use stream::{Pieces, Spelling};
use unigram::Unigram;
use vocabulary::{Kind, Vocabulary};

/// Whether control tokens that are spelled in a text, such as `<|im_end|>`, are those tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// They are: the text is a prompt that a template or a program wrote.
    Parse,
    /// They are letters like any others: a user wrote the text.
    Text,
}

/// Turns text into the ids of tokens and back.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    /// Control tokens and tokens added by hand.
    special: Finder,
    /// Only those added by hand, which are found in every text.
    user: Finder,
    shield: Shield,
    normal: Vec<Normal>,
    steps: Vec<Step>,
    model: Model,
    pieces: Pieces,
    ends: Ends,
}

#[derive(Debug)]
enum Model {
    Bpe(Bpe),
    Unigram(Unigram),
}

/// What the readers of the file formats find.
struct Parts {
    vocabulary: Vocabulary,
    added: Vec<Added>,
    normal: Vec<Normal>,
    steps: Vec<Step>,
    model: Model,
    spelling: Spelling,
    strips_space: bool,
    ends: Ends,
}

pub use export::{Exported, export};
pub(crate) use pre::names as pre_tokenizers;

impl Tokenizer {
    /// The tokenizer of a model: that of `tokenizer.json` if the model has one, else that of its metadata.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`] and [`Tokenizer::from_metadata`].
    pub fn from_weights(weights: &Weights) -> Result<Tokenizer> {
        let Some(json) = &weights.tokenizer_json else { return Tokenizer::from_metadata(&weights.metadata) };
        let mut tokenizer = Tokenizer::from_json(json, weights.tokenizer_config_json.as_deref())?;
        tokenizer.ends.complete(&weights.metadata, &tokenizer.vocabulary)?;
        Ok(tokenizer)
    }

    /// The tokenizer that a GGUF file describes under `tokenizer.ggml`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a kind of tokenizer or pre-tokenizer that is not known, [`Error::MissingKey`],
    /// [`Error::Key`] and [`Error::Tokenizer`] for one that makes no sense.
    pub fn from_metadata(metadata: &Metadata) -> Result<Tokenizer> {
        Tokenizer::new(gguf::read(metadata)?)
    }

    /// The tokenizer in the text of a `tokenizer.json`, with what `tokenizer_config.json` adds: which tokens begin and
    /// end a text.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a part that is not known, [`Error::Tokenizer`] for a file that makes no sense.
    pub fn from_json(json: &str, config_json: Option<&str>) -> Result<Tokenizer> {
        Tokenizer::new(json::read(json, config_json)?)
    }

    fn new(parts: Parts) -> Result<Tokenizer> {
        let Parts { vocabulary, added, normal, steps, model, spelling, strips_space, ends } = parts;
        let controls = added.iter().filter(|token| token.control).map(|token| token.text.as_str());
        Ok(Tokenizer {
            shield: Shield::new(controls)?,
            user: Finder::new(added.iter().filter(|token| !token.control).cloned())?,
            special: Finder::new(added)?,
            pieces: Pieces::new(&vocabulary, &spelling, strips_space),
            vocabulary,
            normal,
            steps,
            model,
            ends,
        })
    }

    /// The tokens of `text` and nothing else: no BOS, no EOS.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the vocabulary has no token for a character.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>> {
        match special {
            Special::Parse => self.encode_parsed(text, Cow::Borrowed),
            Special::Text => {
                let mut ids = Vec::new();
                self.encode_stretch(text, After::Nothing, &mut ids)?;
                Ok(ids)
            }
        }
    }

    /// The tokens of a whole prompt, with BOS and EOS if the model wants them. A BOS that the text itself begins with
    /// is not doubled.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, text: &str, special: Special) -> Result<Vec<u32>> {
        let mut ids = self.encode(text, special)?;
        self.begin(&mut ids, special);
        if let Some(eos) = self.ends.eos.filter(|_| self.ends.adds_eos)
            && (special == Special::Text || ids.last() != Some(&eos))
        {
            ids.push(eos);
        }
        Ok(ids)
    }

    /// The tokens of bytes that need not be UTF-8. What is UTF-8 in them is encoded as [`Special::Text`].
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the vocabulary has no tokens for single bytes, else as [`Tokenizer::encode`].
    pub fn encode_bytes(&self, bytes: &[u8]) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut wrong = Vec::new();
        let mut after = After::Nothing;
        for chunk in bytes.utf8_chunks() {
            if !chunk.valid().is_empty() {
                self.encode_wrong(&std::mem::take(&mut wrong), &mut ids)?;
                self.encode_stretch(chunk.valid(), after, &mut ids)?;
            }
            after = After::Text;
            wrong.extend_from_slice(chunk.invalid());
        }
        self.encode_wrong(&wrong, &mut ids)?;
        Ok(ids)
    }

    /// `text` made safe to put into a chat template: the control tokens that are spelled in it are broken by marks,
    /// which [`Tokenizer::encode_rendered`] takes out again. Only what users wrote may be shielded, not roles.
    pub fn shield<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.shield.raise(text)
    }

    /// The tokens of a rendered chat template: its control tokens are tokens, those spelled in shielded text are
    /// letters, and there is one BOS if the model wants one.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_rendered(&self, rendered: &str) -> Result<Vec<u32>> {
        let mut ids = self.encode_parsed(rendered, |stretch| self.shield.lower(stretch))?;
        self.begin(&mut ids, Special::Parse);
        Ok(ids)
    }

    /// The text of `ids`, without control tokens. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.decode_with(ids, false)
    }

    /// The text of `ids`, with the spelling of control tokens if `show_control`.
    pub fn decode_with(&self, ids: &[u32], show_control: bool) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.piece(id, show_control)).copied().collect();
        let stripped = bytes.strip_prefix(b" ").filter(|_| self.pieces.strips_space);
        String::from_utf8_lossy(stripped.unwrap_or(&bytes)).into_owned()
    }

    /// A decoder for ids that come one by one and are a text of their own, such as an answer. It leaves out control
    /// tokens.
    pub fn stream(&self) -> Stream {
        self.stream_with(false)
    }

    /// As [`Tokenizer::stream`], with the spelling of control tokens if `show_control`.
    pub fn stream_with(&self, show_control: bool) -> Stream {
        Stream::new(false, show_control)
    }

    /// A decoder for ids that continue the text of `before`: a space at their beginning is part of it.
    pub fn stream_after(&self, before: &[u32]) -> Stream {
        Stream::new(before.iter().any(|&id| !self.piece(id, false).is_empty()), false)
    }

    /// Ids are smaller than this.
    pub fn vocab_len(&self) -> usize {
        self.vocabulary.len()
    }

    /// The spelling of `id` in the file, if there is such a token.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.vocabulary.token(id)
    }

    /// The id of the token that the file spells `token`.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.vocabulary.id(token)
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.ends.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.ends.eos
    }

    /// Whether a prompt begins with [`Tokenizer::bos`].
    pub fn adds_bos(&self) -> bool {
        self.ends.adds_bos && self.ends.bos.is_some()
    }

    /// The tokens after which an answer is over: what the file, the tokenizer and the generation settings name, and
    /// control tokens that mean it by their name. Ascending.
    pub fn stops(&self) -> &[u32] {
        &self.ends.stops
    }

    /// Whether `id` is structure rather than text: a control token, or the one for unknown text.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.vocabulary.kind(id), Kind::Control | Kind::Unknown)
    }

    /// The bytes that `id` adds to a text, which may be part of a character; none for a control token unless
    /// `show_control`, and none for an id without a token.
    pub fn piece(&self, id: u32, show_control: bool) -> &[u8] {
        if !show_control && self.vocabulary.is_hidden(id) { &[] } else { self.pieces.get(id) }
    }

    fn begin(&self, ids: &mut Vec<u32>, special: Special) {
        if let Some(bos) = self.ends.bos.filter(|_| self.ends.adds_bos)
            && (special == Special::Text || ids.first() != Some(&bos))
        {
            ids.insert(0, bos);
        }
    }

    /// Encodes a text in which control tokens count; what lies between them goes through `clean`.
    fn encode_parsed<'a>(&self, text: &'a str, clean: impl Fn(&'a str) -> Cow<'a, str>) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut after = After::Nothing;
        for part in self.special.cut(text, |token| token.control) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(stretch) => self.encode_stretch(&clean(stretch), after, &mut ids)?,
            }
            after = After::Token;
        }
        Ok(ids)
    }

    /// Encodes text in which only tokens added by hand count.
    fn encode_stretch(&self, text: &str, mut after: After, ids: &mut Vec<u32>) -> Result<()> {
        for part in self.user.cut(text, |_| true) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(plain) => self.encode_plain(plain, after, ids)?,
            }
            after = After::Token;
        }
        Ok(())
    }

    fn encode_plain(&self, text: &str, after: After, ids: &mut Vec<u32>) -> Result<()> {
        let mut text = Cow::Borrowed(text);
        for step in &self.normal {
            if !(matches!(step, Normal::Prepend(_)) && after == After::Text) {
                text = step.apply(text)?;
            }
        }
        let mut words = Words::new(text.into_owned());
        for step in &self.steps {
            step.apply(&mut words, after)?;
        }
        words.iter().try_for_each(|word| self.encode_word(word, ids))
    }

    fn encode_word(&self, word: &str, ids: &mut Vec<u32>) -> Result<()> {
        match &self.model {
            Model::Bpe(bpe) => bpe.encode(&self.vocabulary, word, ids),
            Model::Unigram(unigram) => unigram.encode(&self.vocabulary, word, ids),
        }
    }

    /// Encodes bytes that are no UTF-8.
    fn encode_wrong(&self, bytes: &[u8], ids: &mut Vec<u32>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.steps.iter().any(|step| matches!(step, Step::Bytes)) {
            let mut word = String::new();
            alphabet::spell(bytes, &mut word);
            return self.encode_word(&word, ids);
        }
        let tokens = self.vocabulary.byte_ids().ok_or_else(|| {
            Error::Tokenizer(format!("byte {:#04X} is not UTF-8, and there are no byte tokens", bytes[0]))
        })?;
        ids.extend(bytes.iter().map(|&byte| tokens[usize::from(byte)]));
        Ok(())
    }
}

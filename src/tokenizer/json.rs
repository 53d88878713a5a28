//! The tokenizer in `tokenizer.json`, the format of the `tokenizers` library, and what `tokenizer_config.json` adds to it.

use serde::Deserialize;

use super::bpe::Bpe;
use super::ends::Ends;
use super::fallback::Fallback;
use super::special::Added;
use super::unigram::Unigram;
use super::vocabulary::{Kind, Vocabulary, byte_token, looks_like_control};
use super::{Model, Parts};
use crate::error::{Error, Result};

mod decoder;
mod normalizer;
mod pre_tokenizer;
mod tokens;

use tokens::{Merge, Tokens};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<normalizer::Normalizer>,
    pre_tokenizer: Option<pre_tokenizer::PreTokenizer>,
    post_processor: Option<PostProcessor>,
    decoder: Option<decoder::Decoder>,
    model: ModelFile,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    special: bool,
}

/// BPE and Unigram in one: a tagged enum would hold the whole vocabulary twice while it is read.
#[derive(Deserialize)]
struct ModelFile {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: Tokens,
    #[serde(default)]
    merges: Vec<Merge>,
    unk_token: Option<String>,
    unk_id: Option<u32>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

/// Which tokens a text is put between; the rest of it concerns offsets.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum PostProcessor {
    TemplateProcessing {
        single: Vec<TemplatePiece>,
    },
    #[serde(alias = "BertProcessing")]
    RobertaProcessing {
        cls: (String, u32),
        sep: (String, u32),
    },
    Sequence {
        processors: Vec<PostProcessor>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
enum TemplatePiece {
    SpecialToken { id: String },
    Sequence {},
}

#[derive(Default, Deserialize)]
struct Config {
    bos_token: Option<ConfigToken>,
    eos_token: Option<ConfigToken>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ConfigToken {
    Text(String),
    Token { content: String },
}

/// Ids may leave out this many: no more is allocated for a vocabulary than its file is long.
const MAX_UNUSED: usize = 1 << 16;

/// Reads the tokenizer.
pub(super) fn read(json: &str, config_json: Option<&str>) -> Result<Parts> {
    let wrong = |file: &str, error| Error::Tokenizer(format!("{file}: {error}"));
    let file: File = serde_json::from_str(json).map_err(|error| wrong("tokenizer.json", error))?;
    let config: Config = match config_json {
        Some(json) => serde_json::from_str(json).map_err(|error| wrong("tokenizer_config.json", error))?,
        None => Config::default(),
    };
    let File { added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model } = file;
    let vocabulary = vocabulary(&model, &added_tokens)?;
    let steps = pre_tokenizer.map_or(Ok(Vec::new()), pre_tokenizer::PreTokenizer::steps)?;
    let (spelling, strips_space) = decoder::spelling(decoder, &steps, model.byte_fallback)?;
    Ok(Parts {
        added: added_tokens.into_iter().map(|token| added(token, &vocabulary)).collect(),
        normal: normalizer.map_or(Ok(Vec::new()), normalizer::Normalizer::steps)?,
        steps,
        ends: ends(&config, post_processor.as_ref(), &vocabulary),
        model: merging(model, &vocabulary)?,
        spelling,
        strips_space,
        vocabulary,
    })
}

fn vocabulary(model: &ModelFile, added: &[AddedToken]) -> Result<Vocabulary> {
    let count = model.vocab.len() + added.len();
    let ids = model.vocab.ids().chain(added.iter().map(|token| token.id));
    let len = ids.max().map_or(0, |last| last as usize + 1);
    if len > count + MAX_UNUSED {
        return Err(Error::Tokenizer(format!("token {} in a vocabulary of {count}", len - 1)));
    }
    let mut tokens: Vec<(&str, Kind)> = vec![("", Kind::Unused); len];
    for (text, id) in model.vocab.iter() {
        let kind = if Some(text) == model.unk_token.as_deref() || Some(id) == model.unk_id {
            Kind::Unknown
        } else if model.byte_fallback && byte_token(text).is_some() {
            Kind::Byte
        } else {
            Kind::Normal
        };
        tokens[id as usize] = (text, kind);
    }
    for token in added {
        let control = token.special || looks_like_control(&token.content);
        let kind = if control { Kind::Control } else { Kind::User };
        tokens[token.id as usize] = (&token.content, kind);
    }
    Vocabulary::new(tokens)
}

fn added(token: AddedToken, vocabulary: &Vocabulary) -> Added {
    Added {
        id: token.id,
        control: vocabulary.kind(token.id) == Kind::Control,
        text: token.content,
        strip_left: token.lstrip,
        strip_right: token.rstrip,
        single_word: token.single_word,
    }
}

fn merging(model: ModelFile, vocabulary: &Vocabulary) -> Result<Model> {
    let kind = model.kind.as_deref().unwrap_or("BPE");
    let unknown = match (&model.unk_token, model.unk_id) {
        (Some(text), _) => vocabulary.id(text),
        (None, id) => id.filter(|&id| vocabulary.token(id).is_some()),
    };
    let bytes = model.byte_fallback.then(|| vocabulary.byte_ids()).flatten();
    match (kind, model.vocab) {
        ("BPE", Tokens::Listed(_)) => {
            for affix in [model.continuing_subword_prefix, model.end_of_word_suffix] {
                if let Some(affix) = affix.filter(|affix| !affix.is_empty()) {
                    return Err(Error::unsupported("word affix in tokenizer.json", affix, ""));
                }
            }
            let merges = model.merges.iter().map(|Merge(left, right)| (left.as_str(), right.as_str()));
            let fallback = Fallback { bytes, unknown, fuse: model.fuse_unk };
            Bpe::listed(vocabulary, merges, model.ignore_merges, fallback).map(Model::Bpe)
        }
        ("Unigram", Tokens::Scored(tokens)) => {
            let mut scores = vec![0.0; vocabulary.len()];
            for (score, (_, value)) in scores.iter_mut().zip(&tokens) {
                *score = *value as f32;
            }
            let fallback = Fallback { bytes, unknown, fuse: true };
            Unigram::new(vocabulary, scores, fallback).map(Model::Unigram)
        }
        ("BPE" | "Unigram", _) => {
            Err(Error::Tokenizer(format!("the vocabulary is not that of a {kind} model")))
        }
        (other, _) => Err(Error::unsupported("tokenizer", other, "BPE and Unigram are")),
    }
}

fn ends(config: &Config, post_processor: Option<&PostProcessor>, vocabulary: &Vocabulary) -> Ends {
    let named = |token: &Option<ConfigToken>| match token {
        Some(ConfigToken::Text(text) | ConfigToken::Token { content: text }) => vocabulary.id(text),
        None => None,
    };
    let (first, last) = post_processor.map_or((None, None), |processor| processor.around(vocabulary));
    let (bos, eos) = (named(&config.bos_token), named(&config.eos_token));
    let mut ends = Ends {
        adds_bos: config.add_bos_token.unwrap_or(first.is_some()),
        adds_eos: config.add_eos_token.unwrap_or(last.is_some()),
        bos: bos.or(first),
        eos: eos.or(last),
        stops: Vec::new(),
    };
    ends.add_names(vocabulary);
    ends
}

impl PostProcessor {
    /// The tokens before and after a text.
    fn around(&self, vocabulary: &Vocabulary) -> (Option<u32>, Option<u32>) {
        let token = |piece: Option<&TemplatePiece>| match piece {
            Some(TemplatePiece::SpecialToken { id }) => vocabulary.id(id),
            _ => None,
        };
        match self {
            PostProcessor::TemplateProcessing { single } => (token(single.first()), token(single.last())),
            PostProcessor::RobertaProcessing { cls, sep } => (vocabulary.id(&cls.0), vocabulary.id(&sep.0)),
            PostProcessor::Sequence { processors } => processors
                .iter()
                .map(|each| each.around(vocabulary))
                .fold((None, None), |all, each| (all.0.or(each.0), all.1.or(each.1))),
            PostProcessor::Other => (None, None),
        }
    }
}

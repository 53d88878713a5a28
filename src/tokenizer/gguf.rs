//! The tokenizer in the metadata of a GGUF file, keys `tokenizer.ggml.*`.

use super::bpe::Bpe;
use super::charsmap::Charsmap;
use super::ends::{Ends, NAMES};
use super::fallback::Fallback;
use super::normal::Normal;
use super::pattern::Pattern;
use super::special::Added;
use super::stream::Spelling;
use super::unigram::Unigram;
use super::vocabulary::{Kind, Vocabulary, byte_token, looks_like_control};
use super::{Model, Parts, pre};
use crate::error::{Error, Result};
use crate::file::Metadata;

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
const ADD_SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
const REMOVE_EXTRA_WHITESPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";

/// Stands for a space in SentencePiece vocabularies.
const SPACE: &str = "▁";

/// Reads the tokenizer.
pub(super) fn read(metadata: &Metadata) -> Result<Parts> {
    match metadata.required(MODEL, metadata.str(MODEL)?)? {
        "gpt2" => byte_level(metadata),
        "llama" => sentencepiece(metadata),
        "t5" | "unigram" => unigram(metadata),
        other => Err(Error::unsupported("tokenizer", other, "gpt2, llama and t5 are")),
    }
}

/// Byte-pair encoding over bytes, with listed merges.
fn byte_level(metadata: &Metadata) -> Result<Parts> {
    let vocabulary = vocabulary(metadata)?;
    let name = metadata.str(PRE)?.unwrap_or_else(|| {
        tracing::warn!("the file has no {PRE}: words are cut by a guess, and answers may be worse for it");
        pre::DEFAULT
    });
    let cutting = pre::cutting(name)?;
    let merges = metadata.required(MERGES, metadata.strs(MERGES)?)?;
    if let Some((line, merge)) = merges.iter().enumerate().find(|(_, merge)| split_merge(merge).is_none()) {
        return Err(Error::key(MERGES, format!("entry {line}, {merge:?}, is not two texts")));
    }
    let pairs = merges.iter().filter_map(split_merge);
    let fallback = Fallback { unknown: unknown(metadata, &vocabulary)?, ..Fallback::default() };
    let bpe = Bpe::listed(&vocabulary, pairs, cutting.whole_words, fallback)?;
    let mut ends = Ends { adds_bos: cutting.adds_bos, ..Ends::default() };
    ends.complete(metadata, &vocabulary)?;
    Ok(Parts {
        added: added(&vocabulary),
        normal: cutting.normal,
        steps: cutting.steps,
        model: Model::Bpe(bpe),
        spelling: Spelling::Bytes,
        strips_space: false,
        ends,
        vocabulary,
    })
}

/// The two texts of a merge, which a space separates. The first may itself be a space.
pub(super) fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge[first..].find(' ')?;
    let (left, right) = (&merge[..space], &merge[space + 1..]);
    (!right.is_empty()).then_some((left, right))
}

/// SentencePiece's byte-pair encoding, with scores.
fn sentencepiece(metadata: &Metadata) -> Result<Parts> {
    let vocabulary = vocabulary(metadata)?;
    let scores = scores(metadata, &vocabulary)?;
    let bytes = vocabulary.byte_ids();
    let unknown = unknown(metadata, &vocabulary)?.or_else(|| usual(&vocabulary, 0));
    let bpe = Bpe::scored(&scores, Fallback { bytes, unknown, fuse: true })?;
    let prefix = metadata.bool(ADD_SPACE_PREFIX)?.unwrap_or(true);
    let mut normal = vec![Normal::Replace { pattern: Pattern::Literal(" ".into()), content: SPACE.into() }];
    if prefix {
        normal.insert(0, Normal::Prepend(" ".into()));
    }
    // The ids that SentencePiece itself gives <s> and </s>.
    let (bos, eos) = (usual(&vocabulary, 1), usual(&vocabulary, 2));
    let mut ends = Ends { adds_bos: true, ..Ends::default() };
    ends.complete(metadata, &vocabulary)?;
    ends.bos = ends.bos.or(bos);
    if ends.eos.is_none() {
        ends.eos = eos;
        ends.add_names(&vocabulary);
    }
    Ok(Parts {
        added: added(&vocabulary),
        normal,
        steps: Vec::new(),
        model: Model::Bpe(bpe),
        spelling: spelling(),
        strips_space: prefix,
        ends,
        vocabulary,
    })
}

/// SentencePiece's unigram model.
fn unigram(metadata: &Metadata) -> Result<Parts> {
    let vocabulary = vocabulary(metadata)?;
    let scores = scores(metadata, &vocabulary)?;
    let unknown = unknown(metadata, &vocabulary)?.or_else(|| usual(&vocabulary, 2));
    let fallback = Fallback { bytes: vocabulary.byte_ids(), unknown, fuse: true };
    let model = Unigram::new(&vocabulary, scores, fallback)?;
    let prefix = metadata.bool(ADD_SPACE_PREFIX)?.unwrap_or(true);
    let mut normal = Vec::new();
    if let Some(bytes) = metadata.i64s(CHARSMAP)? {
        // The array may be of signed bytes.
        let bytes: Vec<u8> = bytes.into_iter().map(|byte| byte as u8).collect();
        normal.push(Normal::Charsmap(Charsmap::new(&bytes)?));
    }
    let replace = |pattern, content: &str| {
        Pattern::new(pattern).map(|pattern| Normal::Replace { pattern, content: content.to_owned() })
    };
    if metadata.bool(REMOVE_EXTRA_WHITESPACES)?.unwrap_or(false) {
        normal.push(replace("^ +| +$", "")?);
        normal.push(replace(" {2,}", " ")?);
    }
    if prefix {
        normal.push(Normal::Prepend(" ".into()));
    }
    normal.push(replace(" ", SPACE)?);
    let mut ends = Ends { adds_eos: true, ..Ends::default() };
    ends.complete(metadata, &vocabulary)?;
    Ok(Parts {
        added: added(&vocabulary),
        normal,
        steps: Vec::new(),
        model: Model::Unigram(model),
        spelling: spelling(),
        strips_space: prefix,
        ends,
        vocabulary,
    })
}

fn spelling() -> Spelling {
    Spelling::Replaced { replacements: vec![(SPACE.into(), " ".into())], byte_tokens: true }
}

/// `id`, if the vocabulary uses it for what it is used for by default.
fn usual(vocabulary: &Vocabulary, id: u32) -> Option<u32> {
    matches!(vocabulary.kind(id), Kind::Control | Kind::Unknown).then_some(id)
}

fn unknown(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Option<u32>> {
    match metadata.u64(UNKNOWN)? {
        Some(id) if id >= vocabulary.len() as u64 => {
            let message = format!("token {id} is outside the vocabulary of {}", vocabulary.len());
            Err(Error::key(UNKNOWN, message))
        }
        id => Ok(id.map(|id| id as u32)),
    }
}

fn vocabulary(metadata: &Metadata) -> Result<Vocabulary> {
    let tokens = metadata.required(TOKENS, metadata.strs(TOKENS)?)?;
    let kinds = match metadata.i64s(TOKEN_TYPE)? {
        Some(types) if types.len() != tokens.len() => {
            return Err(Error::key(TOKEN_TYPE, format!("{} types for {} tokens", types.len(), tokens.len())));
        }
        Some(types) => types
            .into_iter()
            .map(|number| {
                Kind::from_gguf(number)
                    .ok_or_else(|| Error::key(TOKEN_TYPE, format!("there is no type {number}")))
            })
            .collect::<Result<Vec<_>>>()?,
        None => tokens.iter().map(kind_by_spelling).collect(),
    };
    Vocabulary::new(tokens.iter().zip(kinds).map(|(text, kind)| {
        let control = looks_like_control(text) && (kind == Kind::User || NAMES.contains(&text));
        if control && kind == Kind::Normal {
            tracing::warn!(
                "token {text:?} is text by its type, but ends answers by its name: taken for a control token"
            );
        }
        (text, if control { Kind::Control } else { kind })
    }))
}

/// The kind of a token in a file without types.
fn kind_by_spelling(text: &str) -> Kind {
    if byte_token(text).is_some() {
        Kind::Byte
    } else if text == "<unk>" {
        Kind::Unknown
    } else if matches!(text, "<s>" | "<bos>") || NAMES.contains(&text) || looks_like_control(text) {
        Kind::Control
    } else {
        Kind::Normal
    }
}

/// By id.
fn scores(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Vec<f32>> {
    let scores = metadata.required(SCORES, metadata.f32s(SCORES)?)?;
    if scores.len() != vocabulary.len() {
        return Err(Error::key(SCORES, format!("{} scores for {} tokens", scores.len(), vocabulary.len())));
    }
    Ok(scores)
}

/// The tokens that are found as a whole.
fn added(vocabulary: &Vocabulary) -> Vec<Added> {
    let whole = vocabulary.iter().filter(|(id, text, kind)| {
        // A second token of the same text is never found.
        matches!(kind, Kind::Control | Kind::Unknown | Kind::User) && vocabulary.id(text) == Some(*id)
    });
    let added = whole.map(|(id, text, kind)| Added {
        id,
        text: text.to_owned(),
        control: kind != Kind::User,
        strip_left: false,
        strip_right: false,
        single_word: false,
    });
    added.collect()
}

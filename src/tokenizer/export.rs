//! The tokenizer of a GGUF file as `tokenizer.json` and `tokenizer_config.json`.

use serde_json::{Map, Value as Json, json};

use super::gguf::split_merge;
use super::vocabulary::Kind;
use super::{Special, Tokenizer, pre};
use crate::error::{Error, Result};
use crate::file::Metadata;

/// Stands for a space in SentencePiece vocabularies.
const SPACE: &str = "▁";

/// What differs between tokenizers: scripts, digits, spaces, line ends, what is in no vocabulary.
const PROBE: &str =
    "  Hello,\tworld!\n\n It's 12345 déjà-vu ü 歪🚀\u{1f9ff} naïve camelCase x_1 <b>&\r\n   end ";

/// Two JSON files.
#[derive(Clone, Debug)]
pub struct Exported {
    /// `tokenizer.json`.
    pub tokenizer: Json,
    /// `tokenizer_config.json`.
    pub config: Json,
}

/// The tokenizer under `tokenizer.ggml`, in the format of the `tokenizers` library.
///
/// # Errors
/// Those of [`Tokenizer::from_metadata`]; [`Error::Unsupported`] for a kind that has no counterpart, or one that cuts a test
/// text in another way.
pub fn export(metadata: &Metadata) -> Result<Exported> {
    let original = Tokenizer::from_metadata(metadata)?;
    let kind = metadata.str("tokenizer.ggml.model")?.unwrap_or_default();
    let mut file = match kind {
        "gpt2" => byte_level(metadata, &original)?,
        "llama" => sentencepiece(metadata, &original)?,
        other => return Err(Error::unsupported("tokenizer in tokenizer.json", other, "gpt2 and llama are")),
    };
    file.insert("version".into(), json!("1.0"));
    file.insert("added_tokens".into(), added(&original));
    file.insert("post_processor".into(), post_processor(&original));
    let exported = Exported { tokenizer: Json::Object(file), config: config(metadata, &original)? };
    let copy = Tokenizer::from_json(&exported.tokenizer.to_string(), Some(&exported.config.to_string()))?;
    if copy.encode(PROBE, Special::Text)? != original.encode(PROBE, Special::Text)? {
        let hint = "the copy in tokenizer.json cuts a text in another way";
        return Err(Error::unsupported("tokenizer in tokenizer.json", kind, hint));
    }
    Ok(exported)
}

/// Tokens and ids, but those that stand for nothing, and the second of two that are spelled alike.
fn vocabulary(tokenizer: &Tokenizer, keep: impl Fn(Kind) -> bool) -> Map<String, Json> {
    let tokens = tokenizer.vocabulary.iter().filter(|(id, text, kind)| {
        keep(*kind) && *kind != Kind::Unused && tokenizer.vocabulary.id(text) == Some(*id)
    });
    tokens.map(|(id, text, _)| (text.to_owned(), json!(id))).collect()
}

fn byte_level(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Map<String, Json>> {
    let pre::Shown { patterns, nfc, whole_words } =
        pre::shown(metadata.str("tokenizer.ggml.pre")?.unwrap_or(pre::DEFAULT))?;
    let merges = metadata.required("tokenizer.ggml.merges", metadata.strs("tokenizer.ggml.merges")?)?;
    let merges: Vec<_> =
        merges.iter().filter_map(split_merge).map(|(left, right)| json!([left, right])).collect();
    let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let steps: Vec<Json> = patterns.iter().map(split).chain([bytes.clone()]).collect();
    let file = json!({
        "normalizer": if nfc { json!({"type": "NFC"}) } else { Json::Null },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": bytes,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": whole_words,
            "vocab": vocabulary(tokenizer, |kind| !matches!(kind, Kind::Control | Kind::User)),
            "merges": merges,
        },
    });
    Ok(object(file))
}

fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(object) => object,
        _ => Map::new(),
    }
}

/// Merges are what scores come to: every way to cut a token in two, best tokens first.
fn sentencepiece(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Map<String, Json>> {
    let scores = metadata.required("tokenizer.ggml.scores", metadata.f32s("tokenizer.ggml.scores")?)?;
    let vocabulary = vocabulary(tokenizer, |_| true);
    let plain = |text: &str| {
        let id = tokenizer.vocabulary.id(text)?;
        (tokenizer.vocabulary.kind(id) == Kind::Normal).then_some(id)
    };
    let mut merges: Vec<(f32, &str, &str)> = Vec::new();
    for text in vocabulary.keys() {
        let Some(id) = plain(text) else { continue };
        for (cut, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(cut);
            if plain(left).is_some() && plain(right).is_some() {
                merges.push((scores[id as usize], left, right));
            }
        }
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.len().cmp(&a.1.len())));
    let merges: Vec<_> = merges.iter().map(|(_, left, right)| json!([left, right])).collect();
    let prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let unknown =
        tokenizer.vocabulary.iter().find(|(_, _, kind)| *kind == Kind::Unknown).map(|(_, text, _)| text);
    let normalizer = match prefix {
        true => json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, spaces]}),
        false => spaces,
    };
    let file = json!({
        "normalizer": normalizer,
        "pre_tokenizer": null,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": tokenizer.vocabulary.byte_ids().is_some(),
            "ignore_merges": false, "vocab": vocabulary, "merges": merges,
        },
    });
    Ok(object(file))
}

fn added(tokenizer: &Tokenizer) -> Json {
    let whole = tokenizer.vocabulary.iter().filter(|(id, text, kind)| {
        matches!(kind, Kind::Control | Kind::Unknown | Kind::User)
            && tokenizer.vocabulary.id(text) == Some(*id)
    });
    let token = |(id, text, kind): (u32, &str, Kind)| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": kind != Kind::User})
    };
    whole.map(token).collect()
}

/// BOS before each text, where there is one.
fn post_processor(tokenizer: &Tokenizer) -> Json {
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let Some((id, text)) = bos.and_then(|id| Some((id, tokenizer.token(id)?))) else { return Json::Null };
    let special = json!({"SpecialToken": {"id": text, "type_id": 0}});
    let sequence = |id: &str, of: u8| json!({"Sequence": {"id": id, "type_id": of}});
    json!({
        "type": "TemplateProcessing",
        "single": [special, sequence("A", 0)],
        "pair": [special, sequence("A", 0), {"SpecialToken": {"id": text, "type_id": 1}}, sequence("B", 1)],
        "special_tokens": {text: {"id": text, "ids": [id], "tokens": [text]}},
    })
}

fn config(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Json> {
    let mut config = object(json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": false,
        "add_bos_token": tokenizer.adds_bos(),
    }));
    let padding = metadata.u64("tokenizer.ggml.padding_token_id")?.and_then(|id| u32::try_from(id).ok());
    for (name, id) in [("bos_token", tokenizer.bos()), ("eos_token", tokenizer.eos()), ("pad_token", padding)]
    {
        if let Some(text) = id.and_then(|id| tokenizer.token(id)) {
            config.insert(name.into(), json!(text));
        }
    }
    Ok(Json::Object(config))
}

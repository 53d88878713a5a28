//! `tokenizer.json` under GGUF's keys. GGUF names how words are cut instead of saying it, and no name is in the folder: each
//! name that we know is tried on a text, and the one whose tokens are those of tokenizer.json is taken.

use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::file::metadata::Array;
use crate::file::{Metadata, Texts, Value, Weights};
use crate::tokenizer::{Special, Tokenizer, pre_tokenizers};

/// What pre-tokenizers disagree about: digits, marks, runs of spaces and line ends, contractions, scripts, emoji.
const PROBE: &str = "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶‍🌫️ (multiple emojis concatenated) ✅ 🦙🦙 3 33 333 3333 33333 \
    333333 3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ ------======= нещо на Български \
    ''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you \
    like some tea? We'Ve a'lL HELLOWorld CamelCase snake_case x=1;\r\n\tif (a<=b) { return \"é e\u{301} ﬁ\"; } // _x__y\n";

/// `token_type` of GGUF.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const UNUSED: i32 = 5;
const UNKNOWN: i32 = 2;
const BYTE: i32 = 6;

/// Adds the tokenizer's keys to the metadata.
pub fn describe(weights: &mut Weights) -> Result<()> {
    let Some(json) = &weights.tokenizer_json else {
        let message = "has no tokenizer.json, which is needed to make a GGUF file".into();
        return Err(Error::File { path: weights.path.clone(), message });
    };
    let original = Tokenizer::from_weights(weights)?;
    let file: Json =
        serde_json::from_str(json).map_err(|error| Error::Tokenizer(format!("tokenizer.json: {error}")))?;
    let rows = weights.tensors.get("token_embd.weight").and_then(|entry| entry.shape.first().copied());
    let mut metadata = weights.metadata.clone();
    vocabulary(&file, &original, rows.unwrap_or(0), &mut metadata);
    metadata.set("tokenizer.ggml.add_bos_token", Value::Bool(original.adds_bos()));
    for (key, id) in [("bos", original.bos()), ("eos", original.eos())] {
        if let Some(id) = id {
            metadata.set(format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
        }
    }
    let merges = merges(&file)?;
    if file["model"]["byte_fallback"].as_bool() == Some(true) {
        scored(&original, &merges, &mut metadata)?;
    } else {
        metadata.set("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
        metadata.set("tokenizer.ggml.model", Value::String("gpt2".into()));
        let name = cutting(&original, &mut metadata)?;
        tracing::debug!("words are cut as by {name}");
    }
    weights.metadata = metadata;
    Ok(())
}

/// SentencePiece's merges in the form of scores: the earlier the first merge that makes a token, the higher. Whether a text
/// begins with a space is tried.
fn scored(original: &Tokenizer, merges: &Texts, metadata: &mut Metadata) -> Result<()> {
    let Some(Value::Array(Array::String(tokens))) = metadata.get("tokenizer.ggml.tokens") else {
        return Err(Error::MissingKey { key: "tokenizer.ggml.tokens".into() });
    };
    let mut scores = vec![0.0; tokens.len()];
    for (rank, merge) in merges.iter().enumerate() {
        let id = merge.split_once(' ').and_then(|(left, right)| original.id(&format!("{left}{right}")));
        if let Some(score @ 0.0) = id.and_then(|id| scores.get_mut(id as usize)) {
            *score = -1.0 - rank as f32;
        }
    }
    metadata.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    metadata.set("tokenizer.ggml.model", Value::String("llama".into()));
    let expected = original.encode(PROBE, Special::Text)?;
    for prefix in [false, true] {
        metadata.set("tokenizer.ggml.add_space_prefix", Value::Bool(prefix));
        if Tokenizer::from_metadata(metadata)?.encode(PROBE, Special::Text)? == expected {
            return Ok(());
        }
    }
    Err(Error::unsupported(
        "tokenizer.json in GGUF",
        "the way it merges",
        "SentencePiece's scores do not give the same",
    ))
}

/// Finds the name of the pre-tokenizer and leaves it in the metadata.
fn cutting(original: &Tokenizer, metadata: &mut Metadata) -> Result<&'static str> {
    let expected = original.encode(PROBE, Special::Text)?;
    for name in pre_tokenizers() {
        metadata.set("tokenizer.ggml.pre", Value::String(name.into()));
        let same = Tokenizer::from_metadata(metadata)?.encode(PROBE, Special::Text)? == expected;
        if same {
            return Ok(name);
        }
    }
    Err(Error::unsupported(
        "tokenizer.json in GGUF",
        "the way it cuts words",
        "none that we can name does the same",
    ))
}

/// Tokens by id, one for each row of the embedding, and their types.
fn vocabulary(file: &Json, tokenizer: &Tokenizer, rows: usize, metadata: &mut Metadata) {
    let len = tokenizer.vocab_len().max(rows);
    let mut kinds = vec![UNUSED; len];
    let mut texts: Vec<String> = (0..len).map(|id| format!("[PAD{id}]")).collect();
    let mut set = |id: usize, text: &str, kind: i32| {
        if let (Some(own), Some(slot)) = (kinds.get_mut(id), texts.get_mut(id)) {
            (*own, *slot) = (kind, text.to_owned());
        }
    };
    let byte_fallback = file["model"]["byte_fallback"].as_bool() == Some(true);
    for (text, id) in file["model"]["vocab"].as_object().into_iter().flatten() {
        let kind = match text.as_str() {
            text if Some(text) == file["model"]["unk_token"].as_str() => UNKNOWN,
            text if byte_fallback && text.len() == 6 && text.starts_with("<0x") => BYTE,
            _ => NORMAL,
        };
        set(id.as_u64().unwrap_or(u64::MAX) as usize, text, kind);
    }
    for token in file["added_tokens"].as_array().into_iter().flatten() {
        let id = token["id"].as_u64().unwrap_or(u64::MAX);
        let control = u32::try_from(id).is_ok_and(|id| tokenizer.is_control(id));
        set(id as usize, token["content"].as_str().unwrap_or_default(), if control { CONTROL } else { USER });
    }
    metadata.set("tokenizer.ggml.tokens", Value::Array(Array::String(texts.iter().collect())));
    metadata.set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
}

/// Merges as GGUF has them, two texts with a space between.
fn merges(file: &Json) -> Result<Texts> {
    let Some(merges) = file["model"]["merges"].as_array() else {
        let hint = "byte-level BPE and SentencePiece's are";
        return Err(Error::unsupported("tokenizer.json in GGUF", "no BPE", hint));
    };
    let text = |merge: &Json| match merge {
        Json::String(text) => Some(text.clone()),
        Json::Array(pair) => Some(format!("{} {}", pair.first()?.as_str()?, pair.get(1)?.as_str()?)),
        _ => None,
    };
    let wrong = || Error::Tokenizer("tokenizer.json: a merge that is not two texts".into());
    merges.iter().map(|merge| text(merge).ok_or_else(wrong)).collect()
}

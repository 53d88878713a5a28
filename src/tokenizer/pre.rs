//! How byte-level vocabularies of GGUF files cut text into words, by the name in `tokenizer.ggml.pre`. The patterns are
//! those of the models' own `tokenizer.json` files; where GGUF's engine had to rewrite one (it has no `\p{Lu}`), the
//! original counts, because the model was trained with it.

use super::normal::Normal;
use super::split::Step;
use crate::error::{Error, Result};

/// A row of the table.
struct Pre {
    /// The names that mean this row.
    names: &'static [&'static str],
    /// Patterns, applied one after the other, each match a word.
    patterns: &'static [&'static str],
    /// Patterns that are applied after the bytes were spelled in the alphabet.
    after_bytes: &'static [&'static str],
    /// Whether the text is put into Unicode's form C first.
    nfc: bool,
    /// Whether a word that is a token needs no merges.
    whole_words: bool,
    /// Whether a text begins with BOS if the file does not say.
    adds_bos: bool,
}

/// One row with nothing but defaults, to be written with `..PLAIN`.
const PLAIN: Pre =
    Pre { names: &[], patterns: &[], after_bytes: &[], nfc: false, whole_words: false, adds_bos: false };

/// What a missing key means.
pub(super) const DEFAULT: &str = "default";

/// ByteLevel's own pattern in tokenizer.json.
pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// The cased letters that DeepSeek's first tokenizer lists one by one.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1F7D}ᾀ-ᾴᾶ-ᾼ\u{1FBE}ῂ-ῄῆ-ῌῐ-\u{1FD3}ῖ-\u{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const DEEPSEEK_CJK: &str = "[一-龥ࠀ-一가-\u{D7FF}]+";
const DIGIT: &str = r"\p{N}";
/// Punctuation as tokenizer.json means it: Unicode's, and the ASCII symbols.
pub(super) const PUNCTUATION: &str = r"[\p{P}!-/:-@\[-`{-~]";
const PUNCTUATION_RUN: &str = r"[\p{P}!-/:-@\[-`{-~]+";

static TABLE: &[Pre] = &[
    Pre { names: &["gpt-2", "phi-2"], patterns: &[GPT2], ..PLAIN },
    Pre { names: &["mpt", "olmo"], patterns: &[GPT2], nfc: true, ..PLAIN },
    Pre { names: &["smollm", "starcoder", "refact"], patterns: &[DIGIT, GPT2], ..PLAIN },
    Pre { names: &["command-r"], patterns: &[DIGIT, GPT2], nfc: true, ..PLAIN },
    Pre {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2"],
        patterns: &[LLAMA3],
        whole_words: true,
        adds_bos: true,
        ..PLAIN
    },
    Pre { names: &["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], patterns: &[LLAMA3], ..PLAIN },
    Pre { names: &["qwen2"], patterns: &[QWEN2], nfc: true, ..PLAIN },
    Pre { names: &["deepseek-r1-qwen", "stablelm2"], patterns: &[QWEN2], ..PLAIN },
    Pre { names: &["qwen35"], patterns: &[QWEN35], nfc: true, ..PLAIN },
    Pre { names: &["gpt-4o", "llama4"], patterns: &[O200K], ..PLAIN },
    Pre { names: &["tekken"], patterns: &[TEKKEN], whole_words: true, adds_bos: true, ..PLAIN },
    Pre {
        names: &["deepseek-v3"],
        patterns: &[r"\p{N}{1,3}", "[一-龥\u{3040}-ゟ゠-ヿ]+", DEEPSEEK3],
        ..PLAIN
    },
    Pre {
        names: &["deepseek-llm"],
        patterns: &[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+",
            r"\s+$",
            DEEPSEEK_CJK,
            DIGIT,
        ],
        ..PLAIN
    },
    Pre {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, DIGIT],
        ..PLAIN
    },
    Pre {
        names: &["falcon"],
        patterns: &[PUNCTUATION_RUN, GPT2],
        after_bytes: &[r"\p{N}+", "[0-9][0-9][0-9]"],
        ..PLAIN
    },
    // GGUF's own guess for files from before the key existed.
    Pre {
        names: &[DEFAULT],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ..PLAIN
    },
];

/// What a name stands for.
pub(super) struct Cutting {
    /// Applied to the text first.
    pub normal: Vec<Normal>,
    /// Applied then.
    pub steps: Vec<Step>,
    /// Whether a word that is a token needs no merges.
    pub whole_words: bool,
    /// Whether a text begins with BOS if the file does not say.
    pub adds_bos: bool,
}

/// The row called `name`.
///
/// # Errors
/// [`Error::Unsupported`] if there is none: another pattern would give other ids without anybody noticing.
pub(super) fn cutting(name: &str) -> Result<Cutting> {
    let row = TABLE.iter().find(|row| row.names.contains(&name)).ok_or_else(|| {
        Error::unsupported("pre-tokenizer", name, "a newer version, or tokenizer.json, may know it")
    })?;
    let mut steps = Vec::new();
    for pattern in row.patterns {
        steps.push(Step::isolate(pattern)?);
    }
    steps.push(Step::Bytes);
    for pattern in row.after_bytes {
        steps.push(Step::isolate(pattern)?);
    }
    let normal = if row.nfc { vec![Normal::Nfc] } else { Vec::new() };
    Ok(Cutting { normal, steps, whole_words: row.whole_words, adds_bos: row.adds_bos })
}

/// What `tokenizer.json` says in the place of a name.
pub(super) struct Shown {
    /// Applied one after the other, each match a word.
    pub patterns: &'static [&'static str],
    /// Whether the text is put into Unicode's form C first.
    pub nfc: bool,
    /// Whether a word that is a token needs no merges.
    pub whole_words: bool,
}

/// The row called `name`, if it cuts text and not bytes.
///
/// # Errors
/// As [`cutting`], and for a row that cuts bytes.
pub(super) fn shown(name: &str) -> Result<Shown> {
    cutting(name)?;
    let row = TABLE.iter().find(|row| row.names.contains(&name) && row.after_bytes.is_empty());
    let row = row.ok_or_else(|| {
        Error::unsupported("pre-tokenizer in tokenizer.json", name, "it cuts bytes, not text")
    })?;
    Ok(Shown { patterns: row.patterns, nfc: row.nfc, whole_words: row.whole_words })
}

/// One name of each row.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.names[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_compiles_and_every_name_is_in_one_row() {
        let mut names: Vec<_> = TABLE.iter().flat_map(|row| row.names).collect();
        for name in &names {
            cutting(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(matches!(cutting("qwen9"), Err(Error::Unsupported { what: "pre-tokenizer", .. })));
    }
}

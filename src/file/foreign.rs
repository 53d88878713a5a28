//! Files that are no GGUF: what each is, seen from its first bytes, and what to do about it.

/// First bytes and the advice that goes with them; the first row that fits counts.
static SIGNATURES: &[(&[u8], &str)] = &[
    (
        b"version https://git-lfs.github.com/spec/",
        "is a git-lfs pointer, not the model itself: run `git lfs pull`, or download the file from its page",
    ),
    (b"lmgg", OLD_GGML),
    (b"fmgg", OLD_GGML),
    (b"tjgg", OLD_GGML),
    (b"algg", "is a GGML adapter from before August 2023: convert it to GGUF with llama.cpp's tools"),
    (b"PK\x03\x04", "is a zip archive (PyTorch saves models so): unpack it, or convert it to safetensors"),
    (b"\x80\x02", PICKLE),
    (b"\x80\x04", PICKLE),
    (b"\x1f\x8b", "is compressed with gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd: unpack it first"),
    (b"%PDF", "is a PDF document, not a model"),
];

// Magic numbers of ggml, ggmf and ggjt, stored as little-endian integers and so spelled backwards in the file.
const OLD_GGML: &str = "is a GGML file from before August 2023: convert it to GGUF with llama.cpp's \
                        convert_llama_ggml_to_gguf.py, or download a GGUF of the same model";

const PICKLE: &str = "is a Python pickle, which can run code when it is read: convert it to safetensors";

/// How much of a file must be text before we call all of it text.
const TEXT_BYTES: usize = 512;

/// What `bytes`, which do not begin with `GGUF`, are, and what would be right. Follows the path in an error.
pub(super) fn describe(bytes: &[u8]) -> &'static str {
    if bytes.is_empty() {
        return "is empty: download it again";
    }
    if let Some((_, advice)) = SIGNATURES.iter().find(|(first, _)| bytes.starts_with(first)) {
        return advice;
    }
    if is_safetensors(bytes) {
        return "is a safetensors file without its config and tokenizer: give the folder that holds it, with \
                config.json and tokenizer.json beside it";
    }
    match text(bytes) {
        Some(text) if is_html(text) => {
            "is a web page, not a model: the download saved a page (a login or an error) in its place"
        }
        Some(text) if text.trim_start().starts_with(['{', '[']) => {
            "is a JSON text, not a model: for a model of safetensors give the folder that holds it"
        }
        Some(_) => "is a text file, not a model",
        None => "is no model file that we know: it does not begin with GGUF",
    }
}

/// A safetensors file begins with the length of its JSON header and the header's brace.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((length, header)) = bytes.split_first_chunk() else { return false };
    u64::from_le_bytes(*length) <= header.len() as u64 && header.first() == Some(&b'{')
}

/// The beginning of `bytes`, if it is text.
fn text(bytes: &[u8]) -> Option<&str> {
    let head = &bytes[..bytes.len().min(TEXT_BYTES)];
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The cut may go through the middle of a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let printable = |c: char| !c.is_control() || c.is_ascii_whitespace();
    text.chars().all(printable).then(|| text.trim_start_matches('\u{feff}'))
}

fn is_html(text: &str) -> bool {
    let head: String = text.trim_start().chars().take(16).collect::<String>().to_ascii_lowercase();
    ["<!doctype html", "<html", "<head", "<?xml"].iter().any(|tag| head.starts_with(tag))
}

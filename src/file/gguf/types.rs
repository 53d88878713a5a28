//! GGUF's tensor types beyond our formats: they are listed by name and never run. Ids: `ggml_type` in `ggml.h`.

use crate::quant::Format;

/// A published type that is not in the table of formats.
struct Other {
    id: u32,
    name: &'static str,
    /// Bytes of an element; `None` if the type was removed from ggml, and its layout with it.
    bytes: Option<usize>,
}

const fn plain(id: u32, name: &'static str, bytes: usize) -> Other {
    Other { id, name, bytes: Some(bytes) }
}

const fn removed(id: u32, name: &'static str) -> Other {
    Other { id, name, bytes: None }
}

static OTHERS: &[Other] = &[
    removed(4, "Q4_2"),
    removed(5, "Q4_3"),
    plain(24, "I8", 1),
    plain(25, "I16", 2),
    plain(26, "I32", 4),
    plain(27, "I64", 8),
    plain(28, "F64", 8),
    removed(31, "Q4_0_4_4"),
    removed(32, "Q4_0_4_8"),
    removed(33, "Q4_0_8_8"),
    removed(36, "IQ4_NL_4_4"),
    removed(37, "IQ4_NL_4_8"),
    removed(38, "IQ4_NL_8_8"),
];

fn other(id: u32) -> Option<&'static Other> {
    OTHERS.iter().find(|other| other.id == id)
}

/// Bytes of one element of a type that is none of our formats, if that is known.
pub(super) fn element_bytes(id: u32) -> Option<usize> {
    other(id)?.bytes
}

/// The name that a format is listed by, ggml's own.
pub(super) fn format_name(format: &Format) -> String {
    format.name.to_ascii_uppercase()
}

/// The name that a type other than our formats is listed by.
pub(super) fn other_name(id: u32) -> String {
    match other(id) {
        Some(Other { name, bytes: Some(_), .. }) => (*name).to_owned(),
        Some(Other { name, bytes: None, .. }) => format!("{name} (removed)"),
        None => format!("type {id}"),
    }
}

/// Why a type cannot be run, for an error about a tensor.
pub(in crate::file) fn refusal(id: u32) -> String {
    match other(id) {
        Some(Other { name, bytes: Some(_), .. }) => {
            format!("type {id} ({name}) is for data, not for weights that we can run")
        }
        Some(Other { name, bytes: None, .. }) => {
            format!("type {id} ({name}) was removed from GGUF: convert the model again")
        }
        None => format!("type {id} is unknown: the file is newer than this program, or damaged"),
    }
}

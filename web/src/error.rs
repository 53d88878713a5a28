//! Errors as JavaScript's, with a `code` that programs can tell apart. `ts/errors.ts` makes classes of them and adds what to do.

use hadal::Error;
use wasm_bindgen::prelude::*;

/// An `Error` with the property `code`.
#[allow(clippy::needless_pass_by_value, reason = "what `map_err` gives")]
pub fn failed(error: Error) -> JsValue {
    let made = js_sys::Error::new(&message(&error));
    // A fresh object takes any property.
    drop(js_sys::Reflect::set(&made, &"code".into(), &code(&error).into()));
    made.into()
}

fn code(error: &Error) -> &'static str {
    match error {
        Error::Gpu { message, .. } if message.starts_with("the device was lost") => "device-lost",
        Error::Gpu { .. } | Error::Shader { .. } => "webgpu",
        Error::Option { name: "--device", .. } => "no-webgpu",
        Error::GpuMemory { .. } => "memory",
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::OutOfMemory => "memory",
        Error::Context { .. } => "context",
        Error::Option { .. } => "option",
        Error::Template(_) | Error::Numeric(_) => "model",
        Error::Unsupported { what: "chat", .. } => "no-chat",
        _ => "file",
    }
}

/// The library's messages name the flags of a program where the package has options.
fn message(error: &Error) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("--ctx-size", "contextLength"),
        ("--device", "device"),
        ("--temp", "temperature"),
        ("--top-p", "topP"),
        ("--min-p", "minP"),
        ("--typical", "typicalP"),
        ("--repeat-penalty", "repeatPenalty"),
        ("--presence-penalty", "presencePenalty"),
        ("--frequency-penalty", "frequencyPenalty"),
        ("--batch-size", "batch"),
        ("--threads", "threads"),
        ("--gpu-layers", "device: \"cpu\""),
    ];
    if let Error::GpuMemory { device, needed, available } = error {
        return format!("{device}: no memory for {needed} bytes, only for {available}");
    }
    let mut text = error.to_string();
    for (flag, option) in NAMES {
        text = text.replace(flag, option);
    }
    text
}

//! What the library says beside its results: why it gave the GPU up, and why it stopped.

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = ["globalThis", "hadalFiles"], js_name = warned)]
    fn warned(text: &str);
    #[wasm_bindgen(js_namespace = ["globalThis", "hadalFiles"], js_name = panicked)]
    fn panicked(text: &str);
}

/// Has the worker told about warnings and panics. To be called once.
#[wasm_bindgen]
pub fn start() {
    std::panic::set_hook(Box::new(|info| panicked(&info.to_string())));
    // Somebody else may listen already.
    drop(tracing::subscriber::set_global_default(Warnings));
}

struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN && metadata.target().starts_with("hadal")
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Hands on what a warning says.
struct Message;

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            warned(&format!("{value:?}"));
        }
    }
}

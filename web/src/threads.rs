//! Threads: workers that load the same module with the same memory. `ts/threads.ts` starts them.

use wasm_bindgen::prelude::*;

/// The compiled module and its memory, for another worker.
#[wasm_bindgen]
pub fn share() -> Vec<JsValue> {
    vec![wasm_bindgen::module(), wasm_bindgen::memory()]
}

/// Lends the worker that calls this to the engine, for ever.
#[wasm_bindgen]
pub fn lend() {
    hadal::backend::cpu::pool::lend()
}

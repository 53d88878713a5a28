//! Writes the JavaScript of a WebAssembly module, as `wasm-bindgen --target web` does: bindgen MODULE.wasm FOLDER.

use anyhow::Context;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (module, folder) = arguments.next().zip(arguments.next()).context("bindgen MODULE.wasm FOLDER")?;
    // The JavaScript finds the module beside it.
    Bindgen::new()
        .web(true)?
        .omit_default_module_path(false)
        .typescript(true)
        .input_path(module)
        .generate(folder)
}

//! Real models, where their files are.

use std::path::PathBuf;

pub const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub const GEMMA: &str = "gemma-3-270m-Q4_K_M.gguf";
pub const QWEN: &str = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf";

/// The path of a real model; `None`, with a line that says so, if it is not here. In CI SmolLM2 must be.
pub fn real(file: &str) -> Option<PathBuf> {
    let folder =
        std::env::var_os("HADAL_TEST_MODELS").map_or_else(|| PathBuf::from("target/models"), PathBuf::from);
    let path = folder.join(file);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("HADAL_CI").is_none() || file != SMOLLM2,
        "{} must be there in CI: run tests/fetch-models.sh",
        path.display()
    );
    println!("skipped: {} is not here (tests/fetch-models.sh fetches it)", path.display());
    None
}

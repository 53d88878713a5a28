//! The peak memory of a run: the model's file, a full cache and a tenth of both, beside the pages of the program itself.
//! Those are left out because they are the same for every model, and because a test program has more of them than `hadal`.
//!
//! One test only: what is measured is its process.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};

use hadal::engine::{Engine, Options};

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The model; `None`, with a line that says so, if it is not here. In CI it must be.
fn smollm2() -> Option<PathBuf> {
    let folder =
        std::env::var_os("HADAL_TEST_MODELS").map_or_else(|| PathBuf::from("target/models"), PathBuf::from);
    let path = folder.join(SMOLLM2).canonicalize();
    if path.is_err() {
        assert!(std::env::var_os("HADAL_CI").is_none(), "{SMOLLM2} must be there: run tests/fetch-models.sh");
        println!("skipped: {SMOLLM2} is not here (tests/fetch-models.sh fetches it)");
    }
    path.ok()
}

/// The bytes in a line of /proc, such as `Rss:    12 kB`, if it begins with `name`.
fn bytes(line: &str, name: &str) -> Option<u64> {
    let kib: u64 = line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The most memory that this process ever had.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    status.lines().find_map(|line| bytes(line, "VmHWM:")).expect("a peak")
}

/// Pages of files other than `model` that are in memory unchanged: the program and the system's libraries.
fn program(model: &Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("/proc");
    let (mut counts, mut resident, mut changed) = (false, 0, 0);
    for line in maps.lines() {
        // A map begins with its addresses and ends with its path, if it is of a file: `7f12-7f34 r--p 0 fe:00 12 /lib/x`.
        if line.split(' ').next().is_some_and(|first| first.contains('-')) {
            counts = line.contains(" /") && !line.ends_with(&*model.to_string_lossy());
        } else if counts {
            resident += bytes(line, "Rss:").unwrap_or(0);
            changed += bytes(line, "Anonymous:").unwrap_or(0);
        }
    }
    resident - changed
}

#[test]
fn a_run_takes_the_file_the_cache_and_a_tenth() {
    let Some(path) = smollm2() else { return };
    let file = std::fs::metadata(&path).expect("a file").len();
    // A small cache, so that a tenth is little; two threads, since each has scratch of its own.
    let options = Options { context: Some(512), threads: Some(2), ..Options::default() };
    let mut engine = Engine::open_with(&path, &options).expect("SmolLM2");
    let prompt: Vec<u32> = (0..504).map(|i| i * 89).collect();
    engine.prefill(&prompt).expect("a prompt that fits");
    for token in 0..8 {
        engine.step(token).expect("tokens that fit");
    }
    let cache = engine.info().cache_bytes;
    let (peak, program) = (peak(), program(&path));
    let limit = (file + cache) / 10 * 11;
    println!(
        "file {file}, cache {cache}, peak {peak}, of which the program's pages {program}, limit {limit}"
    );
    assert!(peak > file / 10 * 9, "the whole model was read, but the peak is {peak}");
    assert!(peak - program <= limit, "{peak} - {program} is more than {limit}");
}

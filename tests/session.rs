//! Sessions: a conversation goes on from a file with the bits it would have had, and no wrong file is taken for one.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use hadal::cache::CacheType;
use hadal::{Engine, Options};

fn engine(kind: &str, context: usize) -> Engine {
    let options = Options {
        cache: kind.parse::<CacheType>().unwrap(),
        context: Some(context),
        threads: Some(1),
        ..Options::default()
    };
    Engine::embedded(&options).unwrap()
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| 3 + i * 7 % 500).collect()
}

#[test]
fn a_session_goes_on_as_if_nothing_had_happened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk");
    for kind in ["f16", "f32", "turbo", "q8_0/q4_0:rot"] {
        let mut before = engine(kind, 100);
        before.prefill(&tokens(70)).unwrap();
        before.truncate(61);
        before.save_session(&path, "a note\n").unwrap();
        let mut after = engine(kind, 80);
        after.prefill(&[1, 2, 3]).unwrap();
        assert_eq!(after.load_session(&path).unwrap(), "a note\n", "{kind}");
        assert_eq!(after.tokens(), before.tokens(), "{kind}");
        for token in [9, 8, 7] {
            assert_eq!(after.step(token).unwrap(), before.step(token).unwrap(), "{kind}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the file");
}

#[test]
fn other_sessions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk");
    let mut engine_ = engine("turbo", 100);
    engine_.prefill(&tokens(50)).unwrap();
    engine_.save_session(&path, "").unwrap();
    let folder_model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/austen");
    let options = Options { cache: CacheType::TURBO, ..Options::default() };
    let cases = [
        ("its keys and values are turbo:k8v3, not f16: give --kv", engine("f16", 100)),
        ("50 tokens, the context is 40: raise --ctx-size", engine("turbo", 40)),
        ("a session of another model", Engine::open_with(folder_model, &options).unwrap()),
    ];
    for (words, mut engine) in cases {
        engine.prefill(&[1, 2, 3]).unwrap();
        let error = engine.load_session(&path).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("talk"), "{error}");
        assert_eq!(engine.tokens(), [1, 2, 3], "{words}");
    }
    assert!(engine_.load_session(folder.path().join("absent")).is_err());
}

/// Every byte counts, but for those between sections.
#[test]
fn damage_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk");
    let mut engine = engine("turbo", 100);
    engine.prefill(&tokens(20)).unwrap();
    engine.save_session(&path, "note").unwrap();
    let good = std::fs::read(&path).unwrap();
    let mut random = fastrand::Rng::with_seed(2);
    let mut found = 0;
    for round in 0..300 {
        let mut bad = good.clone();
        let at = random.usize(0..good.len());
        if round % 10 == 0 {
            bad.truncate(at);
        } else {
            bad[at] ^= 1 << random.u8(0..8);
        }
        std::fs::write(&path, &bad).unwrap();
        match engine.load_session(&path) {
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("talk: ") && !error.contains('\n'), "{error}");
                found += 1;
            }
            // Padding: what was read is what was written.
            Ok(note) => {
                assert!(good[at] == 0 && note == "note" && engine.tokens() == tokens(20), "byte {at}");
            }
        }
    }
    assert!(found > 150, "{found} of 300");
    for (bytes, words) in
        [(&b"GGUF"[..], "not a session"), (&[0; 64], "not a session"), (b"", "not a session")]
    {
        std::fs::write(&path, bytes).unwrap();
        let error = engine.load_session(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let mut newer = good.clone();
    newer[8] = 9;
    std::fs::write(&path, &newer).unwrap();
    let error = engine.load_session(&path).unwrap_err().to_string();
    assert!(error.contains("version 9, this program reads 1"), "{error}");
}

#[cfg(feature = "cli")]
fn run(path: &Path, prompt: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hadal"));
    command.env_remove("HADAL_MODEL").env_remove("HADAL_ISA").stdin(Stdio::null());
    command.args(["run", prompt, "-n", "4", "--temp", "0", "--kv", "turbo", "--session"]).arg(path);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
#[cfg(feature = "cli")]
fn the_program_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk");
    let text = |prompt: &str| {
        let output = run(&path, prompt).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (first, stats) = text("It is a truth universally acknowledged, that a");
    assert!(!stats.contains("cached"), "{stats}");
    let (second, stats) = text(" and");
    assert!(stats.contains("cached"), "{stats}");
    // The same as at once.
    let whole = folder.path().join("whole");
    let prompt = format!("{} and", first.trim_end_matches('\n'));
    let output = run(&whole, &prompt).output().unwrap();
    let expected = format!("{}{second}", first.trim_end_matches('\n'));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

/// Whenever the program is killed, the file is that of before or that of after.
#[test]
#[cfg(feature = "cli")]
fn a_killed_program_leaves_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk");
    assert!(run(&path, "It is").status().unwrap().success());
    let mut engine = engine("turbo", 512);
    let mut random = fastrand::Rng::with_seed(4);
    let mut last = 0;
    for _ in 0..20 {
        let mut child = run(&path, " and").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.u64(0..150)));
        // It may be done already.
        let _ = child.kill();
        child.wait().unwrap();
        engine.load_session(&path).unwrap();
        assert!(engine.position() >= last, "{} after {last}", engine.position());
        last = engine.position();
    }
}

//! `hadal quantize` and `hadal convert` as programs: killed, out of space, refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const SOURCE: &str = "models/austen/austen-q8_0.gguf";

fn hadal(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hadal")).args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn quantize(out: &Path, more: &[&str]) -> Output {
    let out = out.to_str().expect("a plain path");
    hadal(&[&["quantize", SOURCE, "--type", "q4_k_m", "-o", out], more].concat())
}

/// What is at `path`: one file, or the files of a folder by name.
fn contents(path: &Path) -> Vec<(OsString, Vec<u8>)> {
    let read = |path: &Path| (path.file_name().unwrap_or_default().to_owned(), std::fs::read(path).unwrap());
    if path.is_file() {
        return vec![read(path)];
    }
    let mut files: Vec<_> =
        std::fs::read_dir(path).unwrap().map(|entry| read(&entry.unwrap().path())).collect();
    files.sort();
    files
}

#[test]
fn a_killed_run_is_resumed_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.gguf");
    let result = quantize(&whole, &[]);
    assert!(result.status.success(), "{}", text(&result.stderr));
    let whole = std::fs::read(whole).unwrap();
    let mut random = fastrand::Rng::with_seed(26);
    let mut killed = 0;
    for round in 0..20 {
        let out = folder.path().join("out.gguf");
        let mut child = Command::new(env!("CARGO_BIN_EXE_hadal"))
            .args(["quantize", SOURCE, "--type", "q4_k_m", "--threads", "1", "--resume", "-o"])
            .arg(&out)
            .stderr(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(random.u64(0..250_000)));
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        let result = quantize(&out, &["--resume"]);
        assert!(result.status.success(), "{}", text(&result.stderr));
        assert!(std::fs::read(&out).unwrap() == whole, "round {round}");
        std::fs::remove_file(&out).unwrap();
    }
    assert!(killed > 0, "none was killed in time");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left over");
}

/// A limit on the size of files stands in for a full disk: the system refuses in the same way.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    std::fs::write(&out, "old").unwrap();
    let command = format!(
        "trap '' XFSZ; ulimit -f 1000; exec '{}' quantize {SOURCE} --type q8_0 --output-type q4_0 -o '{}'",
        env!("CARGO_BIN_EXE_hadal"),
        out.display()
    );
    let result = Command::new("bash").args(["-c", &command]).output().unwrap();
    assert_eq!(result.status.code(), Some(1));
    assert!(text(&result.stderr).contains("out.gguf"), "{}", text(&result.stderr));
    assert_eq!(std::fs::read(&out).unwrap(), b"old");
    // With room again it goes on.
    let arguments = ["quantize", SOURCE, "--type", "q8_0", "--output-type", "q4_0", "--resume", "-o"];
    let result = hadal(&[&arguments[..], &[out.to_str().unwrap()]].concat());
    assert!(result.status.success(), "{}", text(&result.stderr));
    assert!(std::fs::metadata(&out).unwrap().len() > 1_000_000);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_no_folder() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let arguments = format!("convert {SOURCE} --type f16 --resume -o '{}'", out.display());
    let limited = |limit: &str| {
        let command =
            format!("trap '' XFSZ; ulimit -f {limit}; exec '{}' {arguments}", env!("CARGO_BIN_EXE_hadal"));
        Command::new("bash").args(["-c", &command]).output().unwrap()
    };
    let result = limited("4000");
    assert_eq!(result.status.code(), Some(1));
    assert!(text(&result.stderr).contains("model.safetensors"), "{}", text(&result.stderr));
    assert!(!out.exists(), "a folder is there only when it is whole");
    // With room again it goes on.
    let result = limited("unlimited");
    assert!(result.status.success(), "{}", text(&result.stderr));
    assert!(std::fs::metadata(out.join("model.safetensors")).unwrap().len() > 8_000_000);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1);
    // Where nothing can be written, and over what is there.
    for (out, message) in [("/proc/out", "/proc/out.partial"), (out.to_str().unwrap(), "is there already")] {
        let before = contents(&place.path().join("out"));
        let result = hadal(&["convert", SOURCE, "--type", "f16", "-o", out]);
        assert_eq!(result.status.code(), Some(1), "{out}");
        assert!(text(&result.stderr).contains(message), "{}", text(&result.stderr));
        assert!(contents(&place.path().join("out")) == before);
    }
}

#[test]
fn what_cannot_be_written_is_refused_first() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    std::fs::write(&out, "old").unwrap();
    let mut permissions = std::fs::metadata(&out).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&out, permissions).unwrap();
    let result = quantize(&out, &[]);
    assert_eq!(result.status.code(), Some(1));
    assert!(text(&result.stderr).contains("write-protected"), "{}", text(&result.stderr));
    assert_eq!(std::fs::read(&out).unwrap(), b"old");
    let result = quantize(Path::new(SOURCE), &[]);
    assert!(text(&result.stderr).contains("is the source"), "{}", text(&result.stderr));
    let result = quantize(&folder.path().join("no/out.gguf"), &[]);
    assert_eq!(result.status.code(), Some(1));
}

#[test]
fn a_dry_run_tells_and_writes_nothing() {
    let result = hadal(&["quantize", SOURCE, "--type", "q4_k_m", "--dry-run"]);
    assert!(result.status.success(), "{}", text(&result.stderr));
    let page = text(&result.stdout);
    assert!(page.contains("blk.0.ffn_down.weight") && page.contains("Q8_0 → Q6_K"), "{page}");
    assert!(page.lines().last().unwrap().ends_with("bits per weight"), "{page}");
    for (arguments, part) in [
        (&["--type", "q9"][..], "must be one of F32"),
        (&["--type", "q4_0", "--tensor-type", "x"], "must be REGEX=TYPE"),
        (&["--type", "q4_0", "--split-max-size", "5"], "like 2G"),
        (&["--type", "q4_0"], "--output"),
    ] {
        let result = hadal(&[&["quantize", SOURCE], arguments].concat());
        assert_eq!(result.status.code(), Some(2), "{arguments:?}");
        assert!(text(&result.stderr).contains(part), "{}", text(&result.stderr));
    }
}

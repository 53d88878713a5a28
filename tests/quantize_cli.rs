//! `hadal quantize` and `hadal convert` as programs: killed, out of space, refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const SOURCE: &str = "models/austen/austen-q8_0.gguf";
const FOLDER: &str = "tests/data/austen";

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

/// Bytes of the file at `path`, or of all files in the folder there. One may just have got its name.
fn size(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(files) => files.filter_map(|file| Some(size(&file.ok()?.path()))).sum(),
        Err(_) => std::fs::metadata(path).map_or(0, |file| file.len()),
    }
}

/// Runs the program until what is in `folder` has grown by `bytes`, and kills it. Whether it was not at its end before.
fn kill(arguments: &[&str], folder: &Path, bytes: u64) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hadal"));
    let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // What was written behind the journal's last entry is cut off when it goes on.
    let mut least = u64::MAX;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{arguments:?}");
            return false;
        }
        let size = size(folder);
        least = least.min(size);
        if size >= least + bytes {
            child.kill().unwrap();
            return !child.wait().unwrap().success();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Killed 20 times on its way, wherever it is when a random number of bytes is there, it comes to the bytes of a run that
/// was left alone. However late this test looks on a busy machine: a run that was faster is checked and counts for nothing.
fn survives(arguments: &[&str], name: &str) {
    survives_kills(arguments, name, 20, 0.125);
}

/// The same for `kills`, each after `share` of the result's bytes at most.
fn survives_kills(arguments: &[&str], name: &str, kills: usize, share: f64) {
    let place = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole", "out"].map(|folder| place.path().join(folder).join(name));
    let run = |out: &Path, more: &[&str]| {
        std::fs::create_dir_all(out.parent().unwrap()).unwrap();
        let result = hadal(&[arguments, more, &["-o", out.to_str().unwrap()]].concat());
        assert!(result.status.success(), "{}", text(&result.stderr));
        contents(out)
    };
    let expected = run(&whole, &[]);
    let folder = out.parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let resumed = [arguments, &["--threads", "1", "--resume", "-o", out.to_str().unwrap()]].concat();
    let mut random = fastrand::Rng::with_seed(26);
    let (mut killed, mut tries) = (0, 0);
    while killed < kills {
        tries += 1;
        assert!(
            tries < 200,
            "only {killed} of {tries} runs were not at their end when they were to be killed"
        );
        let most = (size(&whole) as f64 * share) as u64;
        killed += usize::from(kill(&resumed, folder, random.u64(0..most)));
        // It has its name when it is whole, even if it was killed just then.
        if out.exists() {
            assert!(contents(&out) == expected, "after {killed} kills");
            if out.is_dir() { std::fs::remove_dir_all(&out) } else { std::fs::remove_file(&out) }.unwrap();
        }
    }
    assert!(run(&out, &["--resume"]) == expected);
    assert_eq!(std::fs::read_dir(out.parent().unwrap()).unwrap().count(), 1, "nothing is left over");
}

#[test]
fn a_killed_run_is_resumed_with_the_same_bytes() {
    survives(&["quantize", FOLDER, "--type", "q4_k_m"], "out.gguf");
}

#[test]
fn a_killed_folder_is_resumed_with_the_same_bytes() {
    survives(&["convert", FOLDER, "--type", "affine4_g64", "--split-max-size", "1M"], "out");
}

/// Layer by layer, with what is kept between them; and rotated first.
#[test]
fn a_killed_calibration_is_resumed_with_the_same_bytes() {
    let text = "tests/data/austen/heldout.txt";
    let calibrated = ["--method", "gptq", "--calibration", text, "--calibration-windows", "1"];
    let arguments = |more: &[&'static str]| [&["quantize", FOLDER][..], more, &calibrated].concat();
    survives_kills(&arguments(&["--type", "q4_0"]), "out.gguf", 8, 2.0);
    survives_kills(&arguments(&["--type", "q4_0", "--rotate"]), "out.gguf", 3, 8.0);
    survives_kills(&arguments(&["--type", "affine4_g64"]), "out", 3, 2.0);
}

/// With other flags than before it says which, and a text that is too short says so.
#[test]
fn a_calibration_of_other_flags_is_not_resumed() {
    let place = tempfile::tempdir().unwrap();
    let [out, short] = ["out.gguf", "short.txt"].map(|name| place.path().join(name));
    std::fs::write(&short, "It is a").unwrap();
    let [out_name, short] = [&out, &short].map(|path| path.to_str().unwrap());
    let arguments = |text, kind| {
        let flags = ["--calibration-windows", "1", "--resume", "-o", out_name];
        [&["quantize", FOLDER, "--method", "gptq", "--calibration", text, "--type", kind], &flags[..]]
            .concat()
    };
    let long = "tests/data/austen/heldout.txt";
    // The embedding and its activations are 0.8 MB: the first step is done.
    assert!(kill(&arguments(long, "q4_0"), place.path(), 1_100_000));
    for (text, kind, message) in [(long, "q5_0", "--type was"), (short, "q4_0", "no whole window of 512")] {
        let result = hadal(&arguments(text, kind));
        assert_eq!(result.status.code(), Some(1));
        assert!(self::text(&result.stderr).contains(message), "{}", self::text(&result.stderr));
    }
    assert!(!out.exists());
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

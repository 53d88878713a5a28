//! Model files on disk: split models and their parts, and files that are no models at all.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

use hadal::file::Weights;

mod support {
    pub mod gguf;
}
use support::gguf::{File, Value};

/// The error's text, which must be one line.
fn refusal(bytes: Vec<u8>) -> String {
    match Weights::from_bytes("test.gguf", bytes) {
        Ok(_) => "opened".to_owned(),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n'), "{message:?}");
            message
        }
    }
}

fn shard(no: u16, count: u16, tensors: i32) -> File {
    File::new()
        .key("general.architecture", Value::text(if no == 0 { "llama" } else { "other" }))
        .key("split.no", Value::U16(no))
        .key("split.count", Value::U16(count))
        .key("split.tensors.count", Value::I32(tensors))
        .f32(&format!("t{no}"), &[f32::from(no); 8])
}

fn write(folder: &Path, files: &[(&str, Vec<u8>)]) {
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

#[test]
fn any_part_of_a_split_model_opens_all() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<_> = (1..=3).map(|part| format!("m-{part:05}-of-00003.gguf")).collect();
    for (no, name) in names.iter().enumerate() {
        write(folder.path(), &[(name, shard(no as u16, 3, 3).bytes())]);
    }
    for name in &names {
        let weights = Weights::open(folder.path().join(name)).unwrap();
        assert_eq!(weights.metadata.str("general.architecture").unwrap(), Some("llama"));
        assert_eq!(weights.path, folder.path().join(name));
        let parts: Vec<_> = weights.parts.iter().map(|part| part.path.clone()).collect();
        assert_eq!(parts, names.iter().map(|name| folder.path().join(name)).collect::<Vec<_>>());
        for no in 0..3 {
            let tensor = format!("t{no}");
            assert_eq!(weights.tensors[&tensor].part, no);
            assert_eq!(weights.tensor(&tensor).unwrap().to_f32().unwrap(), [no as f32; 8]);
        }
    }
}

/// D07, and the other ways that parts go astray.
#[test]
fn astray_parts_are_refused() {
    const FIRST: &str = "m-00001-of-00002.gguf";
    const SECOND: &str = "m-00002-of-00002.gguf";
    let parts = || [shard(0, 2, 2), shard(1, 2, 2)].map(|shard| shard.bytes());
    let [one, two] = parts();
    let joined = [one.clone(), two.clone()].concat();
    let unpadded: Vec<_> =
        [shard(0, 2, 2), shard(1, 2, 2)].iter().flat_map(|s| s.clone().unpadded().bytes()).collect();
    let same = File { tensors: shard(0, 2, 2).tensors, ..shard(1, 2, 2) }.bytes();
    // (case, files, the one to open, words)
    type Case<'a> = (&'a str, Vec<(&'a str, Vec<u8>)>, &'a str, &'a [&'a str]);
    let cases: Vec<Case> = vec![
        ("D07 joined", vec![("m.gguf", joined.clone())], "m.gguf", &["joined", "--merge"]),
        (
            "D07 joined, as a part",
            vec![(FIRST, joined), (SECOND, two.clone())],
            FIRST,
            &["joined", "--merge"],
        ),
        ("D07 joined, unpadded", vec![("m.gguf", unpadded)], "m.gguf", &["joined", "--merge"]),
        (
            "renamed",
            vec![("m.gguf", one.clone()), (SECOND, two.clone())],
            "m.gguf",
            &["part 1 of 2", "00001-of-00002"],
        ),
        ("missing", vec![(SECOND, two.clone())], SECOND, &[FIRST, "missing", "part 1 of 2"]),
        ("swapped", vec![(FIRST, two.clone()), (SECOND, one.clone())], FIRST, &["part 2 of 2"]),
        (
            "twice the same",
            vec![(FIRST, one.clone()), (SECOND, one.clone())],
            FIRST,
            &[SECOND, "part 1 of 2"],
        ),
        (
            "no part",
            vec![(FIRST, one.clone()), (SECOND, File::new().f32("t1", &[1.0; 8]).bytes())],
            FIRST,
            &[SECOND, "split.count"],
        ),
        (
            "other count",
            vec![(FIRST, shard(0, 3, 2).bytes()), (SECOND, two.clone())],
            FIRST,
            &["part 1 of 3"],
        ),
        ("tensors", vec![(FIRST, shard(0, 2, 5).bytes()), (SECOND, two)], FIRST, &["2 tensors", "5"]),
        ("same tensor", vec![(FIRST, one.clone()), (SECOND, same)], FIRST, &[SECOND, "t0"]),
        (
            "a text for a count",
            vec![("m.gguf", File::new().key("split.count", Value::text("2")).bytes())],
            "m.gguf",
            &["m.gguf", "split.count"],
        ),
    ];
    let mut failures = Vec::new();
    for (case, files, open, words) in cases {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &files);
        let message = match Weights::open(folder.path().join(open)) {
            Ok(_) => "opened".to_owned(),
            Err(error) => error.to_string(),
        };
        if message.contains('\n') || words.iter().any(|word| !message.contains(word)) {
            failures.push(format!("{case}: wanted {words:?} in: {message}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    // A part in memory has no others beside it.
    assert!(refusal(one).contains("part 1 of 2"));
}

#[test]
fn a_merged_file_may_say_that_it_has_one_part() {
    for count in [0, 1] {
        assert_eq!(refusal(shard(0, count, 1).bytes()), "opened", "{count}");
    }
}

#[test]
fn other_files_are_named_with_what_to_do() {
    let safetensors = b"\x02\0\0\0\0\0\0\0{}".to_vec();
    let cases: Vec<(&str, Vec<u8>, &[&str])> = vec![
        ("empty", vec![], &["is empty"]),
        ("text", b"hello there, this is a note\n".to_vec(), &["text file"]),
        ("cut character", [vec![b'a'; 511], "é".as_bytes().to_vec()].concat(), &["text file"]),
        ("JSON", b"{\"a\": 1}".to_vec(), &["JSON"]),
        ("safetensors", safetensors, &["safetensors", "folder"]),
        ("ggml", b"lmgg\x01\0\0\0".to_vec(), &["GGML", "convert"]),
        ("ggjt", b"tjgg\x03\0\0\0".to_vec(), &["GGML", "convert"]),
        ("web page", b"\n<!DOCTYPE html><html>".to_vec(), &["web page"]),
        ("web page", b"<HTML><head>".to_vec(), &["web page"]),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n".to_vec(), &["git lfs pull"]),
        ("zip", b"PK\x03\x04....".to_vec(), &["zip"]),
        ("pickle", b"\x80\x02}q\0".to_vec(), &["pickle"]),
        ("noise", vec![0xfe; 100], &["does not begin with GGUF"]),
    ];
    let mut failures = Vec::new();
    for (case, bytes, words) in cases {
        let message = refusal(bytes);
        if words.iter().any(|word| !message.contains(word)) {
            failures.push(format!("{case}: wanted {words:?} in: {message}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn paths_that_are_no_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.gguf");
    std::fs::write(&empty, []).unwrap();
    let cases: [(&str, PathBuf, &str); 3] = [
        ("missing", folder.path().join("none.gguf"), "none.gguf"),
        ("folder", folder.path().to_owned(), "folder"),
        ("empty", empty, "is empty"),
    ];
    for (case, path, word) in cases {
        let message = Weights::open(&path).unwrap_err().to_string();
        assert!(message.contains(word) && !message.contains('\n'), "{case}: {message}");
    }
}

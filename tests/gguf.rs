//! GGUF files, whole, odd and broken: what opens reads exactly, what does not says where and why on one line.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use hadal::file::metadata::{Array, Value as Read};
use hadal::file::{RopePairs, Texts, Weights};
use hadal::quant::{FORMATS, Format};

mod support {
    pub mod gguf;
}
use support::gguf::{File, Value};

fn open(file: &File) -> hadal::Result<Weights> {
    Weights::from_bytes("test.gguf", file.bytes())
}

fn values(weights: &Weights, name: &str) -> Vec<f32> {
    weights.tensor(name).unwrap().to_f32().unwrap()
}

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

/// Opens each file and compares its error with the words that it must hold.
fn refuse(cases: Vec<(&str, Vec<u8>, &[&str])>) {
    let mut failures = Vec::new();
    for (case, bytes, words) in cases {
        let message = refusal(bytes);
        if words.is_empty() || words.iter().any(|word| !message.contains(word)) {
            failures.push(format!("{case}: wanted {words:?} in: {message}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

fn three() -> File {
    File::new()
        .f32("a", &[1.0, 2.0, 3.0, 4.0])
        .f32("b", &[5.0, 6.0, 7.0, 8.0])
        .f32("c", &[9.0, 10.0, 11.0, 12.0])
}

#[test]
fn versions_2_and_3_open_and_others_are_named() {
    for version in [2, 3] {
        let weights = open(&three().version(version)).unwrap();
        assert_eq!(values(&weights, "c"), [9.0, 10.0, 11.0, 12.0], "version {version}");
        assert_eq!(weights.rope_pairs, RopePairs::Gguf);
        assert_eq!(weights.parts.len(), 1);
    }
    refuse(vec![
        ("version 0", three().version(0).bytes(), &["version 0"]),
        ("version 1", three().version(1).bytes(), &["version 1", "convert"]),
        ("version 4", three().version(4).bytes(), &["version 4"]),
        ("big-endian", three().version(3u32.swap_bytes()).bytes(), &["big-endian"]),
    ]);
}

#[test]
fn every_value_type_is_read() {
    let file = File::new()
        .key("u8", Value::U8(u8::MAX))
        .key("i8", Value::I8(-1))
        .key("u16", Value::U16(u16::MAX))
        .key("i16", Value::I16(-2))
        .key("u32", Value::U32(u32::MAX))
        .key("i32", Value::I32(-3))
        .key("f32", Value::F32(1.5))
        .key("yes", Value::Bool(true))
        .key("no", Value::Bool(false))
        .key("text", Value::text("naïve\n"))
        .key("u64", Value::U64(u64::MAX))
        .key("i64", Value::I64(i64::MIN))
        .key("f64", Value::F64(1e-300))
        .key("texts", Value::texts(&["", "b"]))
        .key("floats", Value::Array(6, vec![Value::F32(0.5), Value::F32(-0.5)]))
        .key("none", Value::Array(5, vec![]))
        .key("nested", Value::Array(9, vec![Value::Array(0, vec![Value::U8(7)]), Value::Array(8, vec![])]));
    let weights = open(&file).unwrap();
    let expected: Vec<(&str, Read)> = vec![
        ("u8", Read::U8(255)),
        ("i8", Read::I8(-1)),
        ("u16", Read::U16(65535)),
        ("i16", Read::I16(-2)),
        ("u32", Read::U32(u32::MAX)),
        ("i32", Read::I32(-3)),
        ("f32", Read::F32(1.5)),
        ("yes", Read::Bool(true)),
        ("no", Read::Bool(false)),
        ("text", Read::String("naïve\n".into())),
        ("u64", Read::U64(u64::MAX)),
        ("i64", Read::I64(i64::MIN)),
        ("f64", Read::F64(1e-300)),
        ("texts", Read::Array(Array::String(["", "b"].into_iter().collect()))),
        ("floats", Read::Array(Array::F32(vec![0.5, -0.5]))),
        ("none", Read::Array(Array::I32(vec![]))),
        ("nested", Read::Array(Array::Array(vec![Array::U8(vec![7]), Array::String(Texts::default())]))),
    ];
    let found: Vec<_> = weights.metadata.0.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
    assert_eq!(found, expected);
}

/// D01.
#[test]
fn counts_are_checked_before_anything_is_allocated() {
    let counts = |tensors, keys| {
        let mut file = File::new().unpadded();
        (file.tensor_count, file.key_count) = (Some(tensors), Some(keys));
        file.bytes()
    };
    refuse(vec![
        ("tensors", counts(1 << 60, 0), &["header.tensor_count", "1152921504606846976", "0 bytes remain"]),
        ("keys", counts(0, 1 << 61), &["header.metadata_kv_count", "0 bytes remain"]),
        ("both", counts(u64::MAX, u64::MAX), &["header.tensor_count"]),
        ("text", File::new().key("k", Value::Raw(8, vec![0xff; 8])).bytes(), &["metadata[0] k", "remain"]),
        (
            "array",
            File::new().key("k", Value::Raw(9, [vec![4, 0, 0, 0], vec![0xff; 8]].concat())).bytes(),
            &["metadata[0] k", "remain"],
        ),
    ]);
}

/// D02.
#[test]
fn empty_tensors_are_accepted() {
    for dims in [&[1, 0][..], &[0, 1], &[0], &[0, 0, 0, 0], &[0, u64::MAX >> 1]] {
        for padded in [true, false] {
            let mut file = File::new().tensor("t", dims, 0, vec![]);
            file.padded = padded;
            let weights = open(&file).unwrap();
            assert_eq!(weights.tensors["t"].data.len(), 0, "{dims:?}");
            assert!(weights.tensor("t").unwrap().is_empty(), "{dims:?}");
        }
    }
}

/// D03, and its kin.
#[test]
fn dimensions_that_overflow_are_refused() {
    let tensor = |dims: &[u64], kind| File::new().tensor("t", dims, kind, vec![0; 64]).bytes();
    refuse(vec![
        ("D03", tensor(&[1152, (1 << 42) + 1], 1), &["tensor[0] t", "size overflow"]),
        ("wraps to 2304", tensor(&[1152, (1 << 63) + 1], 1), &["tensor[0] t", "size overflow"]),
        ("wraps to 0", tensor(&[1 << 32, 1 << 32], 0), &["tensor[0] t", "size overflow"]),
        ("four dims", tensor(&[1 << 16; 4], 0), &["tensor[0] t", "size overflow"]),
        ("unknown type", tensor(&[1 << 63, 4], 200), &["tensor[0] t", "size overflow"]),
        ("five dims", tensor(&[1; 5], 0), &["tensor[0] t.n_dims", "5 dimensions"]),
        ("no dims", tensor(&[], 0), &["tensor[0] t.n_dims", "0 dimensions"]),
        ("part of a block", tensor(&[33], 2), &["tensor[0] t", "33", "32"]),
    ]);
}

/// D04: as written there, then every length of padding with every alignment.
#[test]
fn data_starts_at_any_alignment() {
    let exact = |file: &File, case: &str| {
        let weights = open(file).unwrap();
        assert_eq!(values(&weights, "a"), [1.0, 2.0, 3.0, 4.0], "{case}");
        assert_eq!(values(&weights, "b"), [5.0, 6.0, 7.0, 8.0], "{case}");
        assert_eq!(values(&weights, "c"), [9.0, 10.0, 11.0, 12.0], "{case}");
        weights
    };
    let file = |alignment: u32, length: usize| {
        let keys = File::new().aligned(alignment).key("x", Value::Text("x".repeat(length)));
        File { tensors: three().tensors, ..keys }
    };
    let weights = exact(&file(16, 20), "D04");
    assert_eq!(weights.tensors["a"].offset, 208);
    assert_eq!(file(16, 20).bytes().len(), 256);
    for alignment in [16, 32, 64, 4096] {
        for length in 0..32 {
            exact(&file(alignment, length), &format!("alignment {alignment}, {length} bytes"));
            exact(&file(alignment, length).unpadded(), &format!("unpadded {alignment}, {length} bytes"));
        }
    }
}

#[test]
fn alignment_is_any_integer_that_is_a_power_of_two() {
    let with = |value| {
        let mut file = File { tensors: three().tensors, ..File::new().key("general.alignment", value) };
        file.alignment = 64;
        file
    };
    for value in [Value::U8(64), Value::I16(64), Value::I32(64), Value::U64(64), Value::I64(64)] {
        assert_eq!(values(&open(&with(value)).unwrap(), "b"), [5.0, 6.0, 7.0, 8.0]);
    }
    let one = File { tensors: three().tensors, ..File::new().aligned(1) };
    assert_eq!(values(&open(&one).unwrap(), "b"), [5.0, 6.0, 7.0, 8.0]);
    let words: &[&str] = &["general.alignment"];
    refuse(vec![
        ("0", with(Value::U32(0)).bytes(), words),
        ("48", with(Value::U32(48)).bytes(), words),
        ("-64", with(Value::I32(-64)).bytes(), words),
        ("2^21", with(Value::U32(1 << 21)).bytes(), words),
        ("2^63", with(Value::U64(1 << 63)).bytes(), words),
        ("text", with(Value::text("64")).bytes(), words),
        ("float", with(Value::F32(64.0)).bytes(), words),
    ]);
}

#[test]
fn tensors_lie_in_any_order_with_any_gaps() {
    let mut file = three();
    for (tensor, offset) in file.tensors.iter_mut().zip([128, 0, 64]) {
        tensor.offset = Some(offset);
    }
    let mut bytes = file.bytes();
    let start = bytes.len() - 96;
    bytes.resize(start + 160, 0);
    for (offset, value) in [(128, 1.0f32), (0, 2.0), (64, 3.0)] {
        bytes[start + offset..start + offset + 4].copy_from_slice(&value.to_le_bytes());
    }
    let weights = Weights::from_bytes("test.gguf", bytes).unwrap();
    for (name, value) in [("a", 1.0), ("b", 2.0), ("c", 3.0)] {
        assert_eq!(values(&weights, name)[0], value, "{name}");
    }
}

/// D05: every type is listed, ours can be used, and the rest says which it is when it is used.
#[test]
fn every_type_is_listed_and_only_ours_run() {
    let mut failures = Vec::new();
    let mut ours = 0;
    // Those of our own are far above ggml's.
    let own = FORMATS.iter().filter_map(|format| format.gguf_id).filter(|id| *id > 255);
    for id in (0..=255).chain(own) {
        let formats: Vec<_> = Format::by_gguf_id(id).collect();
        let (len, bytes) = formats.first().map_or((256, 2048), |f| (f.block_len * 8, f.block_bytes * 8));
        let file = File::new().f32("before", &[1.0]).tensor("t", &[len as u64], id, vec![0; bytes]);
        let weights = open(&file).unwrap();
        let used = weights.tensor("t").map_err(|error| error.to_string());
        match (formats.as_slice(), used) {
            ([], Err(message)) if message.contains("tensor t") && message.contains(&format!("type {id}")) => {
            }
            ([_, ..], Ok(tensor)) if formats.iter().any(|f| f.name == tensor.format().name) => ours += 1,
            (_, used) => failures.push(format!("type {id}: {used:?}")),
        }
        assert_eq!(values(&weights, "before"), [1.0]);
    }
    assert!(failures.is_empty(), "{failures:#?}");
    let ids: std::collections::HashSet<_> = FORMATS.iter().filter_map(|format| format.gguf_id).collect();
    assert_eq!(ours, ids.len());
}

#[test]
fn types_that_we_do_not_run_have_ggml_names_and_bytes() {
    // (type, name, bytes of 8 elements, words of the refusal)
    let cases = [
        (24, "I8", 8, "type 24"),
        (25, "I16", 16, "type 25"),
        (26, "I32", 32, "type 26"),
        (27, "I64", 64, "type 27"),
        (28, "F64", 64, "type 28"),
        (4, "Q4_2 (removed)", 0, "removed"),
        (36, "IQ4_NL_4_4 (removed)", 0, "removed"),
        (200, "type 200", 0, "unknown"),
    ];
    let mut failures = Vec::new();
    for (id, name, bytes, words) in cases {
        let weights = open(&File::new().tensor("t", &[8], id, vec![0; 64])).unwrap();
        let entry = &weights.tensors["t"];
        let message = weights.tensor("t").unwrap_err().to_string();
        if entry.type_name != name || entry.data.len() != bytes || !message.contains(words) {
            failures.push(format!("{id}: {entry:?}, {message}"));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// D05's id 42: two layouts, told apart by the space they take.
#[test]
fn type_42_is_read_by_its_length() {
    let wide = Format::by_name("q2_0").expect("a row of FORMATS");
    let narrow = Format::by_name("q2_0_g64").expect("a row of FORMATS");
    assert_eq!((wide.block_len, wide.block_bytes), (128, 34));
    assert_eq!((narrow.block_len, narrow.block_bytes), (64, 18));
    let tensor = |file: File, name: &str, columns: u64, format: &Format| {
        let bytes = format.bytes_for(columns as usize).unwrap();
        file.tensor(name, &[columns], 42, vec![0; bytes])
    };
    let name = |weights: &Weights, name: &str| weights.tensor(name).unwrap().format().name;
    for format in [wide, narrow] {
        // Large first, in the middle and last, padded and not; a tiny one follows the large one's layout.
        let file = tensor(File::new(), "first", 2048, format).f32("f", &[1.0]);
        let file = tensor(file, "tiny", 128, format);
        let file = tensor(file, "last", 4096, format);
        for file in [file.clone(), file.unpadded()] {
            let weights = open(&file).unwrap();
            for tensor in ["first", "tiny", "last"] {
                assert_eq!(name(&weights, tensor), format.name, "{tensor}");
            }
        }
    }
    let alone = open(&tensor(File::new(), "tiny", 128, wide)).unwrap();
    assert_eq!(name(&alone, "tiny"), "q2_0_g64", "nothing tells: upstream's layout");
    let neither = File::new().tensor("t", &[2048], 42, vec![0; 800]);
    refuse(vec![("neither", neither.bytes(), &["tensor[0] t", "800 bytes", "q2_0 ", "q2_0_g64"])]);
}

/// D06, and the other ways a header can contradict itself.
#[test]
fn broken_headers_say_where() {
    let cut = |file: &File| {
        let mut bytes = file.bytes();
        bytes.pop();
        bytes
    };
    let named = |bytes: &[u8]| Value::Raw(8, [&(bytes.len() as u64).to_le_bytes(), bytes].concat());
    let mut deep = Value::Array(0, vec![]);
    for _ in 0..6 {
        deep = Value::Array(9, vec![deep]);
    }
    let x = || Value::U8(1);
    refuse(vec![
        ("D06a empty key", File::new().key("x", x()).key("", x()).bytes(), &["metadata[1].key", "empty"]),
        ("D06b cut", cut(&three().unpadded()), &["tensor[2] c", "1 bytes past the end", "incomplete"]),
        ("D06b cut in the padding", cut(&three()), &["tensor[2] c", "incomplete"]),
        ("D06c twice", three().f32("a", &[1.0]).bytes(), &["tensor[3] a", "twice"]),
        ("key twice", File::new().key("x", x()).key("x", x()).bytes(), &["metadata[1] x", "twice"]),
        ("no name", File::new().f32("", &[1.0]).bytes(), &["tensor[0].name", "empty"]),
        ("unaligned", three().at(65).bytes(), &["tensor[2] c.offset", "65", "32"]),
        ("unaligned, unknown type", three().tensor("t", &[1], 200, vec![]).at(9).bytes(), &["tensor[3] t"]),
        ("far offset", three().at(1 << 62).bytes(), &["tensor[2] c", "past the end"]),
        ("last offset", three().at(u64::MAX - 31).bytes(), &["tensor[2] c", "past the end"]),
        ("bool of 2", File::new().key("x", Value::Raw(7, vec![2])).bytes(), &["metadata[0] x", "boolean"]),
        ("type 13", File::new().key("x", Value::Raw(13, vec![0; 8])).bytes(), &["metadata[0] x", "13"]),
        ("not UTF-8", File::new().key("x", named(b"ab\xff")).bytes(), &["metadata[0] x", "UTF-8", "byte 2"]),
        ("deep", File::new().key("x", deep).bytes(), &["metadata[0] x", "deep"]),
        (
            "a long key",
            File::new().key(&"k".repeat(65536), x()).bytes(),
            &["metadata[0].key", "65536", "65535"],
        ),
        ("control characters", three().f32("a\n\u{1b}[31m", &[1.0]).at(1).bytes(), &["a\\n\\u{1b}[31m"]),
        ("header only", b"GGUF".to_vec(), &["header.version", "0 remain"]),
        ("half a count", three().bytes()[..20].to_vec(), &["header.metadata_kv_count"]),
    ]);
}

/// A header cut anywhere is an error, never a panic, and never opens.
#[test]
fn every_prefix_is_refused() {
    let file = File::new().key("k", Value::texts(&["one", "two"])).key("n", Value::F64(1.0));
    let bytes = File { tensors: three().tensors, ..file }.unpadded().bytes();
    for length in 0..bytes.len() {
        assert_ne!(refusal(bytes[..length].to_vec()), "opened", "{length} of {} bytes", bytes.len());
    }
    assert_eq!(refusal(bytes), "opened");
}

#[test]
fn a_file_in_the_program_opens() {
    let bytes: &'static [u8] = three().bytes().leak();
    let weights = Weights::from_static("built in", bytes).unwrap();
    assert_eq!(values(&weights, "b"), [5.0, 6.0, 7.0, 8.0]);
    let inside = bytes.as_ptr_range();
    assert!(inside.contains(&weights.tensors["b"].data.as_ptr()), "borrowed, not copied");
}

#[test]
fn mapped_tensors_outlive_their_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("any.name");
    std::fs::write(&path, three().bytes()).unwrap();
    let tensor = Weights::open(&path).unwrap().tensor("c").unwrap();
    assert_eq!(tensor.to_f32().unwrap(), [9.0, 10.0, 11.0, 12.0]);
}

#[test]
fn real_files_open() {
    let folder =
        std::env::var_os("HADAL_TEST_MODELS").map_or_else(|| PathBuf::from("target/models"), PathBuf::from);
    // (file, architecture, tensors)
    let cases = [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "llama", 272),
        ("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf", "qwen2", 291),
        ("gemma-3-270m-Q4_K_M.gguf", "gemma3", 236),
    ];
    for (name, architecture, tensors) in cases {
        let path = folder.join(name);
        if !path.exists() {
            println!("skipped: {} is not there", path.display());
            continue;
        }
        let weights = Weights::open(&path).unwrap();
        assert_eq!(weights.metadata.str("general.architecture").unwrap(), Some(architecture));
        assert_eq!(weights.tensors.len(), tensors, "{name}");
        let norm = weights.tensor("output_norm.weight").unwrap().to_f32().unwrap();
        assert!(norm.iter().all(|value| value.is_finite()), "{name}");
    }
}

//! Writing GGUF: what was read comes out as the same bytes, files appear whole or not at all.

use std::path::Path;

use hadal::file::gguf::{Declared, Plan, Writer, write};
use hadal::file::metadata::{Array, Value as Own};
use hadal::file::output::{Output, partial};
use hadal::file::{Metadata, Weights};
use hadal::quant::f32;
use support::gguf::{File, Value};

mod support {
    pub mod gguf;
}

/// Keys of every type, tensors of several, one of them none of our formats.
fn file() -> File {
    File::new()
        .key("general.architecture", Value::text("llama"))
        .key("u8", Value::U8(1))
        .key("i8", Value::I8(-1))
        .key("u16", Value::U16(2))
        .key("i16", Value::I16(-2))
        .key("u32", Value::U32(3))
        .key("i32", Value::I32(-3))
        .key("f32", Value::F32(1e-5))
        .key("yes", Value::Bool(true))
        .key("text", Value::text("naïve\n"))
        .key("u64", Value::U64(u64::MAX))
        .key("i64", Value::I64(i64::MIN))
        .key("f64", Value::F64(0.1))
        .key("texts", Value::texts(&["", "b"]))
        .key("scores", Value::Array(6, vec![Value::F32(f32::NAN), Value::F32(-0.0)]))
        .key("bools", Value::Array(7, vec![Value::Bool(true), Value::Bool(false)]))
        .key("bytes", Value::Array(0, vec![Value::U8(9); 5]))
        .key("doubles", Value::Array(12, vec![Value::F64(1e300)]))
        .key("none", Value::Array(5, vec![]))
        .key("nested", Value::Array(9, vec![Value::Array(0, vec![Value::U8(7)]), Value::Array(8, vec![])]))
        .f32("a", &[1.0, 2.0, 3.0])
        .tensor("b", &[32, 2], 8, vec![7; 68])
        .tensor("c", &[5], 26, vec![1; 20])
        .tensor("empty", &[0], 0, vec![])
        .f32("d", &[4.0])
}

fn same(path: &Path, original: &[u8]) -> bool {
    std::fs::read(path).expect("it was written") == original
}

#[test]
fn unchanged_files_come_out_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    let cases = [
        ("all types", file().bytes()),
        ("aligned to 8", File::new().aligned(8).f32("a", &[1.0]).f32("b", &[2.0; 3]).bytes()),
        ("aligned to 4096", File::new().aligned(4096).f32("a", &[1.0]).f32("b", &[2.0; 3]).bytes()),
        ("no tensors", File::new().key("x", Value::text(&"y".repeat(5))).bytes()),
        ("said to be one part", File::new().key("split.count", Value::U16(0)).f32("a", &[1.0]).bytes()),
        ("nothing", File::new().bytes()),
        ("austen", std::fs::read("models/austen/austen-q8_0.gguf").unwrap()),
    ];
    for (name, bytes) in cases {
        let weights = Weights::from_bytes(name, bytes.clone()).unwrap();
        write(&out, &weights).unwrap();
        assert!(same(&out, &bytes), "{name}");
        let plan = Plan::of(&weights).unwrap();
        assert_eq!(plan.bytes().unwrap(), bytes.len() as u64, "{name}");
        let data = weights.tensors.values().map(|entry| &entry.data[..]);
        assert!(plan.to_bytes(data).unwrap() == bytes, "{name} in memory");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left over");
}

/// The real models, where they were fetched.
#[test]
fn real_models_come_out_byte_for_byte() {
    let models = std::env::var("HADAL_TEST_MODELS").unwrap_or_else(|_| "target/models".into());
    let path = Path::new(&models).join("SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        assert!(std::env::var_os("HADAL_CI").is_none(), "{} was not fetched", path.display());
        println!("skipped: {} is not there", path.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    write(&out, &Weights::open(&path).unwrap()).unwrap();
    assert!(same(&out, &std::fs::read(&path).unwrap()));
}

#[test]
fn models_are_split_and_joined() {
    let folder = tempfile::tempdir().unwrap();
    let whole = Weights::from_bytes("whole", file().bytes()).unwrap();
    let mut plan = Plan::of(&whole).unwrap();
    plan.split(80);
    assert_eq!(plan.parts, [2, 3], "12 and 68 bytes, then 20, 0 and 4");
    let data = || whole.tensors.values().map(|entry| &entry.data[..]);
    let mut writer = Writer::create(&folder.path().join("m.gguf"), &plan).unwrap();
    data().for_each(|bytes| writer.tensor(bytes).unwrap());
    assert_eq!(writer.done(), 5);
    writer.finish().unwrap();

    // Any part opens them all, under the keys of the model.
    let parts = [1, 2].map(|no| folder.path().join(format!("m-0000{no}-of-00002.gguf")));
    let split = Weights::open(&parts[1]).unwrap();
    assert_eq!(split.parts.len(), 2);
    let contents = |weights: &Weights| -> Vec<_> {
        weights.tensors.iter().map(|(name, entry)| (name.clone(), entry.data.to_vec())).collect()
    };
    assert_eq!(contents(&split), contents(&whole));
    assert_eq!(split.metadata.get("split.count"), Some(&Own::U16(2)));

    // Parts written again are the same, also if a part's name is given.
    let again = tempfile::tempdir().unwrap();
    write(&again.path().join("m-00001-of-00002.gguf"), &split).unwrap();
    for part in &parts {
        assert!(
            same(&again.path().join(part.file_name().unwrap()), &std::fs::read(part).unwrap()),
            "{part:?}"
        );
    }
    // Joined they are the file that was split.
    let mut plan = Plan::of(&split).unwrap();
    plan.join();
    let data = split.tensors.values().map(|entry| &entry.data[..]);
    assert!(plan.to_bytes(data).unwrap() == file().bytes());
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    let tensor = |shape: &[usize]| Declared::new("t", shape, &f32::FORMAT);
    assert!(tensor(&[usize::MAX, 2]).unwrap_err().to_string().contains("overflow"));
    assert!(Declared::new("t", &[31], &hadal::quant::q4_0::FORMAT).is_err());

    let plan = Plan { metadata: Metadata::default(), tensors: vec![tensor(&[2]).unwrap()], parts: vec![1] };
    let wrong_parts = Plan { parts: vec![2], ..plan.clone() };
    assert!(Writer::create(&out, &wrong_parts).is_err());
    let mut odd = plan.clone();
    odd.metadata.set("general.alignment", Own::U32(3));
    assert!(Writer::create(&out, &odd).unwrap_err().to_string().contains("power of two"));

    let mut writer = Writer::create(&out, &plan).unwrap();
    assert!(writer.tensor(&[0; 7]).unwrap_err().to_string().contains("8 bytes were declared, 7 given"));
    writer.tensor(&[0; 8]).unwrap();
    assert!(writer.tensor(&[0; 8]).is_err(), "one too many");
    drop(writer);
    let writer = Writer::create(&out, &plan).unwrap();
    assert!(writer.finish().unwrap_err().to_string().contains("not written"));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left of any of them");
}

#[test]
fn a_file_is_continued_where_it_was_left() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.gguf");
    let whole = Weights::from_bytes("whole", file().bytes()).unwrap();
    let plan = Plan::of(&whole).unwrap();
    let data: Vec<_> = whole.tensors.values().map(|entry| &entry.data[..]).collect();
    for done in 0..data.len() {
        let mut writer = Writer::create(&out, &plan).unwrap();
        writer.keep();
        // One more than is remembered: what follows is written again.
        data[..=done].iter().for_each(|bytes| writer.tensor(bytes).unwrap());
        drop(writer);
        let mut writer = Writer::resume(&out, &plan, done).unwrap().expect("it was kept");
        data[done..].iter().for_each(|bytes| writer.tensor(bytes).unwrap());
        writer.finish().unwrap();
        assert!(same(&out, &file().bytes()), "from tensor {done} on");
    }
    assert!(Writer::resume(&out, &plan, 1).unwrap().is_none(), "nothing was begun");
    let mut writer = Writer::create(&out, &plan).unwrap();
    writer.keep();
    drop(writer);
    let mut other = plan.clone();
    other.metadata.set("u8", Own::Array(Array::U8(vec![1])));
    assert!(Writer::resume(&out, &other, 0).unwrap().is_none(), "another header");
    assert!(Writer::resume(&out, &plan, 3).unwrap().is_none(), "too short");
}

#[test]
fn what_cannot_be_written_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.gguf");
    std::fs::write(&out, "old").unwrap();
    let mut permissions = std::fs::metadata(&out).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&out, permissions).unwrap();
    let message = Output::create(&out).unwrap_err().to_string();
    assert!(message.contains("m.gguf: is write-protected"), "{message}");
    assert!(Output::create(folder.path()).unwrap_err().to_string().contains("folder"));
    assert!(Output::create(&folder.path().join("no/such/folder")).is_err());

    let other = folder.path().join("n.gguf");
    let first = Output::create(&other).unwrap();
    assert!(Output::create(&other).unwrap_err().to_string().contains("another program"));
    drop(first);
    assert!(!partial(&other).exists() && same(&out, b"old"));
}

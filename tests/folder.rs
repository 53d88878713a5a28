//! Models as Hugging Face and MLX folders: the same tensors, tokens and logits as what they were made of.
#![allow(clippy::unwrap_used, reason = "a test that cannot do its steps must fail")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use hadal::Error;
use hadal::backend::cpu::Activations;
use hadal::cache::CacheType;
use hadal::convert::for_gguf;
use hadal::engine::{Engine, Options};
use hadal::file::Weights;
use hadal::file::metadata::{Array, Metadata, Value};
use hadal::quant::{Format, bf16, f16, f32};
use hadal::quantize::folder::{Folder, Target};
use hadal::quantize::{Plan, Run, Settings, Start};
use hadal::tokenizer::{Special, Tokenizer, export};

#[path = "support/golden.rs"]
mod golden;

use golden::Golden;

const AUSTEN: &str = "tests/data/austen";

fn target(matrices: &str, floats: &'static Format) -> Target {
    Target { matrices: Format::by_name(matrices).unwrap(), floats, shard: 5_000_000 }
}

fn make(source: &Weights, target: Target, out: &Path) {
    Folder::new(source, target).unwrap().write(out, Some(2), Start::Anew, |_| Ok(())).unwrap();
}

fn gguf(source: Weights, out: &Path) {
    let source = for_gguf(source).unwrap();
    let plan = Plan::new(&source, &Settings::new(None), None).unwrap();
    let mut run = Run::new(&plan, out, Some(2), Start::Anew).unwrap();
    run.by_ref().for_each(|step| {
        step.unwrap();
    });
    run.finish().unwrap();
}

fn engine(path: &Path) -> Engine {
    let options = Options { cache: CacheType::F32, activations: Activations::Float, ..Options::default() };
    Engine::open_with(path, &options).unwrap()
}

#[test]
fn a_folder_of_a_gguf_file_is_the_folder_that_it_was_made_of() {
    let place = tempfile::tempdir().unwrap();
    let (file, folder) = (place.path().join("austen.gguf"), place.path().join("again"));
    gguf(Weights::open(AUSTEN).unwrap(), &file);
    make(&Weights::open(&file).unwrap(), target("f32", &f32::FORMAT), &folder);

    let (before, after) = (Weights::open(AUSTEN).unwrap(), Weights::open(&folder).unwrap());
    assert_eq!(before.tensors.len(), after.tensors.len());
    for (name, entry) in &before.tensors {
        let found = &after.tensors[name];
        assert!(found.data[..] == entry.data[..] && found.shape == entry.shape, "{name}");
    }
    assert!(after.parts.len() > 2, "cut in several files");
    let keys = |weights: &Weights| {
        let keys = weights.metadata.0.iter().filter(|(key, _)| key.starts_with("llama."));
        let mut keys: Vec<_> = keys.map(|(key, value)| (key.clone(), value.clone())).collect();
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        keys
    };
    assert_eq!(keys(&before), keys(&after));

    let text = std::fs::read_to_string("tests/data/austen/heldout.txt").unwrap();
    let (before, mut after) = (engine(Path::new(AUSTEN)), engine(&folder));
    let ids = before.tokenizer().encode(&text[..20_000], Special::Text).unwrap();
    assert_eq!(after.tokenizer().encode(&text[..20_000], Special::Text).unwrap(), ids);
    assert_eq!(after.tokenizer().adds_bos(), before.tokenizer().adds_bos());
    assert_eq!(after.tokenizer().stops(), before.tokenizer().stops());
    let golden = Golden::open("austen/logits.safetensors");
    let found = after.score(&golden.ids("ids")).unwrap();
    for (found, expected) in found.values().iter().zip(golden.get::<f32>("logits").values) {
        assert!((found - expected).abs() < 1e-3, "{found} {expected}");
    }
}

/// Logits that mlx-lm computes with the folder that it makes itself of the same model.
#[test]
fn quantized_folders_give_the_logits_of_mlx() {
    let place = tempfile::tempdir().unwrap();
    let golden = Golden::open("mlx/austen_logits.safetensors");
    let (ids, rows) = (golden.ids("ids"), golden.ids("rows"));
    let source = Weights::open(AUSTEN).unwrap();
    let cases: [(&str, &str, &'static Format); 5] = [
        ("a4f16", "affine4_g64", &f16::FORMAT),
        ("a4bf16", "affine4_g64", &bf16::FORMAT),
        ("a8f32", "affine8_g32", &f32::FORMAT),
        ("a2f16", "affine2_g32", &f16::FORMAT),
        ("mxfp8", "mxfp8", &f16::FORMAT),
    ];
    for (name, format, floats) in cases {
        let folder = place.path().join(name);
        make(&source, target(format, floats), &folder);
        let mut engine = engine(&folder);
        let found = engine.score(&ids).unwrap();
        let expected = golden.get::<f32>(&format!("{name}.logits"));
        for (&row, expected) in rows.iter().zip(expected.iter()) {
            let found = &found.values()[row as usize * expected.len()..][..expected.len()];
            let size = expected.iter().map(|x| f64::from(x * x)).sum::<f64>();
            let error = found.iter().zip(expected).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            assert!((error / size).sqrt() < 1e-2, "{name} row {row}: {}", (error / size).sqrt());
            let mut order: Vec<usize> = (0..expected.len()).collect();
            order.sort_by(|&a, &b| expected[b].total_cmp(&expected[a]));
            if expected[order[0]] - expected[order[1]] > 1.0 {
                let best = (0..found.len()).max_by(|&a, &b| found[a].total_cmp(&found[b])).unwrap();
                assert_eq!(best, order[0], "{name} row {row}");
            }
        }
    }
}

#[test]
fn a_quantized_folder_becomes_a_file() {
    let place = tempfile::tempdir().unwrap();
    let [mlx, file, again] = ["mlx", "model.gguf", "again"].map(|name| place.path().join(name));
    make(&Weights::open(AUSTEN).unwrap(), target("affine6_g128", &f16::FORMAT), &mlx);
    gguf(Weights::open(&mlx).unwrap(), &file);
    let (mlx, file) = (Weights::open(&mlx).unwrap(), Weights::open(&file).unwrap());
    for name in ["token_embd.weight", "blk.2.ffn_down.weight"] {
        let (before, after) = (mlx.tensor(name).unwrap(), file.tensor(name).unwrap());
        assert_eq!((before.format().name, after.format().name), ("affine6_g128", "f16"));
        for (before, after) in before.to_f32().unwrap().iter().zip(after.to_f32().unwrap()) {
            assert!((before - after).abs() <= before.abs() / 2048.0 + 1e-7, "{name}: {before} {after}");
        }
    }
    // A format that MLX has not.
    let error = Folder::new(&file, target("q4_k", &f16::FORMAT)).unwrap_err();
    assert!(error.to_string().contains("q4_k"), "{error}");
    // Whatever is there stays.
    std::fs::create_dir(&again).unwrap();
    let folder = Folder::new(&file, target("f16", &f16::FORMAT)).unwrap();
    let error = folder.write(&again, None, Start::Anew, |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("is there already"), "{error}");
}

#[test]
fn trellis_codes_go_to_folders_and_back() {
    let place = tempfile::tempdir().unwrap();
    let [first, file, again] = ["first", "model.gguf", "again"].map(|name| place.path().join(name));
    make(&Weights::open(AUSTEN).unwrap(), target("trellis_k2", &f16::FORMAT), &first);
    gguf(Weights::open(&first).unwrap(), &file);
    make(&Weights::open(&file).unwrap(), target("trellis_k2", &f16::FORMAT), &again);

    let plain = Weights::open(AUSTEN).unwrap();
    let all = [&first, &file, &again].map(|path| Weights::open(path).unwrap());
    let [first_down, ..] = all.each_ref().map(|weights| {
        let tensor = weights.tensor("blk.2.ffn_down.weight").unwrap();
        assert_eq!(tensor.format().name, "trellis_k2");
        tensor.to_f32().unwrap()
    });
    for weights in &all[1..] {
        let found = weights.tensor("blk.2.ffn_down.weight").unwrap().to_f32().unwrap();
        assert!(found == first_down, "the codes stay as they are");
    }
    let exact = plain.tensor("blk.2.ffn_down.weight").unwrap().to_f32().unwrap();
    let energy: f32 = exact.iter().map(|x| x * x).sum();
    let lost: f32 = exact.iter().zip(&first_down).map(|(x, found)| (x - found) * (x - found)).sum();
    assert!(lost < 0.1 * energy, "2 bits lose {lost} of {energy}");
    let tensors = |folder: &Path| {
        let mut files = files(folder);
        files.retain(|name, _| name.to_string_lossy().ends_with(".safetensors"));
        files
    };
    assert!(tensors(&first) == tensors(&again));

    // The published code is another one.
    let config = first.join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("hadal-2", "1mad")).unwrap();
    let error = Weights::open(&first).unwrap_err().to_string();
    assert!(error.contains("1mad") && error.contains("hadal-2"), "{error}");
}

/// Every file of a folder.
fn files(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn what_was_stopped_is_gone_on_with() {
    let place = tempfile::tempdir().unwrap();
    let [whole, stopped] = ["whole", "stopped"].map(|name| place.path().join(name));
    let source = Weights::open(AUSTEN).unwrap();
    let wanted = target("affine4_g64", &f16::FORMAT);
    // Several files, of which some are whole when it is stopped.
    let wanted = Target { shard: 500_000, ..wanted };
    make(&source, wanted, &whole);
    let folder = Folder::new(&source, wanted).unwrap();
    let run = |folder: &Folder, start, most: usize| {
        let mut steps = 0;
        let made = folder.write(&stopped, None, start, |_| {
            steps += 1;
            if steps <= most { Ok(()) } else { Err(Error::Tokenizer("stop".into())) }
        });
        (made, steps)
    };
    let total = source.tensors.len();
    // At once, at the start of the work, in the middle, and then to the end without doing anything twice.
    for most in [0, 1, 20] {
        let (made, _) = run(&folder, Start::Resume, most);
        assert!(made.is_err() && !stopped.exists());
    }
    // Another source, or other formats: refused, or begun anew.
    let copy = place.path().join("copy.gguf");
    gguf(Weights::open(AUSTEN).unwrap(), &copy);
    let copy = Weights::open(&copy).unwrap();
    let (made, steps) = run(&Folder::new(&copy, wanted).unwrap(), Start::Resume, total);
    assert!(steps == 0 && made.unwrap_err().to_string().contains("is of another source"));
    let (made, steps) = run(&folder, Start::Resume, total);
    made.unwrap();
    assert_eq!(steps, total - 21);
    assert!(files(&stopped) == files(&whole) && files(&whole).len() > 8);

    std::fs::remove_dir_all(&stopped).unwrap();
    let (made, _) = run(&folder, Start::Anew, 20);
    made.unwrap_err();
    let other =
        Folder::new(&source, Target { matrices: Format::by_name("mxfp4").unwrap(), ..wanted }).unwrap();
    let (made, steps) = run(&other, Start::Resume, total);
    made.unwrap();
    assert_eq!(steps, total);
    let made = Weights::open(&stopped).unwrap();
    assert_eq!(made.tensor("blk.0.attn_q.weight").unwrap().format().name, "mxfp4");
    let left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

/// A SentencePiece vocabulary as GGUF has it: bytes, letters and some words, the longer the better.
fn sentencepiece(prefix: bool) -> Metadata {
    let mut tokens: Vec<(String, f32, i32)> =
        ["<pad>", "<eos>", "<bos>"].map(|text| (text.to_owned(), 0.0, 3)).to_vec();
    tokens.push(("<unk>".into(), 0.0, 2));
    tokens.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6)));
    let letters = ('a'..='z').chain(['▁', '.', 'H']);
    tokens.extend(letters.map(|letter| (letter.to_string(), -1000.0, 1)));
    let words = ["▁the", "he", "th", "▁t", "ll", "hell", "▁hell", "llo", "ello", "hello", "▁hello", "▁▁"];
    tokens.extend(words.iter().enumerate().map(|(i, word)| ((*word).to_owned(), -(i as f32), 1)));
    let mut metadata = Metadata::default();
    let mut set = |key: &str, value| metadata.set(format!("tokenizer.ggml.{key}"), value);
    set("model", Value::String("llama".into()));
    set("tokens", Value::Array(Array::String(tokens.iter().map(|token| token.0.as_str()).collect())));
    set("scores", Value::Array(Array::F32(tokens.iter().map(|token| token.1).collect())));
    set("token_type", Value::Array(Array::I32(tokens.iter().map(|token| token.2).collect())));
    set("add_space_prefix", Value::Bool(prefix));
    set("bos_token_id", Value::U32(2));
    set("eos_token_id", Value::U32(1));
    metadata
}

#[test]
fn sentencepiece_goes_both_ways() {
    for prefix in [false, true] {
        let metadata = sentencepiece(prefix);
        let original = Tokenizer::from_metadata(&metadata).unwrap();
        let exported = export(&metadata).unwrap();
        let (json, config) = (exported.tokenizer.to_string(), exported.config.to_string());
        let copy = Tokenizer::from_json(&json, Some(&config)).unwrap();
        let mut weights = Weights::open(AUSTEN).unwrap();
        (weights.tokenizer_json, weights.tokenizer_config_json) = (Some(json), Some(config));
        let back = Tokenizer::from_metadata(&for_gguf(weights).unwrap().metadata).unwrap();
        for text in ["hello", " the hell  hello.", "thellohello Hello é\n\t🚀", ""] {
            let ids = original.encode(text, Special::Text).unwrap();
            assert_eq!(copy.encode(text, Special::Text).unwrap(), ids, "{prefix} {text:?}");
            assert_eq!(back.encode(text, Special::Text).unwrap(), ids, "{prefix} {text:?}");
            assert_eq!(copy.decode(&ids), original.decode(&ids), "{prefix} {text:?}");
        }
        let (begin, end) = (original.encode_prompt("the", Special::Text).unwrap(), original.eos());
        assert_eq!(copy.encode_prompt("the", Special::Text).unwrap(), begin);
        assert_eq!((copy.eos(), back.decode(&begin)), (end, original.decode(&begin)));
    }
    let mut other = sentencepiece(true);
    other.set("tokenizer.ggml.model", Value::String("t5".into()));
    assert!(export(&other).unwrap_err().to_string().contains("t5"));
}

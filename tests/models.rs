//! Whole models against reference logits: tiny random ones, the Austen model, and real files where they are present.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hadal::backend::cpu::{Activations, Cpu};
use hadal::cache::{CacheType, KvCache};
use hadal::engine::{Engine, Options};
use hadal::file::{Metadata, RopePairs, Value, Weights};
use hadal::model::{self, Model, Outputs};
use hadal::simd::Isa;
use hadal::tensor::Bytes;
use serde_json::Value as Json;

mod support;

use support::golden::Golden;

// ---------------------------------------------------------------------------------------------------- tiny models

/// A folder with `config.json` and `model.safetensors` made from a golden file: weights are the tensors whose names
/// do not begin with `_`.
fn folder_of(golden: &Golden) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("config.json"), golden.metadata("config")).expect("written");
    golden.write_without_underscores(&folder.path().join("model.safetensors"));
    folder
}

fn logits(model: &dyn Model, tokens: &[u32], parts: &[usize], cpu: &Cpu, cache: CacheType) -> Vec<f32> {
    let mut cache = KvCache::new(&model.cache_shape(), cache, 4096).expect("memory for a small cache");
    let mut values = Vec::new();
    let mut rest = tokens;
    for &part in parts {
        let (now, later) = rest.split_at(part.min(rest.len()));
        rest = later;
        if !now.is_empty() {
            values.extend(model.forward(now, &mut cache, Outputs::All, cpu).expect("a forward pass").into_values());
        }
    }
    assert!(rest.is_empty(), "the parts cover all tokens");
    values
}

fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn tiny_llama_with_llama3_rope_matches_the_reference() {
    let golden = Golden::open("mlx/model_llama3_tied.safetensors");
    let folder = folder_of(&golden);
    let model = model::load(&Weights::open(folder.path()).expect("a readable folder")).expect("a model");
    let ids: Vec<u32> = golden.i32s("_ids").iter().map(|&id| id as u32).collect();
    let split: usize = golden.metadata("split").parse().expect("a number");
    let cpu = Cpu::new(Some(2), None, Activations::Quantized).expect("threads");

    let full = logits(&*model, &ids, &[ids.len()], &cpu, CacheType::F32);
    let difference = max_difference(&full, &golden.f32s("_logits_full"));
    assert!(difference < 1e-4, "one piece: {difference}");
    let mut parts = vec![1; ids.len() - split + 1];
    parts[0] = split;
    let cached = logits(&*model, &ids, &parts, &cpu, CacheType::F32);
    let difference = max_difference(&cached, &golden.f32s("_logits_cached"));
    assert!(difference < 1e-4, "token by token: {difference}");
}

// ---------------------------------------------------------------------------------------------------- one answer

/// Random weights in [-0.5, 0.5), the same on every machine.
fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.f32() - 0.5).collect()
}

/// A small random model of `architecture` whose matrices are stored in `format`. Rows are 256 wide, so that every
/// format fits; heads are 4/2 of 32, or with a window of 24 tokens.
fn random_model(architecture: &str, format: &str) -> Arc<dyn Model> {
    const HIDDEN: usize = 256;
    let format = hadal::quant::Format::by_name(format).expect("a known format");
    let mut weights = Weights {
        path: PathBuf::from("random"),
        metadata: Metadata::default(),
        tensors: indexmap::IndexMap::new(),
        rope_pairs: RopePairs::Gguf,
        tokenizer_json: None,
        tokenizer_config_json: None,
    };
    let mut key = |name: &str, value: Value| {
        weights.metadata.0.insert(name.replace('*', architecture), value);
    };
    key("general.architecture", Value::String(architecture.into()));
    for (name, value) in [
        ("*.block_count", 2),
        ("*.context_length", 4096),
        ("*.embedding_length", HIDDEN as u64),
        ("*.feed_forward_length", 256),
        ("*.attention.head_count", 8),
        ("*.attention.head_count_kv", 2),
        ("*.attention.key_length", 32),
        ("*.attention.sliding_window_pattern", 2),
    ] {
        key(name, Value::Unsigned(value));
    }
    if architecture == "gemma3" {
        key("*.attention.sliding_window", Value::Unsigned(24));
    }
    key("*.attention.layer_norm_rms_epsilon", Value::Float(1e-6));

    let mut seed = 0;
    let mut add = |name: String, shape: &[usize]| {
        seed += 1;
        let values = noise(seed, shape.iter().product());
        let format = if shape.len() > 1 { format } else { &hadal::quant::f32::FORMAT };
        let values: Vec<f32> = if shape.len() > 1 {
            values.iter().map(|value| value * 0.25).collect()
        } else {
            values.iter().map(|value| value + 1.0).collect()
        };
        let mut bytes = vec![0; format.bytes_for(values.len()).expect("whole blocks")];
        format.encode(&values, &mut bytes).expect("finite");
        let entry = hadal::file::Entry {
            shape: shape.to_vec(),
            type_name: format.name.to_uppercase(),
            format: Some(format),
            offset: 0,
            part: 0,
            data: Bytes::Owned(bytes.into()),
        };
        weights.tensors.insert(name, entry);
    };
    add("token_embd.weight".into(), &[64, HIDDEN]);
    add("output_norm.weight".into(), &[HIDDEN]);
    for layer in 0..2 {
        for (name, shape) in [
            ("attn_norm.weight", &[HIDDEN][..]),
            ("attn_q.weight", &[256, HIDDEN]),
            ("attn_k.weight", &[64, HIDDEN]),
            ("attn_v.weight", &[64, HIDDEN]),
            ("attn_output.weight", &[HIDDEN, 256]),
            ("attn_q.bias", &[256]),
            ("attn_q_norm.weight", &[32]),
            ("attn_k_norm.weight", &[32]),
            ("post_attention_norm.weight", &[HIDDEN]),
            ("ffn_norm.weight", &[HIDDEN]),
            ("ffn_gate.weight", &[256, HIDDEN]),
            ("ffn_up.weight", &[256, HIDDEN]),
            ("ffn_down.weight", &[HIDDEN, 256]),
            ("post_ffw_norm.weight", &[HIDDEN]),
        ] {
            add(format!("blk.{layer}.{name}"), shape);
        }
    }
    model::load(&weights).expect("a well-formed model")
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// One-shot prefill, chunked prefill and token by token give the same bits at every prompt length from 1 to 600.
#[test]
fn every_prompt_length_and_chunking_gives_the_same_bits() {
    for (architecture, format) in [("llama", "q8_0"), ("gemma3", "q4_0"), ("qwen2", "f16")] {
        let model = random_model(architecture, format);
        let tokens: Vec<u32> = (0..600u32).map(|i| i * i % 61).collect();
        let cpu = Cpu::new(Some(2), None, Activations::Quantized).expect("threads");
        let reference = logits(&*model, &tokens, &vec![1; tokens.len()], &cpu, CacheType::F16);
        let vocab = model.config().vocab;
        assert!(reference.iter().all(|value| value.is_finite()));
        for length in 1..=tokens.len() {
            let expected = &reference[(length - 1) * vocab..length * vocab];
            let mut cache = KvCache::new(&model.cache_shape(), CacheType::F16, 600).expect("memory");
            let one = model.forward(&tokens[..length], &mut cache, Outputs::Last, &cpu).expect("a pass");
            assert_eq!(bits(one.values()), bits(expected), "{architecture}, one piece of {length}");
        }
        for chunk in [2, 7, 32, 33, 64, 199, 512] {
            let parts = vec![chunk; tokens.len().div_ceil(chunk)];
            let found = logits(&*model, &tokens, &parts, &cpu, CacheType::F16);
            assert_eq!(bits(&found), bits(&reference), "{architecture}, chunks of {chunk}");
        }
    }
}

/// Every format that has an encoder, every instruction set of this machine and 1 to 4 threads give the same bits.
#[test]
fn every_isa_and_thread_count_gives_the_same_bits() {
    let mut wrong = Vec::new();
    let usable = hadal::quant::FORMATS.iter().filter(|format| format.has_encoder() && format.dot.is_some());
    for format in usable {
        let model = random_model("qwen3", format.name);
        let tokens: Vec<u32> = (0..40u32).map(|i| i * 7 % 61).collect();
        let run = |threads: usize, isa: Isa| {
            let cpu = Cpu::new(Some(threads), Some(isa), Activations::Quantized).expect("threads");
            bits(&logits(&*model, &tokens, &[33, 1, 6], &cpu, CacheType::F16))
        };
        let reference = run(1, Isa::Scalar);
        for isa in Isa::available() {
            for threads in 1..=4 {
                if run(threads, isa) != reference {
                    wrong.push(format!("{} {isa:?} {threads} threads", format.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// ---------------------------------------------------------------------------------------------------- Austen

#[test]
fn austen_gives_the_logits_it_was_trained_with() {
    let golden = Golden::open("austen/logits.safetensors");
    let options = Options { cache: CacheType::F32, ..Options::default() };
    let mut engine = Engine::open_with("tests/data/austen", &options).expect("the f32 model");
    let ids: Vec<u32> = golden.i32s("ids").iter().map(|&id| id as u32).collect();
    let found = engine.score(&ids).expect("a forward pass");
    let difference = max_difference(found.values(), &golden.f32s("logits"));
    assert!(difference < 1e-4, "{difference}");

    let greedy: Vec<u32> = golden.i32s("greedy_ids").iter().map(|&id| id as u32).collect();
    let prompt = engine.tokenizer().encode(golden.metadata("greedy_prompt"), hadal::tokenizer::Special::Text);
    let prompt = prompt.expect("ordinary text");
    assert_eq!(prompt, greedy[..prompt.len()]);
    engine.reset();
    let settings = hadal::Sampling { max_tokens: Some(greedy.len() - prompt.len()), ..hadal::Sampling::greedy() };
    let text: String = engine
        .generate(golden.metadata("greedy_prompt"), &settings)
        .expect("a prompt that fits")
        .map(|piece| piece.expect("no numeric trouble"))
        .collect();
    assert_eq!(format!("{}{text}", golden.metadata("greedy_prompt")), golden.metadata("greedy_text"));
}

// ---------------------------------------------------------------------------------------------------- real files

/// The path of a real model; `None`, with a line that says so, if it is not here. In CI SmolLM2 must be.
fn real(file: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("HADAL_TEST_MODELS").map_or_else(|| PathBuf::from("target/models"), PathBuf::from);
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

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const GEMMA: &str = "gemma-3-270m-Q4_K_M.gguf";
const QWEN: &str = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf";

/// One step of `tests/data/generation`: the token that was chosen, and logits that were recorded.
struct Step {
    id: u32,
    recorded: Vec<(usize, f32)>,
    /// Top-1 minus top-2.
    margin: f32,
}

/// Prompt tokens and steps of a file; with `at` the logits are those of another path at the same tokens.
fn generation(file: &str) -> (Vec<u32>, Vec<Step>) {
    let text = std::fs::read_to_string(Path::new("tests/data/generation").join(file)).expect(file);
    let json: Json = serde_json::from_str(&text).expect("JSON");
    let number = |value: &Json| value.as_f64().expect("a number");
    let list = |value: &Json| value.as_array().expect("an array").clone();
    let steps = list(&json["steps"]).into_iter().map(|step| {
        let top: Vec<(usize, f32)> =
            list(&step["top5"]).iter().map(|pair| (number(&pair[0]) as usize, number(&pair[1]) as f32)).collect();
        let recorded = match step["at"].as_array() {
            Some(at) => top.iter().zip(at).map(|(&(id, _), value)| (id, number(value) as f32)).collect(),
            None => top.clone(),
        };
        Step { id: number(&step["id"]) as u32, margin: top[0].1 - top[1].1, recorded }
    });
    let steps = steps.collect();
    (list(&json["prompt_tokens"]).iter().map(|id| number(id) as u32).collect(), steps)
}

/// How logits of ours differ from recorded ones along a golden text.
struct Difference {
    max: f32,
    rms: f32,
    /// Margins of the steps where our best token is another one.
    flips: Vec<f32>,
}

fn teacher_forced(engine: &mut Engine, file: &str) -> Difference {
    let (prompt, steps) = generation(file);
    engine.reset();
    let mut tokens = prompt.clone();
    tokens.extend(steps.iter().map(|step| step.id));
    tokens.pop();
    let scored = engine.score(&tokens).expect("a forward pass");
    let rows = scored.values().chunks_exact(scored.columns()).skip(prompt.len() - 1);
    let (mut max, mut squares, mut count, mut flips) = (0.0f32, 0.0f64, 0, Vec::new());
    for (row, step) in rows.zip(&steps) {
        for &(id, logit) in &step.recorded {
            let difference = row[id] - logit;
            max = max.max(difference.abs());
            squares += f64::from(difference) * f64::from(difference);
            count += 1;
        }
        let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("a vocabulary");
        if best != step.id as usize {
            flips.push(step.margin);
        }
    }
    Difference { max, rms: (squares / f64::from(count)).sqrt() as f32, flips }
}

/// The golden files whose names begin with `start` and end with `end`.
fn goldens(folder: &str, start: &str, end: &str) -> Vec<String> {
    let entries = std::fs::read_dir(Path::new("tests/data/generation").join(folder)).expect("the goldens");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut found: Vec<_> = names
        .filter(|name| name.starts_with(start) && name.ends_with(end))
        .map(|name| Path::new(folder).join(name).to_string_lossy().into_owned())
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no golden {folder}/{start}*{end}");
    found
}

/// Float weights, float activations, float cache: only rounding of sums differs.
#[test]
fn smollm2_in_floats_matches_the_exact_graph() {
    let Some(path) = real(SMOLLM2) else { return };
    let options =
        Options { activations: Activations::Float, cache: CacheType::F32, ..Options::default() };
    let mut engine = Engine::open_with(path, &options).expect("SmolLM2");
    for file in goldens("teacher_forced", "smollm2_q4_1", ".f32w_f32kv_nofa.json") {
        let found = teacher_forced(&mut engine, &file);
        println!("{file}: max {} rms {}", found.max, found.rms);
        assert!(found.max <= 0.05, "{file}: {}", found.max);
    }
}

/// 8-bit activations: the reference engine differs from itself by as much between its kernels.
#[test]
fn real_models_match_the_reference_engine() {
    for (model, start) in [(SMOLLM2, "smollm2_q4_1"), (GEMMA, "gemma3_270m_q4_k_m")] {
        let Some(path) = real(model) else { continue };
        let mut engine = Engine::open(path).expect(model);
        for file in goldens("", start, ".json") {
            let found = teacher_forced(&mut engine, &file);
            println!("{file}: max {} rms {} flips {:?}", found.max, found.rms, found.flips);
            assert!(found.rms <= 0.35, "{file}: rms {}", found.rms);
            assert!(found.flips.len() <= 4, "{file}: flips {:?}", found.flips);
            assert!(found.flips.iter().all(|&margin| margin <= 1.0), "{file}: flips {:?}", found.flips);
        }
    }
}

/// Every decoded file gives sensible text: Qwen has no goldens, so a question with one answer has to do.
#[test]
fn qwen_answers() {
    let Some(path) = real(QWEN) else { return };
    let mut engine = Engine::open(path).expect(QWEN);
    let mut chat = engine.chat();
    let settings = hadal::Sampling { max_tokens: Some(24), ..hadal::Sampling::greedy() };
    let answer: String =
        chat.send("What is the capital of France?", &settings).map(|piece| piece.expect("text")).collect();
    assert!(answer.contains("Paris"), "{answer}");
}

/// Perplexity on the reference text within 1 % of the figures in `tests/data/generation/README.md`.
#[test]
fn smollm2_perplexity_is_the_reference_engines() {
    let Some(path) = real(SMOLLM2) else { return };
    let readme = std::fs::read_to_string("tests/data/generation/README.md").expect("the figures");
    let figure = |row: &str| -> f64 {
        let line = readme.lines().find(|line| line.starts_with(row)).expect("a row of the table");
        line.split('|').nth(2).and_then(|cell| cell.trim().parse().ok()).expect("a number")
    };
    let text = std::fs::read_to_string("tests/data/generation/ppl_text.txt").expect("the text");
    let mut engine = Engine::open(path).expect("SmolLM2");
    let tokens = engine.tokenizer().encode(&text, hadal::tokenizer::Special::Text).expect("ordinary text");
    let found = hadal::eval::perplexity(&mut engine, &tokens, 512, 8).expect("eight chunks");
    let expected = figure("| q4_1");
    println!("perplexity {} ± {}, reference {expected}", found.perplexity, found.standard_error);
    assert!((found.perplexity / expected - 1.0).abs() < 0.01, "{} against {expected}", found.perplexity);
}

//! Model graphs: tiny random models against reference logits, and the promise that every batching, thread count and
//! instruction set gives the same bits.

use hadal::backend::cpu::{Activations, Cpu};
use hadal::cache::{CacheType, KvCache};
use hadal::file::Weights;
use hadal::model::{self, Model, Outputs, Split};
use hadal::simd::Isa;

#[path = "support/golden.rs"]
mod golden;
#[path = "support/random.rs"]
mod random;

use golden::Golden;
use random::random_model;

/// A folder with `config.json` and `model.safetensors` made from a golden file: weights are the tensors whose names
/// do not begin with `_`.
fn folder_of(golden: &Golden) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("config.json"), golden.metadata("config")).expect("written");
    golden.write_weights(&folder.path().join("model.safetensors"));
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
            let found =
                model.forward(now, &mut cache, Outputs::All, Split::none(cpu)).expect("a forward pass");
            values.extend_from_slice(found.values());
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
    let ids: Vec<u32> = golden.ids("_ids");
    let split: usize = golden.metadata("split").parse().expect("a number");
    let cpu = Cpu::new(Some(2), None, Activations::Quantized).expect("threads");

    let full = logits(&*model, &ids, &[ids.len()], &cpu, CacheType::F32);
    let difference = max_difference(&full, &golden.get::<f32>("_logits_full").values);
    assert!(difference < 1e-4, "one piece: {difference}");
    let mut parts = vec![1; ids.len() - split + 1];
    parts[0] = split;
    let cached = logits(&*model, &ids, &parts, &cpu, CacheType::F32);
    let difference = max_difference(&cached, &golden.get::<f32>("_logits_cached").values);
    assert!(difference < 1e-4, "token by token: {difference}");
}

/// What a change to the tiny model's `config.json` must lead to: an error that says this, or the reference's logits.
const CHANGES: &[(&str, &str, Option<&str>)] = &[
    ("/rope_scaling/rope_type", "\"foo\"", Some("rope scaling type \"foo\" is not supported")),
    ("/rope_scaling/factor", "null", Some("llama.rope.scaling.factor is missing")),
    ("/rope_scaling/factor", "-1", Some("llama.rope.scaling.factor: -1 is not a positive number")),
    ("/hidden_act", "\"relu\"", Some("activation \"relu\" is not supported")),
    ("/hidden_act", "\"silu\"", None),
    ("/model_type", "\"mamba\"", Some("architecture \"mamba\" is not supported")),
    ("/num_attention_heads", "null", Some("llama.attention.head_count is missing")),
    (
        "/num_attention_heads",
        "3",
        Some("llama.attention.head_count_kv: 2 is no divisor of the 3 query heads"),
    ),
    ("/num_hidden_layers", "3", Some("tensor blk.2.attn_norm.weight is missing")),
    ("/num_hidden_layers", "100000", Some("llama.block_count: 100000 layers")),
    (
        "/intermediate_size",
        "64",
        Some("tensor blk.0.ffn_gate.weight: expected shape [64, 64], found [96, 64]"),
    ),
    ("/rms_norm_eps", "-1", Some("llama.attention.layer_norm_rms_epsilon")),
    ("/rope_theta", "0", Some("llama.rope.freq_base: 0 is not a positive number")),
    ("/tie_word_embeddings", "false", Some("tensor output.weight is missing")),
];

#[test]
fn a_config_that_this_graph_cannot_follow_is_refused() {
    let golden = Golden::open("mlx/model_llama3_tied.safetensors");
    let folder = folder_of(&golden);
    let cpu = Cpu::new(Some(1), None, Activations::Quantized).expect("threads");
    let ids = golden.ids("_ids");
    let mut wrong = Vec::new();
    for (at, value, expected) in CHANGES {
        let mut config: serde_json::Value = serde_json::from_str(&golden.metadata("config")).expect("JSON");
        let (parent, key) = at.rsplit_once('/').expect("a path");
        let parent = config.pointer_mut(parent).and_then(|parent| parent.as_object_mut()).expect("an object");
        parent.insert(key.into(), serde_json::from_str(value).expect("JSON"));
        std::fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
        let found = Weights::open(folder.path()).and_then(|weights| model::load(&weights));
        match (found, expected) {
            (Err(error), Some(expected)) if error.to_string().contains(expected) => {}
            (Ok(model), None) => {
                let found = logits(&*model, &ids, &[ids.len()], &cpu, CacheType::F32);
                assert!(max_difference(&found, &golden.get::<f32>("_logits_full").values) < 1e-4, "{at}");
            }
            (found, expected) => wrong.push(format!("{at} = {value}: {found:?} instead of {expected:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Old configs call the key `type`.
#[test]
fn rope_type_goes_by_both_of_its_names() {
    let golden = Golden::open("mlx/model_llama3_tied.safetensors");
    let folder = folder_of(&golden);
    let config = golden.metadata("config").replace("\"rope_type\"", "\"type\"");
    std::fs::write(folder.path().join("config.json"), config).expect("written");
    let model = model::load(&Weights::open(folder.path()).expect("a readable folder")).expect("a model");
    let cpu = Cpu::new(Some(1), None, Activations::Quantized).expect("threads");
    let ids = golden.ids("_ids");
    let found = logits(&*model, &ids, &[ids.len()], &cpu, CacheType::F32);
    assert!(max_difference(&found, &golden.get::<f32>("_logits_full").values) < 1e-4);
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// One-shot prefill, chunked prefill and token by token give the same bits at every prompt length from 1 to 600.
#[test]
fn every_prompt_length_and_chunking_gives_the_same_bits() {
    for (architecture, format) in [("llama", "q8_0"), ("gemma3", "q4_0"), ("qwen2", "f16")] {
        let model = random_model(architecture, format, 64);
        let tokens: Vec<u32> = (0..600u32).map(|i| i * i % 61).collect();
        let cpu = Cpu::new(Some(2), None, Activations::Quantized).expect("threads");
        let reference = logits(&*model, &tokens, &vec![1; tokens.len()], &cpu, CacheType::F16);
        let vocab = model.config().vocab;
        assert!(reference.iter().all(|value| value.is_finite()));
        for length in 1..=tokens.len() {
            let expected = &reference[(length - 1) * vocab..length * vocab];
            let mut cache = KvCache::new(&model.cache_shape(), CacheType::F16, 600).expect("memory");
            let one = model
                .forward(&tokens[..length], &mut cache, Outputs::Last, Split::none(&cpu))
                .expect("a pass");
            assert_eq!(bits(one.values()), bits(expected), "{architecture}, one piece of {length}");
        }
        for chunk in [2, 7, 32, 33, 64, 199, 512] {
            let parts = vec![chunk; tokens.len().div_ceil(chunk)];
            let found = logits(&*model, &tokens, &parts, &cpu, CacheType::F16);
            assert_eq!(bits(&found), bits(&reference), "{architecture}, chunks of {chunk}");
        }
    }
}

/// Every format that has an encoder, every instruction set of this machine, 1 to 4 threads, weights repacked or not give
/// the same bits.
#[test]
fn every_isa_and_thread_count_gives_the_same_bits() {
    let mut wrong = Vec::new();
    let usable = hadal::quant::FORMATS.iter().filter(|format| format.has_encoder() && format.dot.is_some());
    for format in usable {
        let model = random_model("qwen3", format.name, 256);
        let tokens: Vec<u32> = (0..40u32).map(|i| i * 7 % 61).collect();
        let run = |threads: usize, isa: Isa, repack: bool| {
            let cpu = Cpu::new(Some(threads), Some(isa), Activations::Quantized).expect("threads");
            let cpu = cpu.with_repack(repack);
            bits(&logits(&*model, &tokens, &[33, 1, 6], &cpu, CacheType::F16))
        };
        let reference = run(1, Isa::Scalar, false);
        for isa in Isa::available() {
            for threads in 1..=4 {
                for repack in [true, false] {
                    if run(threads, isa, repack) != reference {
                        wrong.push(format!("{} {isa:?} {threads} threads, repack: {repack}", format.name));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

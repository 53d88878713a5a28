//! Models on GPUs: the tokens of the CPU, every length of prompt, and what a token costs. Without an adapter they print a
//! line and pass, except in CI, which has a software device.
//!
//! A real GPU takes every length of prompt up to 600, and so does a software device if HADAL_EVERY_LENGTH is set. That takes
//! an hour; without, it takes the lengths around the sizes of tiles, batches and windows.
//!
//! Logits differ from the CPU's: inputs of K quants are rounded in groups of 32 instead of 256, sums are taken in another
//! order, and a rounding that falls the other way moves everything behind it. [`MOST_NMSE`] is twice what was seen.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::path::Path;

use hadal::backend::cpu::{Activations, Cpu};
use hadal::backend::gpu::{Counts, Device, Gpu, Reach, adapters, is_hardware};
use hadal::backend::{Backend, Hidden};
use hadal::cache::{CacheType, KvCache};
use hadal::engine;
use hadal::model::{Model, Outputs, Split};
use hadal::tokenizer::Special;
use hadal::{Engine, Options, Sampler, Sampling};

#[path = "support/real.rs"]
mod models;
#[path = "support/random.rs"]
mod random;

use models::{GEMMA, QWEN, SMOLLM2, real};

/// sum (gpu - cpu)² / sum cpu² of the logits of one token.
const MOST_NMSE: f64 = 2e-2;

fn has_adapter() -> bool {
    let found = !adapters().is_empty();
    if !found {
        assert!(std::env::var_os("HADAL_CI").is_none(), "CI has a software device");
        println!("skipped: no GPU adapter was found");
    }
    found
}

fn options(device: engine::Device) -> Options {
    Options { device, context: Some(640), ..Options::default() }
}

/// A model on the CPU and on the GPU.
fn both(path: &Path) -> [Engine; 2] {
    [engine::Device::Cpu, engine::Device::Gpu(None)]
        .map(|device| Engine::open_with(path, &options(device)).unwrap())
}

/// The Austen model on `device`.
fn austen(device: engine::Device) -> Engine {
    Engine::embedded(&Options { device, ..Options::default() }).unwrap()
}

/// Columns of the highest and the second highest logit.
fn two_best(logits: &[f32]) -> [usize; 2] {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    [order[0], order[1]]
}

/// The NMSE of a row of logits, which must be numbers, with the CPU's choice where that is clear.
fn compare(what: &str, found: &[f32], expected: &[f32]) -> f64 {
    assert!(found.iter().all(|logit| logit.is_finite()), "{what}: a logit is no number");
    let pairs = || found.iter().zip(expected).map(|(&a, &b)| (f64::from(a), f64::from(b)));
    let error: f64 = pairs().map(|(a, b)| (a - b) * (a - b)).sum();
    let nmse = error / pairs().map(|(_, b)| b * b).sum::<f64>();
    assert!(nmse <= MOST_NMSE, "{what}: NMSE {nmse:.1e}");
    let [best, second] = two_best(expected);
    if expected[best] - expected[second] > 1.0 {
        assert_eq!(two_best(found)[0], best, "{what}");
    }
    nmse
}

/// `steps` tokens that the CPU chooses, on both.
fn follow(what: &str, [cpu, gpu]: &mut [Engine; 2], prompt: &str, steps: usize) {
    let mut tokens = cpu.tokenizer().encode(prompt, Special::Text).unwrap();
    let mut worst = 0.0f64;
    for step in 0..steps {
        let expected = cpu.prefill(&tokens).unwrap().to_vec();
        let found = gpu.prefill(&tokens).unwrap();
        worst = worst.max(compare(&format!("{what}, step {step}"), found, &expected));
        tokens = vec![two_best(&expected)[0] as u32];
    }
    println!("{what}: {steps} tokens, NMSE up to {worst:.1e}");
}

/// Prompts of these lengths in one call each, against the rows that the CPU computed in one pass.
fn lengths(what: &str, [cpu, gpu]: &mut [Engine; 2], lengths: impl IntoIterator<Item = usize>, most: usize) {
    let mut random = fastrand::Rng::with_seed(7);
    let vocab = cpu.tokenizer().vocab_len() as u32;
    let tokens: Vec<u32> = (0..most).map(|_| random.u32(0..vocab)).collect();
    cpu.reset();
    let expected = cpu.score(&tokens).unwrap();
    let mut worst = 0.0f64;
    for length in lengths {
        gpu.reset();
        let found = gpu.prefill(&tokens[..length]).unwrap();
        worst = worst.max(compare(&format!("{what}, {length} tokens"), found, expected.row(length - 1)));
    }
    println!("{what}: lengths up to {most}, NMSE up to {worst:.1e}");
}

/// Lengths of prompts up to `most`.
fn lengths_up_to(most: usize) -> impl Iterator<Item = usize> {
    let all = adapters().iter().all(is_hardware) || std::env::var_os("HADAL_EVERY_LENGTH").is_some();
    let some = [1, 2, 3, 7, 8, 9, 23, 24, 25, 31, 32, 33, 63, 64, 65, 129, 257];
    (1..=600).filter(move |length| all || some.contains(length)).filter(move |&length| length <= most)
}

/// Logits (rows × vocabulary) of a prompt.
fn logits(model: &dyn Model, tokens: &[u32], outputs: Outputs, ops: &dyn Backend) -> Hidden {
    let mut cache = KvCache::new(&model.cache_shape(), CacheType::F16, tokens.len()).unwrap();
    ops.fetch(model.forward(tokens, &mut cache, outputs, Split::none(ops)).unwrap()).unwrap()
}

/// Small random models: head norms, post-norms, biases, windows of 24 tokens.
#[test]
fn every_architecture_on_every_length_of_prompt() {
    let cpu = Cpu::new(Some(2), None, Activations::Quantized).unwrap();
    let tokens: Vec<u32> = (0..600u32).map(|i| i * i % 61).collect();
    for adapter in if has_adapter() { adapters() } else { vec![] } {
        let gpu = Gpu::new(Device::open(&adapter, Reach::Floor).unwrap().into(), Activations::Quantized);
        for (architecture, format, hidden) in
            [("gemma3", "q4_0", 64), ("qwen2", "f16", 64), ("qwen3", "q8_0", 64)]
        {
            let model = random::random_model(architecture, format, hidden);
            let expected = logits(&*model, &tokens, Outputs::All, &cpu);
            for length in lengths_up_to(tokens.len()) {
                let what = format!("{architecture} {format}, {length} tokens on {}", gpu.name());
                let found = logits(&*model, &tokens[..length], Outputs::Last, &gpu);
                compare(&what, found.values(), expected.row(length - 1));
            }
        }
    }
}

#[test]
fn the_austen_model_on_every_length_of_prompt() {
    if has_adapter() {
        let mut both = [austen(engine::Device::Cpu), austen(engine::Device::Gpu(None))];
        follow("Austen", &mut both, "It was a dark night", 24);
        lengths("Austen", &mut both, lengths_up_to(512), 512);
    }
}

/// The CPU multiplies queries rounded to 8 bits, the GPU as they are.
#[test]
fn packed_caches_give_the_tokens_of_the_cpu() {
    for kind in ["turbo", "turbo:k4v4", "q8_0", "q4_0:rot", "affine8/turbo5", "bf16"] {
        let kv: CacheType = kind.parse().unwrap();
        let open = |device| Engine::embedded(&Options { device, cache: kv, ..Options::default() }).unwrap();
        if has_adapter() {
            let mut both = [open(engine::Device::Cpu), open(engine::Device::Gpu(None))];
            follow(&format!("Austen, {kind}"), &mut both, "It was a dark night", 24);
            lengths(&format!("Austen, {kind}"), &mut both, [2, 40, 140], 140);
        }
    }
}

/// What the device holds comes back from a file and from a snapshot, to it and to the CPU, and nothing else does.
#[test]
fn sessions_of_a_device_go_on() {
    if !has_adapter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    for kind in ["f16", "turbo", "q8_0/q4_0:rot"] {
        let kv: CacheType = kind.parse().unwrap();
        let open = |device| Engine::embedded(&Options { device, cache: kv, ..Options::default() }).unwrap();
        let [mut cpu, mut gpu] = [open(engine::Device::Cpu), open(engine::Device::Gpu(None))];
        let tokens: Vec<u32> = (0..70).map(|i| 3 + i * 7 % 500).collect();
        gpu.prefill(&tokens).unwrap();
        gpu.truncate(61);
        gpu.save_session(&first, "a note").unwrap();
        let snapshot = gpu.snapshot().unwrap();
        let expected = gpu.step(9).unwrap().to_vec();
        gpu.reset();
        gpu.prefill(&[1, 2, 3]).unwrap();
        assert_eq!(gpu.load_session(&first).unwrap(), "a note");
        assert_eq!(gpu.tokens(), &tokens[..61]);
        assert_eq!(gpu.step(9).unwrap(), expected, "{kind}");
        gpu.restore(&snapshot).unwrap();
        assert_eq!(gpu.step(9).unwrap(), expected, "{kind}");
        // From the device to the CPU and back: the same file.
        cpu.load_session(&first).unwrap();
        cpu.save_session(&second, "a note").unwrap();
        assert!(std::fs::read(&first).unwrap() == std::fs::read(&second).unwrap(), "{kind}");
        compare(kind, &expected, cpu.step(9).unwrap());
    }
}

/// Behind a prompt, where the device holds it: as the CPU's is, and what follows is close to what a cache gives that was of
/// that kind from the beginning.
#[test]
fn caches_of_a_device_are_converted() {
    if !has_adapter() {
        return;
    }
    let open = |device, kv| Engine::embedded(&Options { device, cache: kv, ..Options::default() }).unwrap();
    let gpu = || engine::Device::Gpu(None);
    let tokens: Vec<u32> = (0..70).map(|i| 3 + i * 7 % 500).collect();
    // Each opens the device twice, which takes seconds on a software device; `converted_rows` has the other kinds.
    for (from, kind) in [("f16", "turbo"), ("f32", "q8_0/q4_0:rot")] {
        let [from, kind]: [CacheType; 2] = [from, kind].map(|kind| kind.parse().unwrap());
        let mut engines = [open(engine::Device::Cpu, from), open(gpu(), from), open(gpu(), kind)];
        for engine in &mut engines {
            engine.prefill(&tokens).unwrap();
            engine.convert_cache(kind).unwrap();
            assert_eq!((engine.info().cache, engine.position()), (kind, 70));
        }
        for token in [9, 200, 31] {
            let [expected, found, others] =
                engines.each_mut().map(|engine| engine.step(token).unwrap().to_vec());
            compare(&format!("{from} to {kind}"), &found, &expected);
            compare(&format!("{from} to {kind} from the beginning"), &found, &others);
        }
    }
}

#[test]
fn real_models_give_the_tokens_of_the_cpu() {
    let cases: [(&str, usize, &[usize]); 3] =
        [(SMOLLM2, 12, &[2, 9, 33]), (GEMMA, 8, &[3, 34]), (QWEN, 8, &[5])];
    for (file, steps, some) in cases {
        let Some(path) = real(file).filter(|_| has_adapter()) else { continue };
        let mut both = both(&path);
        follow(file, &mut both, "The capital of France is", steps);
        lengths(file, &mut both, some.iter().copied(), *some.last().unwrap());
    }
}

#[test]
fn the_best_of_a_row() {
    let reference = |row: &[f32], count: usize| {
        let worth = |value: f32| if value.is_nan() { f32::INFINITY } else { value + 0.0 };
        let mut pairs: Vec<(u32, f32)> = (0..).zip(row.iter().copied()).collect();
        pairs.sort_by(|a, b| worth(b.1).total_cmp(&worth(a.1)).then(a.0.cmp(&b.0)));
        pairs.truncate(count);
        pairs.into_iter().map(|(column, value)| (column, value.to_bits())).collect::<Vec<_>>()
    };
    let mut random = fastrand::Rng::with_seed(3);
    for adapter in if has_adapter() { adapters() } else { vec![] } {
        let gpu = Gpu::new(Device::open(&adapter, Reach::Floor).unwrap().into(), Activations::Quantized);
        for (columns, counts) in [
            (1, vec![1]),
            (37, vec![40]),
            (3073, vec![1, 40]),
            (49152, vec![40]),
            (262_144, vec![1, 40, 256]),
        ] {
            // Few different values: many are equal.
            let mut row: Vec<f32> = (0..columns).map(|_| random.i32(-300..300) as f32 / 16.0).collect();
            if columns > 100 {
                row[7..12].copy_from_slice(&[f32::NAN, f32::INFINITY, -0.0, f32::NEG_INFINITY, -f32::NAN]);
            }
            let held = gpu.hold(Hidden::new(row.clone(), columns)).unwrap();
            for count in counts {
                let found = gpu.best(&held, count).unwrap().unwrap();
                let found: Vec<_> =
                    found.into_iter().map(|(column, value)| (column, value.to_bits())).collect();
                assert_eq!(found, reference(&row, count), "{count} of {columns} on {}", gpu.name());
            }
            assert!(gpu.best(&held, 257).unwrap().is_none() || columns < 257);
        }
    }
}

#[test]
fn sampling_on_the_device_gives_the_same_tokens() {
    if !has_adapter() {
        return;
    }
    let base = Sampling { seed: Some(11), max_tokens: Some(12), ..Sampling::default() };
    let cases = [
        Sampling { max_tokens: Some(12), ..Sampling::greedy() },
        base.clone(),
        Sampling { top_k: 5, temperature: 1.5, min_p: 0.0, top_p: 1.0, ..base.clone() },
        Sampling { repeat_penalty: 1.3, presence_penalty: 0.2, frequency_penalty: 0.1, ..base.clone() },
        Sampling { logit_bias: vec![(260, f32::NEG_INFINITY), (300, -2.0)], typical_p: 0.9, ..base.clone() },
        Sampling { dry_multiplier: 2.0, dry_allowed_length: 1, xtc_probability: 0.5, ..base.clone() },
        Sampling { top_k: 0, ..base },
    ];
    let mut engine = austen(engine::Device::Gpu(None));
    let prompt =
        engine.tokenizer().encode("She was not a woman of many words; for, she", Special::Text).unwrap();
    for settings in cases {
        engine.reset();
        let vocab = engine.info().vocab;
        let mut sampler = Sampler::new(&settings, vocab, |id| engine.tokenizer().piece(id, true)).unwrap();
        prompt.iter().for_each(|&token| sampler.accept(token));
        let mut logits = engine.prefill(&prompt).unwrap().to_vec();
        let mut expected = Vec::new();
        for _ in 0..12 {
            let token = sampler.sample(&mut logits).unwrap();
            sampler.accept(token);
            expected.push(token);
            logits = engine.step(token).unwrap().to_vec();
        }
        engine.reset();
        let mut generation = engine.generate_tokens(&prompt, &settings).unwrap();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        drop(generation);
        // The last token is not computed.
        assert_eq!(engine.tokens()[prompt.len()..], expected[..11], "{settings:?}");
    }
}

#[test]
fn a_token_is_one_submission_and_a_few_bytes() {
    if !has_adapter() {
        return;
    }
    let mut engine = austen(engine::Device::Gpu(None));
    let layers = engine.info().layers as u64;
    let mut after = |tokens: &[u32]| -> Counts {
        let before = engine.gpu().unwrap().counts();
        engine.append(tokens).unwrap();
        let after = engine.gpu().unwrap().counts();
        Counts {
            dispatches: after.dispatches - before.dispatches,
            submissions: after.submissions - before.submissions,
            fetched: after.fetched - before.fetched,
            ..Counts::default()
        }
    };
    after(&[5]);
    // Early and late: attention over many keys is split.
    for filled in [1, 500] {
        after(&vec![7; filled]);
        let counts = after(&[9]);
        // Beside the layers: the embedding, the head, and its best in two steps at most.
        assert!(counts.dispatches <= 7 * layers + 4, "{counts:?}");
        assert_eq!((counts.submissions, counts.fetched), (1, 8), "{counts:?}");
    }
}

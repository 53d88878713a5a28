//! Models on a GPU, or on a GPU and the CPU together: the same answers wherever the layers are, limits that are planned,
//! and memory that is given back.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::sync::Arc;

use hadal::backend::Backend;
use hadal::backend::cpu::{Activations, Cpu};
use hadal::backend::gpu::{Device, Gpu, Reach};
use hadal::cache::{CacheType, KvCache};
use hadal::engine::{Engine, GpuLayers, Options};
use hadal::file::Weights;
use hadal::model::{self, Model, Outputs, Split};
use hadal::tensor::Bytes;
use hadal::{Error, Result};

#[path = "support/gpu.rs"]
mod gpu;
#[path = "support/random.rs"]
mod random;

use gpu::{devices, found};

static AUSTEN: &[u8] = include_bytes!("../models/austen/austen-q8_0.gguf");

fn austen(device: &Arc<Device>, layers: GpuLayers) -> Result<Engine> {
    let options = Options { gpu_layers: layers, context: Some(128), batch: 16, ..Options::default() };
    Engine::on_device(&Weights::from_static("austen", AUSTEN).unwrap(), &options, device)
}

fn best(logits: &[f32]) -> usize {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap()
}

/// A prompt and what the CPU says after it, token by token; with the logits before each.
fn story() -> (Vec<u32>, Vec<(Vec<f32>, u32)>) {
    let options = Options { context: Some(128), ..Options::default() };
    let mut cpu = Engine::embedded(&options).unwrap();
    let prompt = cpu.tokenizer().encode("It was a dark night", hadal::tokenizer::Special::Text).unwrap();
    let mut logits = cpu.prefill(&prompt).unwrap().to_vec();
    let mut steps = Vec::new();
    for _ in 0..10 {
        let token = best(&logits) as u32;
        steps.push((logits, token));
        logits = cpu.step(token).unwrap().to_vec();
    }
    (prompt, steps)
}

/// `engine` tells the same story: its best token is the CPU's wherever that one is sure, and its logits are near.
fn compare(engine: &mut Engine, (prompt, steps): &(Vec<u32>, Vec<(Vec<f32>, u32)>)) {
    let layers = engine.gpu_layers();
    let mut next: &[u32] = prompt;
    for (expected, token) in steps {
        let found = engine.prefill(next).unwrap();
        let square = |values: &mut dyn Iterator<Item = f32>| {
            values.map(|value| f64::from(value) * f64::from(value)).sum::<f64>()
        };
        let error = square(&mut found.iter().zip(expected).map(|(a, b)| a - b));
        let nmse = error / square(&mut expected.iter().copied());
        assert!(nmse < NMSE, "{layers} layers: {nmse:e}");
        let mut sorted = expected.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        if sorted[0] - sorted[1] > 1.0 {
            assert_eq!(best(found) as u32, *token, "{layers} layers");
        }
        next = std::slice::from_ref(token);
    }
}

/// After five layers of products with inputs rounded to bytes.
const NMSE: f64 = 1e-3;

#[test]
fn every_number_of_layers_gives_the_same_tokens() {
    let story = story();
    for device in devices() {
        for count in 0..=6 {
            let mut engine = austen(device, GpuLayers::Last(count)).unwrap();
            assert_eq!(engine.gpu_layers(), count.min(5));
            assert_eq!(engine.device() == "cpu", count == 0);
            compare(&mut engine, &story);
            // The same again after a step back, and for all tokens at once.
            engine.truncate(2);
            engine.prefill(&story.0[2..]).unwrap();
            engine.reset();
            assert_eq!(engine.score(&story.0).unwrap().rows(), story.0.len());
        }
    }
    assert_eq!(gpu::complaints(), [""; 0]);
}

#[test]
fn a_budget_is_kept() {
    let story = story();
    for adapter in found() {
        // A device that no other test uses at the same time.
        let device = Arc::new(Device::open(adapter, Reach::Floor).unwrap());
        let all = austen(&device, GpuLayers::All).unwrap();
        // Too little for all of it.
        let budget = device.memory_used() / 4 * 3;
        drop(all);
        let limited = |bytes| Arc::new(Device::open(adapter, Reach::Floor).unwrap().with_memory(bytes));
        let device = limited(budget);
        let mut engine = austen(&device, GpuLayers::Auto).unwrap();
        assert!((1..5).contains(&engine.gpu_layers()), "{} layers", engine.gpu_layers());
        compare(&mut engine, &story);
        assert!(device.memory_used() <= budget);
        drop(engine);
        for layers in [GpuLayers::All, GpuLayers::Last(5)] {
            let refusal = austen(&device, layers).unwrap_err();
            assert!(
                matches!(refusal, Error::GpuMemory { available, .. } if available == budget),
                "{refusal}"
            );
        }
        assert!(matches!(austen(&limited(1 << 16), GpuLayers::Auto), Err(Error::GpuMemory { .. })));
    }
}

#[test]
fn memory_does_not_grow() {
    for adapter in found() {
        let device = &Arc::new(Device::open(adapter, Reach::Floor).unwrap());
        let mut engine = austen(device, GpuLayers::All).unwrap();
        let mut after = Vec::new();
        for index in 0..1000 {
            if engine.position() == 128 {
                engine.reset();
            }
            engine.step(index * 7 % 2048).unwrap();
            if index % 300 == 299 {
                after.push((device.memory_used(), device.allocated()));
            }
        }
        assert_eq!(after[0], after[2], "{after:?}");
        drop(engine);
        device.release().unwrap();
        let mut after = Vec::new();
        for _ in 0..50 {
            drop(austen(device, GpuLayers::All).unwrap());
            device.release().unwrap();
            after.push((device.memory_used(), device.allocated()));
        }
        assert_eq!(after[1], after[49], "{after:?}");
        assert_eq!(after[49].0, 0);
    }
    assert_eq!(gpu::complaints(), [""; 0]);
}

/// Rows of the vocabulary that are not zero: in each of the buffers that it takes.
const FILLED: &[usize] = &[0, 5, 70_000, 131_072, 200_000, 262_143];

/// A tied table of 262,144 × 2048 in Q8_0, of zeros but for a few rows.
fn large_vocabulary() -> Arc<dyn Model> {
    let mut weights = random::random_weights("llama", "q8_0", 2048);
    let table = weights.tensors.get_mut("token_embd.weight").unwrap();
    let row = table.data.len() / 64;
    let mut bytes = vec![0; 262_144 * row];
    for (index, &at) in FILLED.iter().enumerate() {
        bytes[at * row..][..row].copy_from_slice(&table.data[index * row..][..row]);
    }
    let all = 0..bytes.len();
    table.data = Bytes::Shared(Arc::new(bytes), all);
    table.shape = vec![262_144, 2048];
    model::load(&weights).unwrap()
}

#[test]
fn a_vocabulary_of_570_mb_runs_at_the_floor() {
    let prompt = [5, 262_143, 131_072];
    let run = |model: &dyn Model, ops: &dyn Backend, outputs| {
        let mut cache = KvCache::new(&model.cache_shape(), CacheType::F16, 16).unwrap();
        let logits = model.forward(&prompt, &mut cache, outputs, Split::none(ops)).unwrap();
        ops.fetch(logits).unwrap()
    };
    let cpu = Cpu::new(Some(2), None, Activations::default()).unwrap();
    for device in devices() {
        let model = large_vocabulary();
        let gpu = Gpu::new(Arc::clone(device), Activations::default());
        for outputs in [Outputs::Last, Outputs::All] {
            let (found, expected) = (run(&*model, &gpu, outputs), run(&*model, &cpu, outputs));
            let size: f32 = expected.values().iter().map(|value| value * value).sum();
            let error: f32 =
                found.values().iter().zip(expected.values()).map(|(a, b)| (a - b) * (a - b)).sum();
            assert!(size > 0.1 && error / size < 1e-3, "{error} of {size}");
            assert!(expected.values().iter().filter(|&&value| value != 0.0).count() >= FILLED.len());
        }
        device.check().unwrap();
    }
    assert_eq!(gpu::complaints(), [""; 0]);
}

//! What a model asks of a GPU, and a model on it. Without an adapter the tests print a line and pass, except in CI, which
//! has a software device.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::sync::Arc;

use hadal::backend::cpu::Activations;
use hadal::backend::gpu::Gpu;
use hadal::backend::{AttentionShape, Backend, Gate, Heads, Hidden, Linear, RmsNorm, Rotation, Source, Span};
use hadal::cache::{CacheType, KvCache, LayerShape};
use hadal::engine::{self, Engine, Options};
use hadal::quant::Format;
use hadal::tensor::{Bytes, Tensor};

#[path = "support/gpu.rs"]
mod gpu;

use gpu::devices;

const COLUMNS: usize = 512;

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.f32() * 2.0 - 1.0).collect()
}

fn hidden(seed: u64, rows: usize, columns: usize) -> Hidden {
    Hidden::new(noise(seed, rows * columns), columns)
}

fn layer(format: &'static Format, rows: usize) -> Linear {
    let values = noise(rows as u64, rows * COLUMNS);
    let mut bytes = vec![0; format.bytes_for(values.len()).unwrap()];
    format.encode(&values, &mut bytes).unwrap();
    let weight = Tensor::new("w", vec![rows, COLUMNS], format, Bytes::Owned(bytes.into())).unwrap();
    Linear { weight, bias: None }
}

/// The kernels of a decoder layer for one row behind `context` others.
fn recorded(gpu: &Gpu, context: usize) -> Vec<&'static str> {
    let q8_0 = Format::by_name("q8_0").unwrap();
    let layers: Vec<Linear> =
        [COLUMNS, 128, 128, COLUMNS, COLUMNS, COLUMNS, COLUMNS].map(|rows| layer(q8_0, rows)).into();
    let shape = LayerShape { heads: 2, dim: 64, window: None };
    let mut cache = KvCache::new(&[shape], CacheType::F16, context + 1).unwrap();
    let turns = gpu.hold(hidden(4, 1, 64)).unwrap();
    let mut x = gpu.hold(hidden(5, 1, COLUMNS)).unwrap();
    assert!(gpu.take_commands().is_empty());
    let norm = RmsNorm { weight: noise(9, COLUMNS).into(), eps: 1e-5 };
    let mut out = [Hidden::empty(), Hidden::empty(), Hidden::empty()];
    let qkv: Vec<&Linear> = layers[..3].iter().collect();
    gpu.linear(Source::Normed(&x, &norm), &qkv, &mut out).unwrap();
    let [query, key, value] = out;
    let mut heads = Heads { query, key, value };
    let rotation = Rotation { turns, interleaved: false };
    gpu.append(cache.layer(0), &mut heads, [None, None], &rotation).unwrap();
    let shape = AttentionShape { heads: 8, scale: 0.125, softcap: None, sinks: None };
    let span = Span { start: context, len: 1 };
    let attended = gpu.attention(&heads.query, cache.layer(0), span, shape).unwrap();
    gpu.add_linear(&mut x, Source::Plain(&attended), &layers[3], None).unwrap();
    let mut out = [Hidden::empty(), Hidden::empty()];
    gpu.linear(Source::Normed(&x, &norm), &[&layers[4], &layers[5]], &mut out).unwrap();
    gpu.add_linear(&mut x, Source::Gated(Gate::Silu, &out[0], &out[1]), &layers[6], None).unwrap();
    gpu.take_commands().iter().map(|command| command.kernel.name).collect()
}

#[test]
fn a_decoder_layer_takes_at_most_seven_dispatches() {
    for device in devices() {
        let gpu = Gpu::new(Arc::clone(device), Activations::Quantized);
        let short = ["matvec", "append", "attention", "matvec", "matvec", "matvec"];
        assert_eq!(recorded(&gpu, 0), short);
        let long = ["matvec", "append", "attention", "combine", "matvec", "matvec", "matvec"];
        assert_eq!(recorded(&gpu, 4000), long);
    }
}

#[test]
fn the_austen_model_gives_the_tokens_of_the_cpu() {
    if devices().is_empty() {
        return;
    }
    let prompt: Vec<u32> = {
        let engine = Engine::embedded(&Options::default()).unwrap();
        engine.tokenizer().encode("It was a dark night", hadal::tokenizer::Special::Text).unwrap()
    };
    let mut cpu = Engine::embedded(&Options::default()).unwrap();
    let options = Options { device: engine::Device::Gpu(None), ..Options::default() };
    let mut gpu = Engine::embedded(&options).unwrap();
    let mut tokens = prompt;
    for _ in 0..12 {
        let expected = cpu.prefill(&tokens).unwrap().to_vec();
        let found = gpu.prefill(&tokens).unwrap();
        assert!(found.iter().all(|value| value.is_finite()));
        let mut order: Vec<usize> = (0..expected.len()).collect();
        order.sort_by(|&a, &b| expected[b].total_cmp(&expected[a]));
        let best = (0..found.len()).max_by(|&a, &b| found[a].total_cmp(&found[b])).unwrap();
        if expected[order[0]] - expected[order[1]] > 1.0 {
            assert_eq!(best, order[0]);
        }
        tokens = vec![order[0] as u32];
    }
}

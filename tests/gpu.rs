//! The GPU's operations against the CPU's, on every adapter found, with no more than WebGPU's floor allows. Without an
//! adapter they print a line and pass, except in CI, which has a software device.
//!
//! Tolerances are normalized mean square errors, sum (a - b)² / sum b². Float paths differ in the order of sums: 1e-10
//! leaves a hundredfold. Integer paths round inputs to 127 steps of each group's largest magnitude: some 1e-5 for
//! uniform noise; 1e-4. Half caches round like the CPU's: as float paths.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::sync::Arc;

use hadal::backend::cpu::{Activations, Cpu};
use hadal::backend::gpu::Gpu;
use hadal::backend::{AttentionShape, Backend, Gate, Heads, Hidden, Linear, RmsNorm, Rotation, Source, Span};
use hadal::cache::{CacheType, KvCache, LayerShape};
use hadal::engine::{self, Engine, Options};
use hadal::quant::{FORMATS, Format};
use hadal::tensor::{Bytes, Tensor};

#[path = "support/gpu.rs"]
mod gpu;

use gpu::devices;

const FLOAT: f64 = 1e-10;
const INTEGER: f64 = 1e-4;
/// Two products, one after the other.
const TWICE: f64 = 4e-4;
const COLUMNS: usize = 512;

fn each_device(activations: Activations, test: impl Fn(&Gpu)) {
    for device in devices() {
        test(&Gpu::new(Arc::clone(device), activations));
        device.check().unwrap();
    }
    assert_eq!(gpu::complaints(), [""; 0]);
}

fn cpu() -> Cpu {
    Cpu::new(Some(2), None, Activations::Float).unwrap()
}

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.f32() * 2.0 - 1.0).collect()
}

fn hidden(seed: u64, rows: usize, columns: usize) -> Hidden {
    Hidden::new(noise(seed, rows * columns), columns)
}

/// `rows` × [`COLUMNS`] weights: random bytes, of which scales are made small numbers.
fn weights(format: &'static Format, rows: usize) -> Tensor {
    let columns = COLUMNS;
    let mut random = fastrand::Rng::with_seed(rows as u64);
    let len = format.bytes_for(rows * columns).unwrap();
    let mut bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
    match format.encode(&noise(3, rows * columns), &mut vec![0; len]) {
        Ok(()) => format.encode(&noise(3, rows * columns), &mut bytes).unwrap(),
        Err(_) => {
            for block in bytes.chunks_exact_mut(format.block_bytes) {
                // IQ1_M's scale is spread over the top nibbles of its last four words; all others begin with theirs.
                if format.name == "iq1_m" {
                    for (word, nibble) in [(48, 0), (50, 0), (52, 8), (54, 2)] {
                        block[word + 1] = block[word + 1] & 15 | nibble << 4;
                    }
                } else {
                    block[..2].copy_from_slice(&[0x66, 0x2a]);
                }
            }
        }
    }
    Tensor::new("w", vec![rows, columns], format, Bytes::Owned(bytes.into())).unwrap()
}

fn layer(format: &'static Format, rows: usize, biased: bool) -> Linear {
    Linear { weight: weights(format, rows), bias: biased.then(|| noise(7, rows).into()) }
}

fn norm(columns: usize) -> RmsNorm {
    RmsNorm { weight: noise(9, columns).into(), eps: 1e-5 }
}

#[track_caller]
fn close(what: &str, found: &Hidden, expected: &Hidden, tolerance: f64) {
    assert_eq!((found.rows(), found.columns()), (expected.rows(), expected.columns()), "{what}");
    let pairs = || found.values().iter().zip(expected.values()).map(|(&a, &b)| (f64::from(a), f64::from(b)));
    let error: f64 = pairs().map(|(a, b)| (a - b) * (a - b)).sum();
    let size: f64 = pairs().map(|(_, b)| b * b).sum();
    assert!(error <= tolerance * size, "{what}: NMSE {:e}, allowed {tolerance:e}", error / size);
}

/// The same operations on both.
fn linear(ops: &dyn Backend, layers: &[&Linear], rows: usize) -> Vec<Hidden> {
    let x = ops.hold(hidden(1, rows, COLUMNS)).unwrap();
    let mut out: Vec<Hidden> = layers.iter().map(|_| Hidden::empty()).collect();
    ops.linear(Source::Plain(&x), layers, &mut out).unwrap();
    out.into_iter().map(|out| ops.fetch(out).unwrap()).collect()
}

fn formats() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().copied().filter(|format| format.dot.is_some())
}

#[test]
fn products_with_every_format() {
    let cpu = cpu();
    // Software devices take seconds to compile a kernel: what does not depend on the format is tested with a few.
    let few = ["f16", "q4_k", "iq2_xs"];
    for format in formats() {
        let float = ["f32", "f16", "bf16"].contains(&format.name);
        // A decode step, a small batch, and more than a tile; rows that fill no workgroup.
        for (rows, outputs) in [(1, 37), (3, 33), (35, 65)] {
            if rows == 35 && !few.contains(&format.name) {
                continue;
            }
            let expected = linear(&cpu, &[&layer(format, outputs, true)], rows);
            let mut activations = vec![(Activations::Quantized, if float { FLOAT } else { INTEGER })];
            if few.contains(&format.name) {
                activations.push((Activations::Float, FLOAT));
            }
            for (activations, tolerance) in activations {
                each_device(activations, |gpu| {
                    let what = format!("{} x {rows} on {} {activations:?}", format.name, gpu.name());
                    let found = linear(gpu, &[&layer(format, outputs, true)], rows);
                    close(&what, &found[0], &expected[0], tolerance);
                });
            }
        }
    }
}

#[test]
fn embeddings_of_every_format() {
    let tokens = [0, 36, 5, 5];
    for format in formats() {
        let expected = cpu().embed(&weights(format, 37), &tokens, 1.5).unwrap();
        each_device(Activations::default(), |gpu| {
            let found = gpu.fetch(gpu.embed(&weights(format, 37), &tokens, 1.5).unwrap()).unwrap();
            close(&format!("{} on {}", format.name, gpu.name()), &found, &expected, 1e-14);
        });
    }
}

/// A decoder layer's operations, each with what it fuses.
fn fused(ops: &dyn Backend, rows: usize) -> Vec<Hidden> {
    let format = |name| Format::by_name(name).unwrap();
    let (a, b) = (layer(format("q8_0"), COLUMNS, true), layer(format("q4_k"), COLUMNS, false));
    let down = layer(format("q8_0"), COLUMNS, false);
    let mut fetched = Vec::new();
    for (post, gate) in [(None, Gate::Silu), (Some(norm(COLUMNS)), Gate::Gelu)] {
        let mut x = ops.hold(hidden(2, rows, COLUMNS)).unwrap();
        let norm = norm(COLUMNS);
        let mut out = [Hidden::empty(), Hidden::empty(), Hidden::empty()];
        ops.linear(Source::Normed(&x, &norm), &[&a, &a, &b], &mut out).unwrap();
        ops.add_linear(&mut x, Source::Gated(gate, &out[0], &out[2]), &down, post.as_ref()).unwrap();
        let mut capped = Hidden::empty();
        ops.linear(Source::Plain(&x), &[&a], std::slice::from_mut(&mut capped)).unwrap();
        // Bends most values and caps few: where a cap cuts, a rounding error is the distance of the caps.
        ops.softcap(&mut capped, 50_000.0).unwrap();
        ops.keep_last_row(&mut x).unwrap();
        fetched.extend(out.into_iter().chain([capped, x]).map(|out| ops.fetch(out).unwrap()));
    }
    fetched
}

#[test]
fn fused_operations() {
    for rows in [1, 5] {
        let expected = fused(&cpu(), rows);
        each_device(Activations::Quantized, |gpu| {
            for (i, (found, expected)) in fused(gpu, rows).iter().zip(&expected).enumerate() {
                close(&format!("output {i} of {rows} rows on {}", gpu.name()), found, expected, TWICE);
            }
        });
    }
}

struct Case {
    kv: CacheType,
    window: Option<usize>,
    softcap: Option<f32>,
    sinks: bool,
    normed: bool,
    interleaved: bool,
}

/// Rows appended in pieces to one cache; what the queries of each piece see.
fn attention(ops: &dyn Backend, case: &Case) -> Vec<Hidden> {
    let (heads, dim) = (6, 64);
    let shape = LayerShape { heads: 2, dim, window: case.window };
    let mut cache = KvCache::new(&[shape], case.kv, 512).unwrap();
    let identity = |rows, seed| {
        (hidden(seed, rows, heads * dim), hidden(seed + 1, rows, 2 * dim), hidden(seed + 2, rows, 2 * dim))
    };
    let sinks = noise(77, heads);
    let norms = [norm(dim), norm(dim)];
    let mut at = 0;
    let mut fetched = Vec::new();
    for (piece, rows) in [70, 1, 3, 130, 1].into_iter().enumerate() {
        let (query, key, value) = identity(rows, 10 * piece as u64);
        // Side by side, as a linear operation leaves them.
        let joined: Vec<f32> =
            (0..rows).flat_map(|row| [query.row(row), key.row(row), value.row(row)].concat()).collect();
        let mut out = [Hidden::empty(), Hidden::empty(), Hidden::empty()];
        let joined = ops.hold(Hidden::new(joined, (heads + 4) * dim)).unwrap();
        let parts: Vec<Linear> = [(0, heads), (heads, 2), (heads + 2, 2)]
            .map(|(first, count)| selection(first * dim, count * dim, (heads + 4) * dim))
            .into();
        ops.linear(Source::Plain(&joined), &parts.iter().collect::<Vec<_>>(), &mut out).unwrap();
        let [query, key, value] = out;
        let mut rows_of_heads = Heads { query, key, value };
        let turns: Vec<f32> = (at..at + rows)
            .flat_map(|position| {
                let angle = move |pair: usize| position as f32 * 0.7f32.powi(pair as i32);
                let cosines = (0..16).map(move |pair| angle(pair).cos());
                cosines.chain((0..16).map(move |pair| angle(pair).sin()))
            })
            .collect();
        let turns = ops.hold(Hidden::new(turns, 32)).unwrap();
        let rotation = Rotation { turns, interleaved: case.interleaved };
        let norms = norms.each_ref().map(|norm| case.normed.then_some(norm));
        ops.append(cache.layer(0), &mut rows_of_heads, norms, &rotation).unwrap();
        let shape = AttentionShape {
            heads,
            scale: 0.125,
            softcap: case.softcap,
            sinks: case.sinks.then_some(&sinks),
        };
        let span = Span { start: at, len: rows };
        let attended = ops.attention(&rows_of_heads.query, cache.layer(0), span, shape).unwrap();
        fetched.push(ops.fetch(attended).unwrap());
        at += rows;
    }
    fetched
}

/// The layer that picks columns `first..first + count` of `columns`.
fn selection(first: usize, count: usize, columns: usize) -> Linear {
    let mut values = vec![0.0; count * columns];
    for i in 0..count {
        values[i * columns + first + i] = 1.0;
    }
    Linear { weight: Tensor::from_f32("select", vec![count, columns], &values).unwrap(), bias: None }
}

#[test]
fn attention_over_the_cache() {
    let plain = Case {
        kv: CacheType::F16,
        window: None,
        softcap: None,
        sinks: false,
        normed: false,
        interleaved: false,
    };
    let cases = [
        Case { ..plain },
        Case { kv: CacheType::F32, normed: true, interleaved: true, softcap: Some(2.0), ..plain },
        Case { window: Some(50), sinks: true, normed: true, ..plain },
    ];
    for (number, case) in cases.iter().enumerate() {
        let expected = attention(&cpu(), case);
        each_device(Activations::Float, |gpu| {
            for (piece, (found, expected)) in attention(gpu, case).iter().zip(&expected).enumerate() {
                let what = format!("case {number}, piece {piece} on {}", gpu.name());
                // A value between two halves may round the other way after sums in another order.
                close(&what, found, expected, if case.kv == CacheType::F32 { FLOAT } else { 1e-7 });
            }
        });
    }
}

#[test]
fn large_values_survive() {
    // 256 * 32 * 16 is more than a half can hold.
    let weight = Tensor::from_f32("w", vec![8, COLUMNS], &vec![16.0; 8 * COLUMNS]).unwrap();
    let mut bytes = vec![0; Format::by_name("q8_0").unwrap().bytes_for(8 * COLUMNS).unwrap()];
    let format = Format::by_name("q8_0").unwrap();
    format.encode(&weight.to_f32().unwrap(), &mut bytes).unwrap();
    for rows in [1, 9] {
        each_device(Activations::Quantized, |gpu| {
            let data = Bytes::Owned(bytes.clone().into());
            let weight = Tensor::new("w", vec![8, COLUMNS], format, data).unwrap();
            let layer = Linear { weight, bias: None };
            let x = gpu.hold(Hidden::new(vec![256.0; rows * COLUMNS], COLUMNS)).unwrap();
            let mut out = Hidden::empty();
            gpu.linear(Source::Plain(&x), &[&layer], std::slice::from_mut(&mut out)).unwrap();
            let expected = 256.0 * 16.0 * COLUMNS as f32;
            let out = gpu.fetch(out).unwrap();
            assert!(out.values().iter().all(|value| (value / expected - 1.0).abs() < 1e-3), "{out:?}");
        });
    }
}

#[test]
fn a_decoder_layer_takes_at_most_seven_dispatches() {
    for device in devices() {
        let gpu = Gpu::new(Arc::clone(device), Activations::Quantized);
        let q8_0 = Format::by_name("q8_0").unwrap();
        let layers: Vec<Linear> = [COLUMNS, 128, 128, COLUMNS, COLUMNS, COLUMNS, COLUMNS]
            .map(|rows| layer(q8_0, rows, false))
            .into();
        let shape = LayerShape { heads: 2, dim: 64, window: None };
        let mut cache = KvCache::new(&[shape], CacheType::F16, 64).unwrap();
        let turns = gpu.hold(hidden(4, 1, 64)).unwrap();
        let mut x = gpu.hold(hidden(5, 1, COLUMNS)).unwrap();
        assert!(gpu.take_commands().is_empty());
        let norm = norm(COLUMNS);
        let mut out = [Hidden::empty(), Hidden::empty(), Hidden::empty()];
        let qkv: Vec<&Linear> = layers[..3].iter().collect();
        gpu.linear(Source::Normed(&x, &norm), &qkv, &mut out).unwrap();
        let [query, key, value] = out;
        let mut heads = Heads { query, key, value };
        let rotation = Rotation { turns, interleaved: false };
        gpu.append(cache.layer(0), &mut heads, [None, None], &rotation).unwrap();
        let shape = AttentionShape { heads: 8, scale: 0.125, softcap: None, sinks: None };
        let attended = gpu.attention(&heads.query, cache.layer(0), Span { start: 0, len: 1 }, shape).unwrap();
        gpu.add_linear(&mut x, Source::Plain(&attended), &layers[3], None).unwrap();
        let mut out = [Hidden::empty(), Hidden::empty()];
        gpu.linear(Source::Normed(&x, &norm), &[&layers[4], &layers[5]], &mut out).unwrap();
        gpu.add_linear(&mut x, Source::Gated(Gate::Silu, &out[0], &out[1]), &layers[6], None).unwrap();
        let names: Vec<_> = gpu.take_commands().iter().map(|command| command.kernel.name).collect();
        assert_eq!(names, ["matvec", "append", "attention", "matvec", "matvec", "matvec"]);
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

//! The GPU's operations against the CPU's: every kernel, format and kind of shape, on every adapter found, with no more
//! than WebGPU's floor allows and with all that the adapter has. Without an adapter they print a line and pass, except in
//! CI, which has a software device.
//!
//! Tolerances are normalized mean square errors, sum (a - b)² / sum b², and their reasons stand beside them.

#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::sync::{Arc, LazyLock};

use hadal::backend::cpu::{Activations, Cpu};
use hadal::backend::gpu::check::{self, Check};
use hadal::backend::gpu::{Device, Gpu, Reach, cooperative_tile};
use hadal::backend::{AttentionShape, Backend, Gate, Heads, Hidden, Linear, RmsNorm, Rotation, Source, Span};
use hadal::cache::{CacheType, KvCache, LayerShape};
use hadal::quant::{FORMATS, Format};
use hadal::tensor::{Bytes, Tensor};

#[path = "support/gpu.rs"]
mod gpu;

/// Sums in another order: a hundred times what they differ by.
const FLOAT: f64 = 1e-10;
/// As that, and the CPU rounds the scales of 32 inputs to halves: 2^-12 relative, some 2e-8.
const HALF_SCALES: f64 = 2e-7;
/// As that where weights have a minimum: two sums that nearly cancel. 1e-6 was seen.
const HALF_SUMS: f64 = 5e-6;
/// Up to three products, one behind the other. Scales that differ by 2^-12 make some 2 % of the next one's codes their
/// neighbours, 1/127 of the largest: 4e-6 each time; 1.1e-5 was seen.
const CHAINED: f64 = 5e-5;
/// A cached value between two halves may round the other way after sums in another order.
const HALF_CACHE: f64 = 1e-7;

/// As that; and a rotated key may round to the neighbouring code, of 2 bits a third of its block's width.
const PACKED_CACHE: f64 = 1e-6;

/// An adapter, opened once a process so that pipelines are compiled once.
struct Opened {
    device: Arc<Device>,
    reach: Reach,
}

fn devices() -> &'static [Opened] {
    static DEVICES: LazyLock<Vec<Opened>> = LazyLock::new(|| {
        let reaches = [Reach::Floor, Reach::Adapter];
        let both = gpu::found().iter().flat_map(|adapter| reaches.map(|reach| (adapter, reach)));
        let open =
            |(adapter, reach)| Opened { device: Arc::new(Device::open(adapter, reach).unwrap()), reach };
        both.map(open).collect()
    });
    &DEVICES
}

/// On all devices, or on those at the floor.
fn each_device(all: bool, activations: Activations, test: impl Fn(&Gpu, &str)) {
    for Opened { device, reach } in devices().iter().filter(|opened| all || opened.reach == Reach::Floor) {
        let name = format!("{} ({reach:?})", device.name());
        test(&Gpu::new(Arc::clone(device), activations), &name);
        device.check().unwrap();
    }
    assert_eq!(gpu::complaints(), [""; 0]);
}

fn cpu(activations: Activations) -> Cpu {
    Cpu::new(Some(2), None, activations).unwrap()
}

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.f32() * 2.0 - 1.0).collect()
}

fn hidden(seed: u64, rows: usize, columns: usize) -> Hidden {
    Hidden::new(noise(seed, rows * columns), columns)
}

/// Random blocks, of which scales are made small numbers.
fn weights(format: &'static Format, rows: usize, columns: usize) -> Tensor {
    let mut random = fastrand::Rng::with_seed(rows as u64);
    let len = format.bytes_for(rows * columns).unwrap();
    let mut bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
    if format.encode(&noise(3, rows * columns), &mut bytes).is_err() {
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
    Tensor::new("w", vec![rows, columns], format, Bytes::Owned(bytes.into())).unwrap()
}

fn layer(format: &'static Format, rows: usize, columns: usize, biased: bool) -> Linear {
    Linear { weight: weights(format, rows, columns), bias: biased.then(|| noise(7, rows).into()) }
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

fn product(ops: &dyn Backend, layer: &Linear, x: Hidden) -> Hidden {
    let x = ops.hold(x).unwrap();
    let mut out = [Hidden::empty()];
    ops.linear(Source::Plain(&x), &[layer], &mut out).unwrap();
    let [out] = out;
    ops.fetch(out).unwrap()
}

fn by_name(name: &str) -> &'static Format {
    Format::by_name(name).unwrap()
}

fn formats() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().copied().filter(|format| format.dot.is_some())
}

/// What a path may differ by.
fn tolerance(format: &Format, activations: Activations) -> f64 {
    match format.dot.as_ref().unwrap().input.name {
        "q8_0" if activations == Activations::Quantized => HALF_SCALES,
        "q8_1" if activations == Activations::Quantized => HALF_SUMS,
        _ => FLOAT,
    }
}

/// A product on a device and on the CPU.
#[derive(Debug)]
struct Case {
    format: &'static str,
    /// Rows of inputs, rows of weights, columns.
    shape: [usize; 3],
    activations: Activations,
    /// Beside the floor, what the adapter has.
    all: bool,
}

impl Case {
    fn check(&self) {
        let format = by_name(self.format);
        let [rows, outputs, columns] = self.shape;
        let layer = layer(format, outputs, columns, outputs != 1);
        let expected = product(&cpu(self.activations), &layer, hidden(1, rows, columns));
        each_device(self.all, self.activations, |gpu, name| {
            // Of each device its own copy of the weights.
            let layer =
                Linear { weight: weights(format, outputs, columns), bias: layer.bias.as_deref().map(copy) };
            let found = product(gpu, &layer, hidden(1, rows, columns));
            close(&format!("{self:?} on {name}"), &found, &expected, tolerance(format, self.activations));
        });
    }
}

fn copy(values: &[f32]) -> hadal::tensor::Vector {
    values.to_vec().into()
}

/// Columns of most products: kernels are compiled for them, which takes a software device a second each.
const COLUMNS: usize = 512;

#[test]
fn products_with_every_format() {
    for format in formats() {
        // A decode step and a small batch; rows that fill no workgroup.
        for shape in [[1, 37, COLUMNS], [3, 33, COLUMNS]] {
            let all = ["q8_0", "q4_k"].contains(&format.name);
            Case { format: format.name, shape, activations: Activations::Quantized, all }.check();
        }
    }
}

#[test]
fn products_of_every_shape() {
    let shapes = [[1, 2, COLUMNS], [1, 130, COLUMNS], [2, 2, COLUMNS], [8, 65, COLUMNS], [35, 33, COLUMNS]];
    for format in ["f16", "q8_0", "q4_k"] {
        for shape in shapes {
            Case { format, shape, activations: Activations::Quantized, all: false }.check();
        }
    }
    // A row alone; lanes of two sizes; columns that don't fit a workgroup's memory; more rows than a dimension has
    // workgroups.
    for shape in [[1, 1, COLUMNS], [1, 9, 2048], [1, 3, 8448], [1, 65_700, 32], [2, 65_700, 32]] {
        Case { format: "q8_0", shape, activations: Activations::Quantized, all: false }.check();
    }
    Case { format: "q4_k", shape: [1, 33, 8448], activations: Activations::Quantized, all: true }.check();
}

#[test]
fn products_with_floats() {
    for format in ["f16", "q8_0", "q4_k", "iq2_xs"] {
        for shape in [[1, 37, COLUMNS], [3, 33, COLUMNS]] {
            Case { format, shape, activations: Activations::Float, all: format == "f16" }.check();
        }
    }
}

/// Sums of a prompt's codes are the CPU's exactly, by cooperative matrices too.
#[test]
fn products_by_cooperative_matrices() {
    for adapter in gpu::found() {
        let Some(side) = cooperative_tile(adapter) else {
            println!("skipped: {} offers no cooperative matrices of halves", adapter.get_info().name);
            continue;
        };
        let device = Arc::new(Device::open(adapter, Reach::Experimental).unwrap());
        assert!(!device.cooperative().is_empty());
        let checks = check::self_test(&device).unwrap();
        assert!(checks.iter().any(|check| check.family == "matmul by cooperative matrices"));
        assert!(checks.iter().all(Check::passed), "{checks:?}");
        // Tiles that are full and not, of tokens and of rows.
        for format in formats() {
            for [rows, outputs] in [[9, 33], [70, 64]] {
                let layer = || layer(format, outputs, COLUMNS, true);
                let x = || hidden(1, rows, COLUMNS);
                let expected = product(&cpu(Activations::Quantized), &layer(), x());
                let found = product(&Gpu::new(Arc::clone(&device), Activations::Quantized), &layer(), x());
                let what = format!("{} x {rows} by {side} x {side} on {}", format.name, device.name());
                close(&what, &found, &expected, tolerance(format, Activations::Quantized));
            }
        }
        device.check().unwrap();
    }
    assert_eq!(gpu::complaints(), [""; 0]);
}

/// 32 of these are 4 million, where halves end at 65,504.
#[test]
fn products_of_values_that_no_half_can_hold() {
    for format in ["f16", "q8_0", "q4_1", "q4_k", "iq4_xs"] {
        for (rows, activations) in
            [(1, Activations::Quantized), (3, Activations::Quantized), (3, Activations::Float)]
        {
            let x = || {
                Hidden::new(noise(1, rows * COLUMNS).iter().map(|x| x.abs() * 131_072.0).collect(), COLUMNS)
            };
            let expected = product(&cpu(activations), &layer(by_name(format), 37, COLUMNS, false), x());
            assert!(expected.values().iter().any(|value| value.abs() > 65_504.0), "{format}");
            each_device(true, activations, |gpu, name| {
                let found = product(gpu, &layer(by_name(format), 37, COLUMNS, false), x());
                let tolerance = tolerance(by_name(format), activations);
                close(
                    &format!("{format}, {rows} rows, {activations:?} on {name}"),
                    &found,
                    &expected,
                    tolerance,
                );
            });
        }
    }
}

#[test]
fn a_matrix_larger_than_a_binding() {
    // 137 MB, where the floor's bindings have 134.
    Case { format: "q8_0", shape: [1, 31_500, 4096], activations: Activations::Quantized, all: false }
        .check();
}

/// Whole numbers and scales of 1, so that what is added are integers: not one may differ from the CPU's.
#[test]
fn integers_are_those_of_the_cpu() {
    // Formats and where in a block their f16 scales are.
    let unit: [(&str, &[usize]); 8] = [
        ("q8_0", &[0]),
        ("q4_0", &[0]),
        ("q5_1", &[0, 2]),
        ("q4_k", &[0, 2]),
        ("q3_k", &[108]),
        ("q6_k", &[208]),
        ("iq4_xs", &[0]),
        ("tq2_0", &[64]),
    ];
    let columns = COLUMNS;
    for (name, scales) in unit {
        let format = by_name(name);
        let weight = || {
            let mut bytes = weights(format, 37, columns).bytes().to_vec();
            for block in bytes.chunks_exact_mut(format.block_bytes) {
                for &at in scales {
                    block[at..at + 2].copy_from_slice(&[0x00, 0x3c]);
                }
            }
            Tensor::new("w", vec![37, columns], format, Bytes::Owned(bytes.into())).unwrap()
        };
        for rows in [1, 3] {
            // Each group's largest is 127: its scale is 1. The others are small: sums stay below 2^24.
            let whole = |(i, value): (usize, &f32)| if i % 32 == 5 { 127.0 } else { (value * 15.0).round() };
            let x = || Hidden::new(noise(4, rows * columns).iter().enumerate().map(whole).collect(), columns);
            let layer = || Linear { weight: weight(), bias: Some(vec![3.0; 37].into()) };
            let expected = product(&cpu(Activations::Quantized), &layer(), x());
            each_device(["q8_0", "q4_k"].contains(&name), Activations::Quantized, |gpu, device| {
                let found = product(gpu, &layer(), x());
                assert_eq!(found.values(), expected.values(), "{name} x {rows} on {device}");
            });
        }
    }
}

#[test]
fn embeddings_of_every_format() {
    let tokens = [0, 36, 5, 5];
    for format in formats() {
        let expected = cpu(Activations::Float).embed(&weights(format, 37, COLUMNS), &tokens, 1.5).unwrap();
        each_device(format.name == "f16", Activations::Quantized, |gpu, name| {
            let found = gpu.fetch(gpu.embed(&weights(format, 37, COLUMNS), &tokens, 1.5).unwrap()).unwrap();
            close(&format!("{} on {name}", format.name), &found, &expected, 1e-14);
        });
    }
}

/// Every half that is a number: among them the subnormal ones, which some devices would flush to 0.
#[test]
fn halves_of_every_kind() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let table = || {
        let bytes = Bytes::Owned(bytes.clone().into());
        Tensor::new("w", vec![256, 256], by_name("f16"), bytes).unwrap()
    };
    let tokens: Vec<u32> = (0..256).filter(|token| token & 0x7c != 0x7c).collect();
    let expected = cpu(Activations::Float).embed(&table(), &tokens, 1.0).unwrap();
    each_device(true, Activations::Quantized, |gpu, name| {
        let found = gpu.fetch(gpu.embed(&table(), &tokens, 1.0).unwrap()).unwrap();
        assert_eq!(found.values(), expected.values(), "{name}");
    });
}

/// A decoder layer's operations, each with what it fuses.
fn fused(ops: &dyn Backend, rows: usize) -> Vec<Hidden> {
    let columns = COLUMNS;
    let layer = |name, biased| layer(by_name(name), columns, columns, biased);
    let (a, b, down) = (layer("q8_0", true), layer("q4_k", false), layer("q8_0", false));
    let mut fetched = Vec::new();
    for (post, gate) in [(None, Gate::Silu), (Some(norm(columns)), Gate::Gelu)] {
        let mut x = ops.hold(hidden(2, rows, columns)).unwrap();
        let norm = norm(columns);
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
        let expected = fused(&cpu(Activations::Quantized), rows);
        each_device(true, Activations::Quantized, |gpu, name| {
            for (i, (found, expected)) in fused(gpu, rows).iter().zip(&expected).enumerate() {
                close(&format!("output {i} of {rows} rows on {name}"), found, expected, CHAINED);
            }
        });
    }
}

#[derive(Clone, Debug)]
struct Attending {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    kv: CacheType,
    window: Option<usize>,
    softcap: Option<f32>,
    sinks: bool,
    normed: bool,
    interleaved: bool,
    /// Rows that are appended and attended together, one after the other.
    pieces: &'static [usize],
    /// What values are multiplied with.
    size: f32,
}

/// Rows of a cache, for which kernels are compiled.
const CAPACITY: usize = 640;

/// Rows appended in pieces to one cache; what the queries of each piece see.
fn attention(ops: &dyn Backend, case: &Attending) -> Vec<Hidden> {
    let &Attending { heads, kv_heads, dim, .. } = case;
    let shape = LayerShape { heads: kv_heads, dim, window: case.window };
    let mut cache = KvCache::new(&[shape], case.kv, CAPACITY).unwrap();
    let sinks = noise(77, heads);
    let norms = [norm(dim), norm(dim)];
    let mut at = 0;
    let mut fetched = Vec::new();
    for (piece, &rows) in case.pieces.iter().enumerate() {
        let seed = 10 * piece as u64;
        let query = noise(seed, rows * heads * dim);
        let key = noise(seed + 1, rows * kv_heads * dim);
        let value: Vec<f32> =
            noise(seed + 2, rows * kv_heads * dim).iter().map(|value| value * case.size).collect();
        let mut rows_of_heads = side_by_side(ops, rows, [&query, &key, &value]);
        let turns = ops.hold(turns(at, rows)).unwrap();
        let rotation = Rotation { turns, interleaved: case.interleaved };
        let norms = norms.each_ref().map(|norm| case.normed.then_some(norm));
        ops.append(cache.layer(0), &mut rows_of_heads, norms, &rotation).unwrap();
        let sinks = case.sinks.then_some(&sinks[..]);
        let shape = AttentionShape { heads, scale: 0.125, softcap: case.softcap, sinks };
        let span = Span { start: at, len: rows };
        let attended = ops.attention(&rows_of_heads.query, cache.layer(0), span, shape).unwrap();
        fetched.push(ops.fetch(attended).unwrap());
        at += rows;
    }
    fetched
}

/// Cosines and sines of 16 pairs.
fn turns(start: usize, rows: usize) -> Hidden {
    let angle = |position: usize, pair: usize| position as f32 * 0.7f32.powi(pair as i32);
    let turns = (start..start + rows).flat_map(|position| {
        let cosines = (0..16).map(move |pair| angle(position, pair).cos());
        cosines.chain((0..16).map(move |pair| angle(position, pair).sin()))
    });
    Hidden::new(turns.collect(), 32)
}

/// As a linear operation leaves them: products with matrices that pick columns.
fn side_by_side(ops: &dyn Backend, rows: usize, parts: [&[f32]; 3]) -> Heads {
    let widths = parts.map(|part| part.len() / rows);
    let columns: usize = widths.iter().sum();
    let row =
        |row: usize| (0..3).map(|i| &parts[i][row * widths[i]..(row + 1) * widths[i]]).collect::<Vec<_>>();
    let joined: Vec<f32> = (0..rows).flat_map(|i| row(i).concat()).collect();
    let joined = ops.hold(Hidden::new(joined, columns)).unwrap();
    let mut first = 0;
    let picks = widths.map(|count| {
        let mut values = vec![0.0; count * columns];
        for i in 0..count {
            values[i * columns + first + i] = 1.0;
        }
        first += count;
        Linear { weight: Tensor::from_f32("pick", vec![count, columns], &values).unwrap(), bias: None }
    });
    let mut out = [Hidden::empty(), Hidden::empty(), Hidden::empty()];
    ops.linear(Source::Plain(&joined), &picks.iter().collect::<Vec<_>>(), &mut out).unwrap();
    let [query, key, value] = out;
    Heads { query, key, value }
}

#[test]
fn attention_over_the_cache() {
    let plain = Attending {
        heads: 3,
        kv_heads: 1,
        dim: 64,
        kv: CacheType::F16,
        window: None,
        softcap: None,
        sinks: false,
        normed: false,
        interleaved: false,
        // Less than a tile of keys, more than one, and so many that they are split.
        pieces: &[20, 1, 3, 500, 1],
        size: 1.0,
    };
    let f32 = Attending { kv: CacheType::F32, ..plain.clone() };
    let two = Attending { heads: 2, kv_heads: 2, ..f32.clone() };
    let cases = [
        plain.clone(),
        Attending { normed: true, interleaved: true, softcap: Some(2.0), sinks: true, ..two.clone() },
        Attending { window: Some(50), sinks: true, normed: true, pieces: &[70, 1, 3], ..plain.clone() },
        Attending { window: Some(520), pieces: &[600, 1], ..two },
        // Heads of other sizes, none shared, all shared.
        Attending { heads: 4, kv_heads: 4, dim: 80, pieces: &[17, 1], ..f32.clone() },
        Attending { heads: 9, kv_heads: 1, dim: 128, pieces: &[10, 1], ..f32.clone() },
        Attending { heads: 4, kv_heads: 1, dim: 256, pieces: &[9, 1], ..plain },
        // More than a half can hold.
        Attending { size: 100_000.0, pieces: &[20, 1], ..f32 },
    ];
    for (number, case) in cases.iter().enumerate() {
        check_attention(case, number == 0);
    }
    for kv in CacheType::all().filter(|&kv| kv != CacheType::F16 && kv != CacheType::F32) {
        // Of one also many rows at once, and segments.
        let pieces: &[usize] = if kv == CacheType::TURBO { &[20, 500, 1] } else { &[20, 1] };
        check_attention(&Attending { kv, pieces, ..cases[0].clone() }, false);
    }
    let kind = |kv: &str, case: &Attending| Attending { kv: kv.parse().unwrap(), ..case.clone() };
    let odd = Attending { sinks: true, softcap: Some(2.0), normed: true, ..cases[0].clone() };
    let wide = Attending { heads: 9, dim: 128, pieces: &[70, 1], ..cases[0].clone() };
    let wider = Attending { heads: 4, dim: 256, pieces: &[9, 1], ..cases[0].clone() };
    let widest = Attending { heads: 2, dim: 512, pieces: &[9, 1], ..cases[0].clone() };
    for case in [
        kind("turbo:k4v4", &odd),
        kind("q4_0:rot/turbo5", &odd),
        kind("q8_0/f16", &odd),
        kind("turbo8/bf16", &odd),
        kind("f32/affine8", &odd),
        kind("turbo", &wide),
        kind("q4_0:rot", &wide),
        kind("affine4", &wide),
        kind("turbo:k5v2", &wider),
        kind("q8_0:rot", &wider),
        kind("turbo:k2v8", &widest),
        Attending { dim: 96, ..kind("q8_0/q4_0", &wide) },
        // Rows that end within a word.
        Attending { dim: 32, ..kind("q8_0", &odd) },
    ] {
        check_attention(&case, false);
    }
}

fn check_attention(case: &Attending, all: bool) {
    let expected = attention(&cpu(Activations::Float), case);
    each_device(all, Activations::Float, |gpu, name| compare_attention(gpu, name, case, &expected));
}

fn compare_attention(gpu: &Gpu, name: &str, case: &Attending, expected: &[Hidden]) {
    let allowed = match case.kv {
        kv if kv == CacheType::F32 => FLOAT,
        kv if kv.is_dense() => HALF_CACHE,
        _ => PACKED_CACHE,
    };
    for (piece, (found, expected)) in attention(gpu, case).iter().zip(expected).enumerate() {
        close(&format!("piece {piece} of {case:?} on {name}"), found, expected, allowed);
    }
}

/// Two or three parts of a layer's 640 rows, with segments, within them, and rows of queries so many that what they find
/// has to be cut as well.
#[test]
fn caches_larger_than_a_binding() {
    let f16 = Attending {
        heads: 4,
        kv_heads: 2,
        dim: 64,
        kv: CacheType::F16,
        window: None,
        softcap: None,
        sinks: true,
        normed: true,
        interleaved: false,
        pieces: &[24, 1, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 1],
        size: 1.0,
    };
    // The ring of rows begins anew within the last pieces.
    let window = Attending { window: Some(260), pieces: &[24; 28], ..f16.clone() };
    let kind = |kv: &str| Attending { kv: kv.parse().unwrap(), ..f16.clone() };
    let devices: Vec<Arc<Device>> = gpu::found()
        .iter()
        .map(|adapter| Arc::new(Device::open_with_bindings(adapter, 1 << 16).unwrap()))
        .collect();
    for case in [&f16, &window, &kind("f32"), &kind("q8_0"), &kind("turbo"), &kind("q8_0/bf16")] {
        let expected = attention(&cpu(Activations::Float), case);
        for device in &devices {
            let gpu = Gpu::new(Arc::clone(device), Activations::Float);
            compare_attention(&gpu, device.name(), case, &expected);
            device.check().unwrap();
        }
    }
    assert_eq!(gpu::complaints(), [""; 0]);
}

/// What slow devices do in several dispatches is what others do in one, bit for bit.
#[test]
fn dispatches_that_are_cut() {
    let case = Attending {
        heads: 4,
        kv_heads: 2,
        dim: 64,
        kv: "q8_0/f16".parse().unwrap(),
        window: Some(300),
        softcap: None,
        sinks: true,
        normed: false,
        interleaved: false,
        pieces: &[27, 400],
        size: 1.0,
    };
    for adapter in gpu::found() {
        let run = |device: Device| {
            let gpu = Gpu::new(Arc::new(device), Activations::Quantized);
            let layer = layer(by_name("q4_k"), 130, COLUMNS, true);
            let mut found = attention(&gpu, &case);
            found.push(product(&gpu, &layer, hidden(1, 35, COLUMNS)));
            let dispatches = gpu.gpu().unwrap().counts().dispatches;
            (dispatches, found.iter().map(|found| found.values().to_vec()).collect::<Vec<_>>())
        };
        let open = || Device::open(adapter, Reach::Floor).unwrap();
        let ((some, expected), (more, found)) = (run(open()), run(open().with_most_macs(1 << 16)));
        // The product takes five instead of one, attention 4 and 50 instead of one each.
        assert!(more >= some + 54, "{more} instead of {some}");
        assert!(found == expected, "{}", open().name());
    }
    assert_eq!(gpu::complaints(), [""; 0]);
}

#[test]
fn large_values_survive() {
    // 256 * 32 * 16 is more than a half can hold.
    let format = by_name("q8_0");
    let mut bytes = vec![0; format.bytes_for(8 * COLUMNS).unwrap()];
    format.encode(&vec![16.0; 8 * COLUMNS], &mut bytes).unwrap();
    let paths = [1, 5, 9].map(|rows| (rows, Activations::Quantized));
    for (rows, activations) in paths.into_iter().chain([1, 5].map(|rows| (rows, Activations::Float))) {
        each_device(false, activations, |gpu, name| {
            let data = Bytes::Owned(bytes.clone().into());
            let weight = Tensor::new("w", vec![8, COLUMNS], format, data).unwrap();
            let layer = Linear { weight, bias: Some(vec![0.0; 8].into()) };
            let out = product(gpu, &layer, Hidden::new(vec![256.0; rows * COLUMNS], COLUMNS));
            let expected = 256.0 * 16.0 * COLUMNS as f32;
            assert!(
                out.values().iter().all(|value| (value / expected - 1.0).abs() < 1e-3),
                "{name}: {out:?}"
            );
        });
    }
}

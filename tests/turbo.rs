//! TurboQuant's rows against the reference: vllm-metal's, with the codebooks of mlx-bun (`tests/data/mlx/tq_*`).

#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use hadal::backend::cpu::{Activations, Cpu};
use hadal::backend::{AttentionShape, Backend, Hidden, Span};
use hadal::cache::{CacheType, KvCache, LayerShape};
use hadal::quant::turbo::{self, keys, values};
use hadal::quant::{Format, f16};
use hadal::simd::Isa;
use half::bf16;

#[path = "support/golden.rs"]
mod golden;
use golden::{Failures, Golden, Rows, decode, quantize, same};

const KEYS: [(&Format, usize); 4] = [(&keys::K2, 2), (&keys::K4, 4), (&keys::K5, 5), (&keys::K8, 8)];
const VALUES: [(&Format, usize); 5] =
    [(&values::V2, 2), (&values::V3, 3), (&values::V4, 4), (&values::V5, 5), (&values::V8, 8)];

/// Files, and the name and type of their inputs.
const FILES: [(&str, &str); 6] = [
    ("tq_kv_d64", "input_f32"),
    ("tq_kv_d128", "input_f32"),
    ("tq_kv_d256", "input_f32"),
    ("tq_kv_d512", "input_f32"),
    ("tq_kv_f16_d128", "input"),
    ("tq_kv_bf16_d128", "input"),
];

/// The file's inputs, widened.
fn inputs(golden: &Golden, file: &str, name: &str) -> Rows<f32> {
    let widened = |columns, values| Rows { columns, values };
    if file.contains("bf16") {
        let rows = golden.get::<bf16>(name);
        widened(rows.columns, rows.values.iter().map(|value| value.to_f32()).collect())
    } else if file.contains("f16") {
        let rows = golden.get::<half::f16>(name);
        widened(rows.columns, rows.values.iter().map(|value| value.to_f32()).collect())
    } else {
        golden.get(name)
    }
}

/// The parts of a row's blocks, each with `halves` halves and then codes: the halves by place, the stream of all codes.
fn parts(row: &[u8], block_bytes: usize, halves: usize) -> (Vec<Vec<f32>>, Vec<u8>) {
    let (mut found, mut codes) = (vec![Vec::new(); halves], Vec::new());
    for block in row.chunks_exact(block_bytes) {
        let (numbers, stream) = block.split_at(2 * halves);
        for (found, number) in found.iter_mut().zip(decode(&f16::FORMAT, numbers)) {
            found.push(number);
        }
        codes.extend_from_slice(stream);
    }
    (found, codes)
}

/// Codes of `bits` from the stream of a row.
fn unpacked(stream: &[u8], bits: usize) -> Vec<u8> {
    let bit = |at: usize| stream[at / 8] >> (at % 8) & 1;
    (0..stream.len() * 8 / bits).map(|i| (0..bits).map(|j| bit(i * bits + j) << j).sum()).collect()
}

/// The same numbers: 0 equals -0, NaN equals NaN.
fn equal(found: &[f32], expected: &[half::f16]) -> bool {
    let pairs = found.iter().zip(expected);
    pairs.into_iter().all(|(a, b)| *a == b.to_f32() || a.is_nan() && b.is_nan())
}

fn rounded(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|&value| bf16::from_f32(value)).collect()
}

fn equal_bf16(found: &[f32], expected: &[bf16]) -> bool {
    rounded(found).iter().zip(expected).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
}

#[test]
fn keys_have_the_bytes_of_the_reference() {
    let mut failures = Failures::default();
    for (file, name) in FILES {
        let golden = Golden::open(&format!("mlx/{file}.safetensors"));
        let inputs = inputs(&golden, file, name);
        for (format, bits) in KEYS {
            let get = |part: &str| format!("k{bits}.{part}");
            let (scales, zeros) =
                (golden.get::<half::f16>(&get("scale")), golden.get::<half::f16>(&get("zero")));
            let signed = (bits == 8).then(|| golden.get::<i8>(&get("idx")));
            let codes: Vec<u8> = match &signed {
                Some(codes) => codes.values.iter().map(|code| code.cast_unsigned()).collect(),
                None => golden.get::<u8>(&get("idx")).values,
            };
            for (index, row) in inputs.iter().enumerate() {
                let bytes = quantize(format, Isa::Scalar, row);
                let (numbers, stream) = parts(&bytes, format.block_bytes, 2);
                let of = |rows: &[u8]| rows[index * inputs.columns..(index + 1) * inputs.columns].to_vec();
                let what = || format!("{file} k{bits} row {index}");
                let nth = |rows: &Rows<half::f16>| rows.iter().nth(index).unwrap().to_vec();
                failures.check(equal(&numbers[0], &nth(&scales)), || format!("{}: scales", what()));
                failures.check(equal(&numbers[1], &nth(&zeros)), || format!("{}: zeros", what()));
                failures.check(unpacked(&stream, bits) == of(&codes), || format!("{}: codes", what()));
                if bits < 8
                    && let Some(packed) = golden.find::<u8>(&get("packed"))
                {
                    let same = stream == packed.iter().nth(index).unwrap();
                    failures.check(same, || format!("{}: stream", what()));
                }
                let found = decode(format, &bytes);
                if let Some(rows) = golden.find::<bf16>(&get("dequant_bf16")) {
                    let same = equal_bf16(&found, rows.iter().nth(index).unwrap());
                    failures.check(same, || format!("{}: decoded", what()));
                }
                if let Some(rows) = golden.find::<f32>(&get("dequant_f32")) {
                    let expected = rows.iter().nth(index).unwrap();
                    let same = found.iter().zip(expected).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
                    failures.check(same, || format!("{}: decoded in f32", what()));
                }
            }
        }
    }
}

#[test]
fn values_have_the_bytes_of_the_reference() {
    let mut failures = Failures::default();
    for (file, name) in FILES {
        let golden = Golden::open(&format!("mlx/{file}.safetensors"));
        let inputs = inputs(&golden, file, name);
        let scales = golden.get::<half::f16>("v.scale");
        for (format, bits) in VALUES {
            let codes = golden.get::<u8>(&format!("v{bits}.idx"));
            for (index, row) in inputs.iter().enumerate() {
                let what = || format!("{file} v{bits} row {index}");
                let mut turned = row.to_vec();
                turbo::rotate(Isa::Scalar, &mut turned);
                if let Some(rows) = golden.find::<f32>("v.rotated_f32") {
                    let expected = rows.iter().nth(index).unwrap();
                    let same = turned.iter().zip(expected).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
                    failures.check(same, || format!("{}: turned", what()));
                }
                let bytes = quantize(format, Isa::Scalar, &turned);
                let (numbers, stream) = parts(&bytes, format.block_bytes, 1);
                let expected = scales.iter().nth(index).unwrap();
                failures.check(equal(&numbers[0], expected), || format!("{}: scales", what()));
                let expected = codes.iter().nth(index).unwrap();
                failures.check(unpacked(&stream, bits) == expected, || format!("{}: codes", what()));
                if let Some(packed) = golden.find::<u8>(&format!("v{bits}.packed")) {
                    let same = stream == packed.iter().nth(index).unwrap();
                    failures.check(same, || format!("{}: stream", what()));
                }
                let mut found = decode(format, &bytes);
                if let Some(rows) = golden.find::<bf16>(&format!("v{bits}.dequant_rotated_bf16")) {
                    let same = equal_bf16(&found, rows.iter().nth(index).unwrap());
                    failures.check(same, || format!("{}: decoded", what()));
                }
                turbo::rotate_back(Isa::Scalar, &mut found);
                if let Some(rows) = golden.find::<bf16>(&format!("v{bits}.dequant_bf16")) {
                    let same = equal_bf16(&found, rows.iter().nth(index).unwrap());
                    failures.check(same, || format!("{}: turned back", what()));
                }
                if let Some(rows) = golden.find::<f32>(&format!("v{bits}.dequant_f32")) {
                    let expected = rows.iter().nth(index).unwrap();
                    let same = found.iter().zip(expected).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
                    failures.check(same, || format!("{}: turned back in f32", what()));
                }
            }
        }
    }
}

/// Pairs of independent normal numbers (Box and Muller 1958).
fn normal(len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(7);
    let pair = |_| {
        let radius = (-2.0 * libm::log(1.0 - random.f64())).sqrt();
        let angle = random.f64() * std::f64::consts::TAU;
        [(radius * libm::cos(angle)) as f32, (radius * libm::sin(angle)) as f32]
    };
    (0..len / 2).flat_map(pair).collect()
}

/// The mean of squares of what normal rows of 128 lose: within a hundredth of the reference's.
#[test]
fn rows_lose_as_much_as_with_the_reference() {
    let rows = normal(128 * 8192);
    let loss = |format: &Format, turned: bool| {
        let mut sum = 0.0;
        for row in rows.chunks_exact(128) {
            let mut x = row.to_vec();
            if turned {
                turbo::rotate(Isa::Scalar, &mut x);
            }
            let mut found = decode(format, &quantize(format, Isa::Scalar, &x));
            if turned {
                turbo::rotate_back(Isa::Scalar, &mut found);
            }
            sum += row.iter().zip(&found).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
        }
        sum / rows.len() as f64
    };
    let expected_keys = [0.1655, 0.00653, 0.00153, 2.28e-5];
    let expected_values = [0.1121, 0.0326, 0.00897, 0.00238, 9.99e-5];
    let mut failures = Failures::default();
    let cases = KEYS.iter().zip(expected_keys).map(|(&(format, _), expected)| (format, false, expected));
    let more = VALUES.iter().zip(expected_values).map(|(&(format, _), expected)| (format, true, expected));
    for (format, turned, expected) in cases.chain(more) {
        let found = loss(format, turned);
        let message = || format!("{}: {found:e}, not {expected:e}", format.name);
        failures.check((found / expected - 1.0f64).abs() < 0.01, message);
    }
}

/// 128 elements with 8-bit keys and 3-bit values take 200 bytes, where halves take 512.
#[test]
fn bytes_are_those_of_the_specification() {
    let bytes = |format: &Format| format.bytes_for(128).unwrap();
    assert_eq!(bytes(&keys::K8) + bytes(&values::V3), 200);
    for (format, bits) in KEYS {
        assert_eq!(bytes(format), 128 * bits / 8 + 4 * 128 / 32);
    }
    for (format, bits) in VALUES {
        assert_eq!(bytes(format), 128 * bits / 8 + 2 * 128 / 32);
    }
}

/// Decoders and dots of every instruction set have the bits of the scalar ones, scales and zeros being different
/// everywhere: swapped ones would be seen.
#[test]
fn every_isa_gives_the_same_bits() {
    let rows = normal(64 * 40);
    let formats = KEYS.iter().chain(&VALUES).map(|(format, _)| *format);
    for format in formats {
        let bytes = quantize(format, Isa::Scalar, &rows);
        let expected = decode(format, &bytes);
        for isa in Isa::available() {
            let mut found = vec![0.0; rows.len()];
            format.reader(isa).call(&bytes, &mut found);
            assert!(found.iter().zip(&expected).all(|(a, b)| same(*a, *b)), "{} {isa:?}", format.name);
        }
        let Some(dot) = &format.dot else { continue };
        let query = quantize(dot.input, Isa::Scalar, &rows[..256]);
        let row_bytes = format.bytes_for(256).unwrap();
        let keys: Vec<_> = bytes.chunks_exact(row_bytes).collect();
        for isa in Isa::available() {
            let (row_dot, scalar) = (format.row_dot(isa).unwrap(), format.row_dot(Isa::Scalar).unwrap());
            for keys in keys.as_chunks::<4>().0 {
                let fours = row_dot.rows4(*keys, &query);
                for (key, four) in keys.iter().zip(fours) {
                    let expected = scalar.call(key, &query);
                    assert!(same(row_dot.call(key, &query), expected), "{} {isa:?}", format.name);
                    assert!(same(four, expected), "{} {isa:?}, four rows", format.name);
                    // And the scalar one is the dot of what is stored, up to float rounding.
                    let (key, query) = (decode(format, key), decode(dot.input, &query));
                    let exact: f64 = key.iter().zip(&query).map(|(&k, &q)| f64::from(k) * f64::from(q)).sum();
                    assert!(
                        (f64::from(expected) - exact).abs() < 1e-4,
                        "{}: {expected} {exact}",
                        format.name
                    );
                }
            }
        }
    }
}

/// The largest difference of two rows, in steps of bf16 at the expected row's largest magnitude.
fn steps(found: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let step = f32::from_bits(largest.to_bits() & 0x7f80_0000) / 128.0;
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max) / step
}

/// Causal attention of the last two of 24 tokens, four heads over two: what MLX makes of the same packed rows, turned
/// back before the sum (`eager`) or after it (`deferred`). MLX rounds keys, values, scores and weights to bf16, so that its
/// two routes are a step of a row's largest number apart, hundreds of steps of its smallest ones: rows are what can be
/// compared. Floats are within two steps; rounding queries to 8 bits may take one more.
#[test]
fn attention_is_the_references() {
    let golden = Golden::open("mlx/tq_attention.safetensors");
    let values = |name: &str| -> Vec<f32> {
        golden.get::<bf16>(name).values.iter().map(|value| value.to_f32()).collect()
    };
    // heads × tokens × 64 to tokens × heads × 64.
    let by_token = |values: &[f32], tokens: usize| -> Vec<f32> {
        let rows: Vec<_> = values.chunks_exact(64).collect();
        let heads = rows.len() / tokens;
        (0..tokens * heads).flat_map(|i| rows[i % heads * tokens + i / heads].to_vec()).collect()
    };
    let query = by_token(&values("q"), 2);
    let (keys, rows) = (by_token(&values("k"), 24), by_token(&values("v"), 24));
    let mut failures = Failures::default();
    for kind in ["k8v3", "k4v3", "k4v2", "k8v8"] {
        let layer = LayerShape { heads: 2, dim: 64, window: None };
        let cache_type: CacheType = kind.parse().unwrap();
        let bytes = golden.get::<i32>(&format!("{kind}.bytes_per_token_per_head")).values[0];
        assert_eq!(layer.token_bytes(cache_type).unwrap(), 2 * bytes as usize, "{kind}");
        let mut cache = KvCache::new(&[layer], cache_type, 24).unwrap();
        cache.layer(0).append(Isa::Scalar, &keys, &rows).unwrap();
        for activations in [Activations::Float, Activations::Quantized] {
            let cpu = Cpu::new(Some(1), None, activations).unwrap();
            let shape = AttentionShape { heads: 4, scale: 0.125, softcap: None, sinks: None };
            let at = Span { start: 22, len: 2 };
            let query = Hidden::new(query.clone(), 256);
            let found = cpu.attention(&query, cache.layer(0), at, shape).unwrap();
            for route in ["eager", "deferred"] {
                let expected = by_token(&values(&format!("{kind}.{route}")), 2);
                let rows = found.values().chunks_exact(64).zip(expected.chunks_exact(64));
                let worst = rows.map(|(found, expected)| steps(found, expected)).fold(0.0, f32::max);
                let most = if activations == Activations::Float { 2.0 } else { 3.0 };
                let message = || format!("{kind} {activations:?} {route}: {worst} steps");
                failures.check(worst <= most, message);
            }
        }
    }
}

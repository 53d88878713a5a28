//! Every row of `FORMATS` against data from the reference implementations, and every vector version against the
//! scalar one. The tests iterate the table and find their goldens by the row's name, so that a row without one fails.

#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::collections::HashSet;

use hadal::quant::{FORMATS, Format};
use hadal::simd::Isa;

#[path = "support/golden.rs"]
mod golden;

use golden::{Golden, Rows};

/// Collects what went wrong, so that one failure does not hide the next.
#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    fn check(&mut self, ok: bool, message: impl FnOnce() -> String) {
        if !ok {
            self.0.push(message());
        }
    }
}

impl Drop for Failures {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{} failures:\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}

/// The name in `ggml/*.safetensors`; `None` for what ggml lacks. Its `q2_0` has blocks of 64 weights.
fn ggml_name(format: &Format) -> Option<&'static str> {
    match format.name {
        "q2_0" => None,
        "q2_0_g64" => Some("q2_0"),
        name => Some(name),
    }
}

/// The name in `fucina/formats.safetensors`; `None` for what Fucina lacks. Its `q2_0` has blocks of 128 weights.
fn fucina_name(format: &Format) -> Option<&'static str> {
    (format.name != "q2_0_g64").then_some(format.name)
}

fn is_plain_float(format: &Format) -> bool {
    format.block_len == 1
}

fn decode(format: &Format, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / format.block_bytes * format.block_len];
    format.decode(bytes, &mut out).unwrap();
    out
}

fn quantize(format: &Format, isa: Isa, values: &[f32]) -> Vec<u8> {
    let mut out = vec![0; format.bytes_for(values.len()).unwrap()];
    format.quantize(isa, values, &mut out).unwrap();
    out
}

/// The same bits, or both NaN: payloads are nobody's promise.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn gaussian(rng: &mut fastrand::Rng) -> f32 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    (radius * (std::f64::consts::TAU * rng.f64()).cos()) as f32
}

/// Random bytes whose weights are finite.
fn random_blocks(format: &Format, blocks: usize, rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = vec![0; blocks * format.block_bytes];
    for block in bytes.chunks_exact_mut(format.block_bytes) {
        loop {
            rng.fill(block);
            if decode(format, block).iter().all(|weight| weight.is_finite()) {
                break;
            }
        }
    }
    bytes
}

#[test]
fn names_are_unique_wgsl_identifiers_in_the_order_of_gguf_ids() {
    let mut failures = Failures::default();
    let mut seen = HashSet::new();
    for format in FORMATS {
        let name = format.name;
        let valid = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && !name.contains("__");
        failures.check(valid, || format!("{name}: not a lower-case WGSL identifier"));
        failures.check(seen.insert(name), || format!("{name}: twice in the table"));
        failures
            .check(std::ptr::eq(Format::by_name(name).unwrap(), *format), || format!("{name}: not found"));
        let by_id = format.gguf_id.is_none_or(|id| Format::by_gguf_id(id).any(|found| found.name == name));
        failures.check(by_id, || format!("{name}: not found by its id"));
        let encodable = format.dot.as_ref().is_none_or(|dot| dot.input.has_encoder());
        failures.check(encodable, || format!("{name}: its inputs have no encoder"));
    }
    let ids: Vec<u32> = FORMATS.iter().filter_map(|format| format.gguf_id).collect();
    failures.check(ids.is_sorted(), || format!("ids are not in order: {ids:?}"));
}

/// Plain floats have no golden: their decoding is what IEEE 754 says, tried for every bit pattern (f32: a stride).
fn check_float_decode(format: &Format, failures: &mut Failures) {
    let expected: fn(u32) -> f32 = match format.name {
        "f32" => f32::from_bits,
        "f16" => |bits| half::f16::from_bits(bits as u16).to_f32(),
        "bf16" => |bits| half::bf16::from_bits(bits as u16).to_f32(),
        name => return failures.check(false, || format!("{name}: no definition to test against")),
    };
    let (last, stride) = if format.block_bytes == 4 { (u32::MAX, 65_521) } else { (0xffff, 1) };
    for bits in (0..=last).step_by(stride) {
        let found = decode(format, &bits.to_le_bytes()[..format.block_bytes])[0];
        failures.check(same(found, expected(bits)), || {
            format!("{} {bits:#x}: {found}, expected {}", format.name, expected(bits))
        });
    }
}

fn check_decode(
    format: &Format,
    source: &str,
    blocks: &Rows<u8>,
    values: &Rows<f32>,
    failures: &mut Failures,
) {
    for (row, (bytes, expected)) in blocks.iter().zip(values.iter()).enumerate() {
        let found = decode(format, bytes);
        let wrong = found.iter().zip(expected).position(|(&found, &expected)| !same(found, expected));
        failures.check(found.len() == expected.len() && wrong.is_none(), || {
            let column = wrong.unwrap_or(0);
            let (found, expected) = (found[column], expected[column]);
            format!("{} {source} row {row}, weight {column}: {found:e}, expected {expected:e}", format.name)
        });
    }
}

#[test]
fn rows_decode_to_the_bits_of_the_references() {
    let mut failures = Failures::default();
    let (ggml, fucina) =
        (Golden::open("ggml/decode.safetensors"), Golden::open("fucina/formats.safetensors"));
    for format in FORMATS {
        if is_plain_float(format) {
            check_float_decode(format, &mut failures);
            continue;
        }
        let mut goldens = 0;
        if let Some(name) = ggml_name(format)
            && let Some(blocks) = ggml.bytes(&format!("{name}.decode.blocks"))
        {
            let values = ggml.floats(&format!("{name}.decode.values")).unwrap();
            check_decode(format, "ggml", &blocks, &values, &mut failures);
            goldens += 1;
        }
        if let Some(name) = fucina_name(format)
            && let Some(blocks) = fucina.bytes(&format!("{name}.blocks"))
        {
            let values = fucina.floats(&format!("{name}.dequant")).unwrap();
            check_decode(format, "fucina", &blocks, &values, &mut failures);
            goldens += 1;
        }
        failures.check(goldens > 0, || format!("{}: no golden for its decoder", format.name));
    }
}

/// Whether `expected` is a block that may hold any codes: its scale is stored as 0, so that all of them mean 0, and
/// the reference computed them from a scale whose reciprocal overflows, which C and Zig leave undefined (Fucina), or
/// left them uninitialized (ggml's iq4_nl). Such a block is compared by its weights.
fn codes_are_arbitrary(format: &Format, source: &str, expected: &[u8]) -> bool {
    let formats: &[&str] = match source {
        "ggml" => &["q2_0_g64", "tq2_0", "iq4_nl"],
        _ => &["q4_0", "q5_0", "q8_0", "q8_1", "q8_k", "q2_0", "tq2_0"],
    };
    formats.contains(&format.name) && decode(format, expected).iter().all(|&weight| weight == 0.0)
}

fn check_encode(
    format: &Format,
    source: &str,
    row: usize,
    values: &[f32],
    expected: &[u8],
    failures: &mut Failures,
) {
    let found = quantize(format, Isa::Scalar, values);
    failures.check(found.len() == expected.len(), || format!("{} {source} row {row}: length", format.name));
    let blocks = found.chunks_exact(format.block_bytes).zip(expected.chunks_exact(format.block_bytes));
    for (block, (found, expected)) in blocks.enumerate() {
        let equal = if codes_are_arbitrary(format, source, expected) {
            decode(format, found).iter().all(|&weight| weight == 0.0)
        } else {
            found == expected
        };
        failures.check(equal, || {
            let byte = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
            let (found, expected) = (found[byte], expected[byte]);
            format!(
                "{} {source} row {row}, block {block}, byte {byte}: {found:#x}, expected {expected:#x}",
                format.name
            )
        });
    }
}

#[test]
fn encoders_write_the_bytes_of_the_references() {
    let mut failures = Failures::default();
    let (ggml, fucina) =
        (Golden::open("ggml/encode.safetensors"), Golden::open("fucina/formats.safetensors"));
    let ggml_inputs = ggml.floats("inputs").unwrap();
    let fucina_inputs = fucina.floats("enc.x").unwrap();
    for format in FORMATS.iter().filter(|format| format.has_encoder() && !is_plain_float(format)) {
        let mut goldens = 0;
        if let Some(name) = ggml_name(format)
            && let Some(expected) = ggml
                .bytes(&format!("{name}.encode.ref"))
                .or_else(|| ggml.bytes(&format!("{name}.encode.chunk")))
        {
            for (row, (values, expected)) in ggml_inputs.iter().zip(expected.iter()).enumerate() {
                check_encode(format, "ggml", row, values, expected, &mut failures);
            }
            goldens += 1;
        }
        if let Some(name) = fucina_name(format)
            && let Some(expected) = fucina.bytes(&format!("enc.{name}"))
        {
            let rows = expected.values.chunks_exact(format.bytes_for(fucina_inputs.columns).unwrap());
            for (row, (values, expected)) in fucina_inputs.iter().zip(rows).enumerate() {
                check_encode(format, "fucina", row, values, expected, &mut failures);
            }
            goldens += 1;
        }
        failures.check(goldens > 0, || format!("{}: no golden for its encoder", format.name));
    }
}

/// How far a dot may be from the exact product of the decoded weights and inputs, as a part of the sum of absolute
/// products.
fn dot_tolerance(format: &Format) -> f64 {
    match format.dot.as_ref().unwrap().input.name {
        // The stored sum of a block is a half: off by 2^-11 of min * sum, and the minimum of a block of Gaussian
        // weights is about 2.6 times their mean magnitude.
        "q8_1" => 2.6 / 2048.0,
        // Three roundings of 2^-24 a block, and one an addition: the reference itself stays below 1e-7.
        _ => 1e-6,
    }
}

/// The exact product, and the sum of its absolute terms.
fn exact_dot(format: &Format, weights: &[u8], input: &[u8]) -> (f64, f64) {
    let input = decode(format.dot.as_ref().unwrap().input, input);
    let weights = decode(format, weights);
    let terms = weights.iter().zip(&input).map(|(&w, &x)| f64::from(w) * f64::from(x));
    terms.fold((0.0, 0.0), |(sum, magnitude), term| (sum + term, magnitude + term.abs()))
}

fn check_ggml_dot(format: &Format, golden: &Golden, prefix: &str, failures: &mut Failures) -> bool {
    let Some(weights) = golden.bytes(&format!("{prefix}.weights")) else { return false };
    let activations = golden.floats(&format!("{prefix}.act_f32")).unwrap();
    let quantized = golden.bytes(&format!("{prefix}.act_q")).unwrap();
    let exact = golden.doubles(&format!("{prefix}.ref_f64")).unwrap();
    let magnitude = golden.doubles(&format!("{prefix}.abs_f64")).unwrap();
    let dot = format.row_dot(Isa::Scalar).unwrap();
    let input = format.dot.as_ref().unwrap().input;
    for (row, (weights, quantized)) in weights.iter().zip(quantized.iter()).enumerate() {
        let activations = activations.iter().nth(row).unwrap();
        failures.check(quantize(input, Isa::Scalar, activations) == quantized, || {
            format!("{prefix} row {row}: other activation bytes")
        });
        let found = f64::from(dot.call(weights, quantized));
        let (exact, magnitude) = (exact.values[row], magnitude.values[row]);
        failures.check((found - exact).abs() <= dot_tolerance(format) * magnitude, || {
            format!("{prefix} row {row}: {found:e}, expected {exact:e} within {magnitude:e} *")
        });
    }
    true
}

fn check_fucina_dot(format: &Format, golden: &Golden, name: &str, failures: &mut Failures) -> bool {
    let Some(products) = golden.floats(&format!("{name}.matmul")) else { return false };
    let weights = golden.bytes(&format!("{name}.blocks")).unwrap();
    let dot = format.row_dot(Isa::Scalar).unwrap();
    for (m, (x, products)) in golden.floats("x").unwrap().iter().zip(products.iter()).enumerate() {
        let input = quantize(format.dot.as_ref().unwrap().input, Isa::Scalar, x);
        for (n, (weights, &expected)) in weights.iter().zip(products).enumerate() {
            let found = dot.call(weights, &input);
            failures.check((found - expected).abs() <= 1e-5 * expected.abs(), || {
                format!("{name} fucina matmul [{m}, {n}]: {found:e}, expected {expected:e}")
            });
        }
    }
    true
}

#[test]
fn scalar_dots_agree_with_the_references() {
    let mut failures = Failures::default();
    let (ggml, fucina) = (Golden::open("ggml/dot.safetensors"), Golden::open("fucina/formats.safetensors"));
    for format in FORMATS.iter().filter(|format| format.dot.is_some() && !is_plain_float(format)) {
        let mut goldens = 0;
        if let Some(name) = ggml_name(format) {
            for k in [512, 1024] {
                let prefix = format!("{name}.dot.k{k}");
                goldens += usize::from(check_ggml_dot(format, &ggml, &prefix, &mut failures));
            }
        }
        if let Some(name) = fucina_name(format) {
            goldens += usize::from(check_fucina_dot(format, &fucina, name, &mut failures));
        }
        failures.check(goldens > 0, || format!("{}: no golden for its dot", format.name));
    }
}

#[test]
fn scalar_dots_are_the_products_of_decoded_numbers() {
    let mut failures = Failures::default();
    let mut rng = fastrand::Rng::with_seed(1);
    for format in FORMATS.iter().filter(|format| format.dot.is_some()) {
        let input = format.dot.as_ref().unwrap().input;
        let len = format.block_len.max(256) * 2;
        for case in 0..20 {
            // Encoded weights where that works: random bytes give minimums far larger than any weight.
            let weights = if format.has_encoder() {
                let values: Vec<f32> = (0..len).map(|_| gaussian(&mut rng)).collect();
                quantize(format, Isa::Scalar, &values)
            } else {
                random_blocks(format, len / format.block_len, &mut rng)
            };
            let values: Vec<f32> = (0..len).map(|_| gaussian(&mut rng)).collect();
            let inputs = quantize(input, Isa::Scalar, &values);
            let found = f64::from(format.row_dot(Isa::Scalar).unwrap().call(&weights, &inputs));
            let (exact, magnitude) = exact_dot(format, &weights, &inputs);
            failures.check((found - exact).abs() <= dot_tolerance(format) * magnitude, || {
                format!("{} case {case}: {found:e}, expected {exact:e} within {magnitude:e} *", format.name)
            });
        }
    }
}

/// Inputs that try every sign and the largest codes.
fn inputs(len: usize, rng: &mut fastrand::Rng) -> Vec<Vec<f32>> {
    vec![
        (0..len).map(|_| gaussian(rng)).collect(),
        (0..len).map(|_| gaussian(rng) * gaussian(rng).exp2().powi(8)).collect(),
        vec![1.0; len],
        vec![-1.0; len],
        (0..len).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect(),
        (0..len).map(|_| if rng.bool() { 1.0 } else { -1.0 }).collect(),
        vec![0.0; len],
    ]
}

fn check_arms(format: &Format, weights: &[u8], rng: &mut fastrand::Rng, failures: &mut Failures) {
    let dot = format.dot.as_ref().unwrap();
    let len = weights.len() / format.block_bytes * format.block_len;
    for (case, values) in inputs(len, rng).iter().enumerate() {
        let input = quantize(dot.input, Isa::Scalar, values);
        let expected = format.row_dot(Isa::Scalar).unwrap().call(weights, &input);
        for arm in dot.arms.iter().filter(|arm| arm.isa.is_available()) {
            let row_dot = format.row_dot(arm.isa).unwrap();
            assert_eq!(row_dot.isa(), arm.isa);
            let found = row_dot.call(weights, &input);
            failures.check(found.to_bits() == expected.to_bits(), || {
                let (name, isa) = (format.name, arm.isa.name());
                format!("{name} {isa}, {len} weights, case {case}: {found:e}, scalar {expected:e}")
            });
        }
    }
}

#[test]
fn arms_give_the_bits_of_the_scalar_dot() {
    let mut failures = Failures::default();
    let mut rng = fastrand::Rng::with_seed(2);
    let ggml = Golden::open("ggml/decode.safetensors");
    for format in FORMATS.iter().filter(|format| format.dot.is_some()) {
        // Blocks of the weights are at most as long as the inputs'.
        let unit = format.dot.as_ref().unwrap().input.block_len.div_ceil(format.block_len);
        for blocks in [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 33] {
            let weights = random_blocks(format, blocks * unit, &mut rng);
            check_arms(format, &weights, &mut rng, &mut failures);
        }
        // The reference's edge cases: all codes at their bounds, scales of every kind.
        if let Some(blocks) = ggml_name(format).and_then(|name| ggml.bytes(&format!("{name}.decode.blocks")))
        {
            check_arms(format, &blocks.values, &mut rng, &mut failures);
        }
    }
}

/// Numbers where rounding is decided: ties at an inverse scale of exactly 1, both zeros, the smallest and largest
/// floats, and what no activation should be.
fn hard_values(len: usize, largest: f32, rng: &mut fastrand::Rng) -> Vec<Vec<f32>> {
    let mut ties: Vec<f32> = (0..len).map(|_| rng.i32(-127..127) as f32 + 0.5).collect();
    ties.iter_mut().step_by(32).for_each(|value| *value = largest);
    let pick = |choices: &'static [f32], rng: &mut fastrand::Rng| -> Vec<f32> {
        (0..len).map(|_| choices[rng.usize(..choices.len())]).collect()
    };
    vec![
        ties,
        pick(&[0.0, -0.0], rng),
        pick(&[127.0, -127.0, 0.499_999_97, -0.499_999_97, 0.5, -0.5, 1.5, 2.5, 0.0, -0.0], rng),
        pick(&[1e-40, -1e-40, 1e-45, 0.0], rng),
        pick(&[f32::MAX, f32::MIN, 1.0, 0.0], rng),
        pick(&[f32::NAN, 1.0, -2.0, 0.3], rng),
        pick(&[f32::INFINITY, f32::NEG_INFINITY, 1.0, 0.0], rng),
        (0..len).map(|_| f32::from_bits(rng.u32(..))).collect(),
    ]
}

#[test]
fn quantizers_write_the_bytes_of_the_scalar_encoder() {
    let mut failures = Failures::default();
    let mut rng = fastrand::Rng::with_seed(3);
    for format in FORMATS.iter().filter(|format| format.has_encoder()) {
        for blocks in [0, 1, 2, 3, 5, 16] {
            let len = blocks * format.block_len;
            let mut cases = inputs(len, &mut rng);
            for largest in [127.0, -127.0] {
                cases.extend(hard_values(len, largest, &mut rng));
            }
            for (case, values) in cases.iter().enumerate() {
                let expected = quantize(format, Isa::Scalar, values);
                for isa in Isa::available() {
                    let found = quantize(format, isa, values);
                    let byte = found.iter().zip(&expected).position(|(a, b)| a != b);
                    failures.check(byte.is_none(), || {
                        format!("{} {}, {len} values, case {case}: byte {byte:?}", format.name, isa.name())
                    });
                }
            }
        }
    }
}

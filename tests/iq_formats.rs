//! The IQ, ternary, FP4 and 1- and 2-bit formats against data of their reference implementations, and every
//! instruction set against the scalar one. Golden files: see `tests/data/ggml` and `tests/data/fucina`.

use std::path::Path;

use bytemuck::{Pod, pod_read_unaligned};
use hadal::quant::{Dot, Format};
use hadal::simd::Isa;
use safetensors::SafeTensors;

/// Our name, and the name in ggml's golden files, where Q2_0 is the layout with 64 weights to a block.
const FORMATS: [(&str, Option<&str>); 16] = [
    ("iq2_xxs", Some("iq2_xxs")),
    ("iq2_xs", Some("iq2_xs")),
    ("iq3_xxs", Some("iq3_xxs")),
    ("iq1_s", Some("iq1_s")),
    ("iq4_nl", Some("iq4_nl")),
    ("iq3_s", Some("iq3_s")),
    ("iq2_s", Some("iq2_s")),
    ("iq4_xs", Some("iq4_xs")),
    ("iq1_m", Some("iq1_m")),
    ("tq1_0", Some("tq1_0")),
    ("tq2_0", Some("tq2_0")),
    ("mxfp4", Some("mxfp4")),
    ("nvfp4", Some("nvfp4")),
    ("q1_0", Some("q1_0")),
    ("q2_0", None),
    ("q2_0_g64", Some("q2_0")),
];

/// Of the sum of absolute products. Integers are exact, so what is left is the rounding of one f32 sum of up to 32
/// terms: at most 35 * 2^-24 = 2.1e-6 in theory, an order less for errors that do not all point one way.
const DOT_TOLERANCE: f64 = 1e-6;

struct Golden(Vec<u8>);

impl Golden {
    fn open(name: &str) -> Golden {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        Golden(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    fn get<T: Pod>(&self, name: &str) -> Vec<T> {
        let file = SafeTensors::deserialize(&self.0).expect("a golden file");
        let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        tensor.data().chunks_exact(size_of::<T>()).map(pod_read_unaligned).collect()
    }
}

/// Runs all cases, then reports all failures.
#[derive(Default)]
struct Report(Vec<String>);

impl Report {
    fn check(&mut self, ok: bool, message: impl FnOnce() -> String) {
        if !ok {
            self.0.push(message());
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{} failures:\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}

fn format(name: &str) -> &'static Format {
    Format::by_name(name).unwrap_or_else(|| panic!("no format {name}"))
}

fn decode(format: &Format, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / format.block_bytes * format.block_len];
    format.decode(bytes, &mut values).expect("whole blocks");
    values
}

fn encode(format: &Format, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; format.bytes_for(values.len()).expect("whole blocks")];
    format.encode(values, &mut bytes).expect("finite values");
    bytes
}

fn dot_of(format: &'static Format) -> &'static Dot {
    format.dot.as_ref().unwrap_or_else(|| panic!("{} has no dot", format.name))
}

fn dot(format: &'static Format, isa: Isa, weights: &[u8], input: &[u8]) -> f32 {
    format.row_dot(isa).unwrap_or_else(|| panic!("{} has no dot", format.name)).call(weights, input)
}

#[test]
fn decodes_to_the_references_bits() {
    let (ggml, fucina) =
        (Golden::open("ggml/decode.safetensors"), Golden::open("fucina/formats.safetensors"));
    let mut report = Report::default();
    for (name, in_ggml) in FORMATS {
        let mut compare = |source: &str, blocks: Vec<u8>, expected: Vec<f32>| {
            let found = decode(format(name), &blocks);
            report
                .check(found.len() == expected.len(), || format!("{name} {source}: {} values", found.len()));
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                report.check(found.to_bits() == expected.to_bits(), || {
                    format!("{name} {source}: element {i} is {found:e}, expected {expected:e}")
                });
            }
        };
        if let Some(golden) = in_ggml {
            let of = |what: &str| format!("{golden}.decode.{what}");
            compare("ggml", ggml.get(&of("blocks")), ggml.get(&of("values")));
        }
        if name != "q2_0_g64" {
            compare("fucina", fucina.get(&format!("{name}.blocks")), fucina.get(&format!("{name}.dequant")));
        }
    }
}

#[test]
fn dots_agree_with_the_exact_sum_of_ggml() {
    let golden = Golden::open("ggml/dot.safetensors");
    let mut report = Report::default();
    for (name, in_ggml) in FORMATS {
        let Some(in_ggml) = in_ggml else { continue };
        for k in [512, 1024] {
            let of = |what: &str| format!("{in_ggml}.dot.k{k}.{what}");
            let (weights, inputs): (Vec<u8>, Vec<u8>) =
                (golden.get(&of("weights")), golden.get(&of("act_q")));
            let (exact, scale): (Vec<f64>, Vec<f64>) =
                (golden.get(&of("ref_f64")), golden.get(&of("abs_f64")));
            let row = weights.chunks_exact(weights.len() / exact.len());
            let input = inputs.chunks_exact(inputs.len() / exact.len());
            for (i, (row, input)) in row.zip(input).enumerate() {
                let found = dot(format(name), Isa::Scalar, row, input);
                report.check((f64::from(found) - exact[i]).abs() <= DOT_TOLERANCE * scale[i], || {
                    format!("{name} k {k} row {i}: {found:e}, expected {:e} of {:e}", exact[i], scale[i])
                });
            }
        }
    }
}

#[test]
fn dots_agree_with_fucina() {
    let golden = Golden::open("fucina/formats.safetensors");
    let x: Vec<f32> = golden.get("x");
    let mut report = Report::default();
    for (name, _) in FORMATS {
        if name == "q2_0_g64" {
            continue;
        }
        let format = format(name);
        let weights: Vec<u8> = golden.get(&format!("{name}.blocks"));
        let expected: Vec<f32> = golden.get(&format!("{name}.matmul"));
        let k = 256;
        let rows = weights.len() / format.bytes_for(k).unwrap();
        for (i, expected) in expected.iter().enumerate() {
            let input = encode(dot_of(format).input, &x[i / rows * k..][..k]);
            let row = weights.chunks_exact(weights.len() / rows).nth(i % rows).unwrap();
            let found = dot(format, Isa::Scalar, row, &input);
            // Fucina's order of float operations is ours for these two; elsewhere its groups add up differently.
            let tolerance = if ["q2_0", "tq2_0"].contains(&name) { 0.0 } else { 1e-5 * expected.abs() };
            report.check((found - expected).abs() <= tolerance, || {
                format!("{name} input {} row {}: {found:e}, expected {expected:e}", i / rows, i % rows)
            });
        }
    }
}

#[test]
fn encodes_to_the_references_bytes() {
    let (ggml, fucina) =
        (Golden::open("ggml/encode.safetensors"), Golden::open("fucina/formats.safetensors"));
    let (ggml_inputs, fucina_inputs): (Vec<f32>, Vec<f32>) = (ggml.get("inputs"), fucina.get("enc.x"));
    let mut report = Report::default();
    let mut compare = |name: &str, source: &str, inputs: &[f32], expected: Vec<u8>| {
        let format = format(name);
        let found = encode(format, inputs);
        report.check(found.len() == expected.len(), || format!("{name} {source}: {} bytes", found.len()));
        let blocks = found.chunks_exact(format.block_bytes).zip(expected.chunks_exact(format.block_bytes));
        for (i, (found, expected)) in blocks.enumerate() {
            // ggml leaves the nibbles of a block with scale 0 uninitialized: IQ4_NL's are garbage in the file.
            let garbage = name == "iq4_nl" && expected[..2] == [0, 0];
            let same = if garbage { decode(format, found) == [0.0; 32] } else { found == expected };
            report.check(same, || format!("{name} {source} block {i}: {found:?}, expected {expected:?}"));
        }
    };
    for (name, in_ggml) in FORMATS {
        if let (true, Some(golden)) = (format(name).has_encoder(), in_ggml) {
            compare(name, "ggml", &ggml_inputs, ggml.get(&format!("{golden}.encode.ref")));
        }
    }
    for name in ["q2_0", "tq2_0"] {
        compare(name, "fucina", &fucina_inputs, fucina.get(&format!("enc.{name}")));
    }
}

/// Random bytes as weights, finite or not, on inputs from the encoder and on random ones.
#[test]
fn instruction_sets_give_the_same_bits() {
    let mut report = Report::default();
    let mut random = fastrand::Rng::with_seed(7);
    let mut compared = 0;
    for (name, _) in FORMATS {
        let format = format(name);
        let input_format = dot_of(format).input;
        let mut bytes = |format: &Format, len| -> Vec<u8> {
            let count = format.bytes_for(len).expect("whole blocks");
            std::iter::repeat_with(|| random.u8(..)).take(count).collect()
        };
        for case in 0..200 {
            let k = 256 * (1 + case % 5);
            let weights = bytes(format, k);
            let mut input = bytes(input_format, k);
            if case % 2 == 0 {
                let values: Vec<f32> = (0..k).map(|i| f32::from(input[i] as i8) * 0.01).collect();
                input = encode(input_format, &values);
            }
            let expected = dot(format, Isa::Scalar, &weights, &input);
            for isa in Isa::available().filter(|&isa| format.row_dot(isa).is_some_and(|dot| dot.isa() == isa))
            {
                let found = dot(format, isa, &weights, &input);
                let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                report
                    .check(same, || format!("{name} case {case} {isa:?}: {found:e}, expected {expected:e}"));
                compared += usize::from(isa != Isa::Scalar);
            }
        }
    }
    println!("{compared} dots compared");
}

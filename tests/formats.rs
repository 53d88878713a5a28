//! The layout of every row of `FORMATS`, decoded and encoded, against data from the reference implementations. The tests
//! iterate the table and find their goldens by the row's name, so that a row without one fails.

#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::collections::HashSet;

use hadal::quant::{FORMATS, Format};
use hadal::simd::Isa;

#[path = "support/golden.rs"]
mod golden;
#[path = "support/mlx.rs"]
mod mlx;

use golden::{
    Failures, Golden, Rows, decode, fucina_name, ggml_name, is_ours, is_plain_float, quantize, same,
};
use mlx::Mlx;

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
    for format in FORMATS.iter().filter(|format| !is_ours(format)) {
        if is_plain_float(format) {
            check_float_decode(format, &mut failures);
            continue;
        }
        let mut goldens = 0;
        if let Some(name) = ggml_name(format)
            && let Some(blocks) = ggml.find::<u8>(&format!("{name}.decode.blocks"))
        {
            let values = ggml.get::<f32>(&format!("{name}.decode.values"));
            check_decode(format, "ggml", &blocks, &values, &mut failures);
            goldens += 1;
        }
        if let Some(name) = fucina_name(format)
            && let Some(blocks) = fucina.find::<u8>(&format!("{name}.blocks"))
        {
            let values = fucina.get::<f32>(&format!("{name}.dequant"));
            check_decode(format, "fucina", &blocks, &values, &mut failures);
            goldens += 1;
        }
        if let Some(golden) = Mlx::of(format) {
            check_decode(format, "mlx", &golden.blocks, &golden.values, &mut failures);
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
    check_bytes(format, source, row, &quantize(format, Isa::Scalar, values), expected, failures);
}

fn check_bytes(
    format: &Format,
    source: &str,
    row: usize,
    found: &[u8],
    expected: &[u8],
    failures: &mut Failures,
) {
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

/// Formats whose encoder searches in its own way: not the reference's bytes, but less error.
const SEARCHED: &[&str] = &["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"];

fn is_searched(format: &Format) -> bool {
    SEARCHED.contains(&format.name)
}

/// Errors counted as the reference's quantizer does: by importance, and more for large values; of each row.
#[test]
fn searches_err_no_more_than_the_reference() {
    let mut failures = Failures::default();
    let golden = Golden::open("ggml/encode.safetensors");
    let (inputs, imatrix) = (golden.get::<f32>("inputs"), golden.get::<f32>("imatrix").values);
    for format in FORMATS.iter().filter(|format| is_searched(format)) {
        let reference = golden.get::<u8>(&format!("{}.encode.imatrix", format.name));
        let error = |values: &[f32], bytes: &[u8]| -> f64 {
            let blocks = values.chunks_exact(256).flat_map(|block| {
                let energy = block.iter().map(|x| f64::from(x * x)).sum::<f64>() / 256.0;
                block.iter().map(move |x| (f64::from(x * x) + energy).sqrt())
            });
            let weights = blocks.zip(&imatrix).map(|(size, &column)| size * f64::from(column));
            let decoded = decode(format, bytes);
            weights.zip(values.iter().zip(decoded)).map(|(w, (x, y))| w * f64::from(x - y).powi(2)).sum()
        };
        for (row, (values, reference)) in inputs.iter().zip(reference.iter()).enumerate() {
            let mut found = vec![0; reference.len()];
            format.encode_for_file(values, Some(&imatrix), &mut found).unwrap();
            let (own, reference) = (error(values, &found), error(values, reference));
            failures.check(own <= reference, || {
                format!("{} row {row}: error {own:e}, the reference's {reference:e}", format.name)
            });
        }
    }
}

#[test]
fn encoders_write_the_bytes_of_the_references() {
    let mut failures = Failures::default();
    let (ggml, fucina) =
        (Golden::open("ggml/encode.safetensors"), Golden::open("fucina/formats.safetensors"));
    let ggml_inputs = ggml.get::<f32>("inputs");
    let fucina_inputs = fucina.get::<f32>("enc.x");
    let exact = |format: &&&Format| {
        format.has_encoder() && !is_plain_float(format) && !is_searched(format) && !is_ours(format)
    };
    for format in FORMATS.iter().filter(exact) {
        let mut goldens = 0;
        if let Some(name) = ggml_name(format)
            && let Some(expected) = ggml
                .find::<u8>(&format!("{name}.encode.ref"))
                .or_else(|| ggml.find::<u8>(&format!("{name}.encode.chunk")))
        {
            for (row, (values, expected)) in ggml_inputs.iter().zip(expected.iter()).enumerate() {
                check_encode(format, "ggml", row, values, expected, &mut failures);
            }
            goldens += 1;
        }
        if let Some(name) = fucina_name(format)
            && let Some(expected) = fucina.find::<u8>(&format!("enc.{name}"))
        {
            let rows = expected.values.chunks_exact(format.bytes_for(fucina_inputs.columns).unwrap());
            for (row, (values, expected)) in fucina_inputs.iter().zip(rows).enumerate() {
                check_encode(format, "fucina", row, values, expected, &mut failures);
            }
            goldens += 1;
        }
        if let Some(golden) = Mlx::of(format) {
            for (row, (values, expected)) in golden.weights.iter().zip(golden.blocks.iter()).enumerate() {
                check_encode(format, "mlx", row, values, expected, &mut failures);
            }
            goldens += 1;
        }
        failures.check(goldens > 0, || format!("{}: no golden for its encoder", format.name));
    }
}

/// What ggml's quantizer of files makes, with an importance matrix and without.
#[test]
fn files_have_the_bytes_of_the_reference() {
    let mut failures = Failures::default();
    let golden = Golden::open("ggml/encode.safetensors");
    let (inputs, imatrix) = (golden.get::<f32>("inputs"), golden.get::<f32>("imatrix").values);
    let mut found_goldens = 0;
    for format in FORMATS.iter().filter(|format| format.has_encoder() && !is_searched(format)) {
        let Some(name) = ggml_name(format) else { continue };
        for (kind, importance) in [("imatrix", Some(&imatrix[..])), ("chunk", None)] {
            let Some(expected) = golden.find::<u8>(&format!("{name}.encode.{kind}")) else { continue };
            found_goldens += 1;
            for (row, (values, expected)) in inputs.iter().zip(expected.iter()).enumerate() {
                let mut found = vec![0; expected.len()];
                format.encode_for_file(values, importance, &mut found).unwrap();
                check_bytes(format, kind, row, &found, expected, &mut failures);
            }
        }
    }
    failures.check(found_goldens > 15, || format!("{found_goldens} goldens"));
}

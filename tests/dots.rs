//! The dot of every row of `FORMATS` against data from the reference implementations, and every vector version, of dots
//! and of the quantizers of their inputs, against the scalar one.

#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use hadal::quant::panel::Scratch;
use hadal::quant::{FORMATS, Format};
use hadal::simd::Isa;

#[path = "support/golden.rs"]
mod golden;
#[path = "support/mlx.rs"]
mod mlx;

use golden::{Failures, Golden, decode, fucina_name, ggml_name, is_ours, is_plain_float, quantize, same};
use mlx::Mlx;

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
    let Some(weights) = golden.find::<u8>(&format!("{prefix}.weights")) else { return false };
    let activations = golden.get::<f32>(&format!("{prefix}.act_f32"));
    let quantized = golden.get::<u8>(&format!("{prefix}.act_q"));
    let exact = golden.get::<f64>(&format!("{prefix}.ref_f64"));
    let magnitude = golden.get::<f64>(&format!("{prefix}.abs_f64"));
    let dot = format.row_dot(Isa::Scalar).unwrap();
    let input = format.dot.as_ref().unwrap().input;
    for (row, (weights, quantized)) in weights.iter().zip(quantized.iter()).enumerate() {
        let activations = activations.iter().nth(row).unwrap();
        failures.check(quantize(input, Isa::Scalar, activations) == quantized, || {
            format!("{prefix} row {row}: other activation bytes")
        });
        let found = f64::from(dot.call(weights, quantized));
        let (exact, magnitude) = (exact.values[row], magnitude.values[row]);
        let limit = dot_tolerance(format) * magnitude;
        failures.check((found - exact).abs() <= limit, || {
            format!("{prefix} row {row}: {found:e}, expected {exact:e} within {limit:e}")
        });
    }
    true
}

fn check_fucina_dot(format: &Format, golden: &Golden, name: &str, failures: &mut Failures) -> bool {
    let Some(products) = golden.find::<f32>(&format!("{name}.matmul")) else { return false };
    let weights = golden.get::<u8>(&format!("{name}.blocks"));
    let dot = format.row_dot(Isa::Scalar).unwrap();
    for (m, (x, products)) in golden.get::<f32>("x").iter().zip(products.iter()).enumerate() {
        let input = quantize(format.dot.as_ref().unwrap().input, Isa::Scalar, x);
        for (n, (weights, &expected)) in weights.iter().zip(products).enumerate() {
            let found = dot.call(weights, &input);
            // Fucina's own kernels differ by 1e-5 of the result, and by rounding where the terms cancel.
            let limit = 1e-5 * f64::from(expected.abs()) + 1e-7 * exact_dot(format, weights, &input).1;
            failures.check(f64::from((found - expected).abs()) <= limit, || {
                format!("{name} fucina matmul [{m}, {n}]: {found:e}, expected {expected:e} within {limit:e}")
            });
        }
    }
    true
}

/// MLX multiplies f32 inputs: what their rounding to 8 bits may cost is half a step of the largest of each 32 inputs, and
/// the sum of those is a half.
fn check_mlx_dot(format: &Format, golden: &Mlx, failures: &mut Failures) {
    let input = format.dot.as_ref().unwrap().input;
    let dot = format.row_dot(Isa::Scalar).unwrap();
    for (m, (x, products)) in golden.inputs.iter().zip(golden.products.iter()).enumerate() {
        let quantized = quantize(input, Isa::Scalar, x);
        let rounded = decode(input, &quantized);
        for (n, (weights, &expected)) in golden.blocks.iter().zip(products).enumerate() {
            let found = f64::from(dot.call(weights, &quantized));
            let (_, magnitude) = exact_dot(format, weights, &quantized);
            let weights = decode(format, weights);
            let lost: f64 = weights
                .iter()
                .zip(x.iter().zip(&rounded))
                .map(|(w, (x, r))| f64::from(w * (x - r)).abs())
                .sum();
            // Zeros are codes of a scale of 1e-7, of which 8 bits take 128 off and add them again.
            let limit = lost + dot_tolerance(format) * magnitude + 1e-6;
            failures.check((found - f64::from(expected)).abs() <= limit, || {
                format!("{} mlx [{m}, {n}]: {found:e}, expected {expected:e} within {limit:e}", format.name)
            });
        }
    }
}

#[test]
fn scalar_dots_agree_with_the_references() {
    let mut failures = Failures::default();
    let (ggml, fucina) = (Golden::open("ggml/dot.safetensors"), Golden::open("fucina/formats.safetensors"));
    let foreign = |format: &Format| !is_plain_float(format) && !is_ours(format);
    for format in FORMATS.iter().filter(|format| format.dot.is_some() && foreign(format)) {
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
        if let Some(golden) = Mlx::of(format) {
            check_mlx_dot(format, &golden, &mut failures);
            goldens += 1;
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
            // Encoded weights where that works: random bytes give minimums far larger than any weight. Trellis codes have none, and
            // their encoder takes minutes where machines are emulated.
            let weights = if format.has_encoder() && !format.name.starts_with("trellis") {
                let values: Vec<f32> = (0..len).map(|_| gaussian(&mut rng)).collect();
                quantize(format, Isa::Scalar, &values)
            } else {
                random_blocks(format, len / format.block_len, &mut rng)
            };
            let values: Vec<f32> = (0..len).map(|_| gaussian(&mut rng)).collect();
            let inputs = quantize(input, Isa::Scalar, &values);
            let found = f64::from(format.row_dot(Isa::Scalar).unwrap().call(&weights, &inputs));
            let (exact, magnitude) = exact_dot(format, &weights, &inputs);
            let limit = dot_tolerance(format) * magnitude;
            failures.check((found - exact).abs() <= limit, || {
                format!("{} case {case}: {found:e}, expected {exact:e} within {limit:e}", format.name)
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

/// `rows` are of one length.
fn check_arms(format: &Format, rows: [&[u8]; 4], rng: &mut fastrand::Rng, failures: &mut Failures) {
    let dot = format.dot.as_ref().unwrap();
    let len = rows[0].len() / format.block_bytes * format.block_len;
    let scalar = format.row_dot(Isa::Scalar).unwrap();
    for (case, values) in inputs(len, rng).iter().enumerate() {
        let input = quantize(dot.input, Isa::Scalar, values);
        let expected = rows.map(|row| scalar.call(row, &input));
        for arm in dot.arms.iter().filter(|arm| arm.isa.is_available()) {
            let row_dot = format.row_dot(arm.isa).unwrap();
            assert_eq!(row_dot.isa(), arm.isa);
            let (together, alone) = (row_dot.rows4(rows, &input), rows.map(|row| row_dot.call(row, &input)));
            let right = (0..4).all(|i| same(together[i], expected[i]) && same(alone[i], expected[i]));
            failures.check(right, || {
                let (name, isa) = (format.name, arm.isa.name());
                format!("{name} {isa}, {len} weights, case {case}: {alone:?}, together {together:?}, scalar {expected:?}")
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
            let rows = [(); 4].map(|()| random_blocks(format, blocks * unit, &mut rng));
            check_arms(format, rows.each_ref().map(|row| &row[..]), &mut rng, &mut failures);
        }
        // The reference's edge cases: all codes at their bounds, scales of every kind.
        if let Some(blocks) =
            ggml_name(format).and_then(|name| ggml.find::<u8>(&format!("{name}.decode.blocks")))
        {
            check_arms(format, [&blocks.values; 4], &mut rng, &mut failures);
        }
    }
}

/// Rows and columns that fill panels and tiles, and that leave a rest of each.
#[test]
fn many_inputs_at_once_give_the_bits_of_the_scalar_dot() {
    let mut failures = Failures::default();
    let mut rng = fastrand::Rng::with_seed(5);
    let mut scratch = Scratch::default();
    for format in FORMATS.iter().filter(|format| format.dot.is_some()) {
        let input = format.dot.as_ref().unwrap().input;
        // Odd numbers of columns where blocks allow it.
        let unit = input.block_len.max(format.block_len).max(13);
        for (rows, columns, tokens) in
            [(1, 1, 1), (3, 3, 2), (16, 8, 3), (17, 1, 4), (64, 9, 5), (50, 2, 7), (33, 5, 6)]
        {
            let columns = columns * unit;
            let weights = random_blocks(format, rows * columns / format.block_len, &mut rng);
            let values: Vec<f32> = (0..tokens * columns)
                .map(|i| if i % 97 < 5 { 1.0 } else { gaussian(&mut rng) * gaussian(&mut rng).exp2() })
                .collect();
            let blocks = quantize(input, Isa::Scalar, &values);
            let (row_bytes, block_bytes) = (weights.len() / rows, blocks.len() / tokens);
            let scalar = format.row_dot(Isa::Scalar).unwrap();
            for isa in Isa::available() {
                let Some(multiply) = format.multiply(isa) else { continue };
                let mut inputs = multiply.prepare(tokens, columns);
                inputs.runs_mut().for_each(|mut run| run.fill(&blocks));
                multiply.run(&weights, &inputs, &mut scratch, |token, dots| {
                    for (row, &found) in dots.iter().enumerate() {
                        let expected = scalar
                            .call(&weights[row * row_bytes..][..row_bytes], &blocks[token * block_bytes..][..block_bytes]);
                        failures.check(same(found, expected), || {
                            let (name, isa) = (format.name, isa.name());
                            format!("{name} {isa} {rows}x{columns} [{row}, {token}]: {found:e}, scalar {expected:e}")
                        });
                    }
                });
            }
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
    // What inputs become: for others there is one encoder, and some search for seconds.
    let is_input = |format: &Format| {
        FORMATS.iter().filter_map(|row| row.dot.as_ref()).any(|dot| std::ptr::eq(dot.input, format))
    };
    for format in FORMATS.iter().filter(|format| is_input(format)) {
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

//! Trellis codes: those that are published against the seed's numbers (`tests/data/mlx/trellis_*`), the storage of MLX's
//! files, and how much the blocks of our own lose.

#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use hadal::backend::cpu::pool::Pool;
use hadal::quant::trellis;
use hadal::quant::trellis::codec::{Code, Trellis};
use hadal::quant::{FORMATS, Format};
use hadal::quantize::Feedback;
use hadal::simd::Isa;
use half::{bf16, f16};

#[path = "support/golden.rs"]
mod golden;
use golden::{Failures, Golden, decode, is_ours, quantize};

/// Weights of a block.
const BLOCK: usize = 256;

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Gaussian numbers, by Box and Muller.
fn gaussian(seed: u64, count: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut one = || {
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        (radius * (2.0 * std::f64::consts::PI * random.f64()).cos()) as f32
    };
    (0..count).map(|_| one()).collect()
}

fn ldlq(hessian: &[f64], columns: usize, block: usize) -> Option<Feedback> {
    Feedback::ldlq(&Pool::new(2).unwrap(), hessian, columns, block)
}

fn mean_square(found: &[f32], expected: &[f32]) -> f64 {
    let squares = found.iter().zip(expected).map(|(a, b)| f64::from(a - b).powi(2));
    squares.sum::<f64>() / expected.len() as f64
}

#[test]
fn published_codes_have_the_published_values() {
    let golden = Golden::open("mlx/trellis_codes.safetensors");
    let values = |name: &str| golden.get::<f32>(name).values;
    assert_eq!(bits(&Code::OneMad.values(12)), bits(&values("lut1mad.L12")));
    assert_eq!(bits(&Code::TwoMad.values(12)), bits(&values("lut2mad.L12")));
    assert_eq!(bits(&Code::ThreeInst.values(12)), bits(&values("lut3inst.L12")));
    // Logarithms and cosines of another library.
    let random = Code::Random.values(12);
    for (state, (found, expected)) in random.iter().zip(values("lut_rptc_c0ffee.L12")).enumerate() {
        assert!((found - expected).abs() <= 2e-7 * expected.abs().max(1.0), "{state}: {found} {expected}");
    }
    let sums = |values: &[f32]| -> Vec<i16> {
        values.iter().map(|value| (f64::from(*value) * 147.800_537_109_375).round() as i16).collect()
    };
    assert_eq!(sums(&Code::OneMad.values(12)), golden.get::<i16>("y1mad.L12").values);
    let long = sums(&Code::OneMad.values(16));
    assert_eq!(long[..8192], golden.get::<i16>("y1mad.L16.first8192").values);
    assert_eq!(long[65536 - 4096..], golden.get::<i16>("y1mad.L16.last4096").values);
}

#[test]
fn words_hold_the_states_in_reversed_time() {
    let golden = Golden::open("mlx/trellis_decode.safetensors");
    for k in 1..=4u32 {
        let trellis = Trellis::new(Code::OneMad, k, 12).unwrap();
        let words = golden.get::<u32>(&format!("k{k}.codes"));
        let states = golden.get::<u16>(&format!("k{k}.states"));
        let scales = golden.get::<f16>(&format!("k{k}.scales")).values;
        let stored = golden.get::<bf16>(&format!("k{k}.stored_bf16"));
        for (row, words) in words.iter().enumerate() {
            let expected = states.iter().nth(row).unwrap();
            assert_eq!(trellis.unpack(words, BLOCK), expected, "k{k} row {row}");
            assert_eq!(trellis.pack(expected, BLOCK), words, "k{k} row {row}");
            let value = |&state: &u16| trellis.values()[usize::from(state)] * scales[row].to_f32();
            let found: Vec<_> = expected.iter().map(|state| bf16::from_f32(value(state))).collect();
            assert_eq!(found, stored.iter().nth(row).unwrap(), "k{k} row {row}");
        }
    }
}

#[test]
fn paths_are_as_near_as_the_reference_s_and_bite_their_tail() {
    let golden = Golden::open("mlx/trellis_encode.safetensors");
    let scales = golden.get::<f16>("scales").values;
    let rows = golden.get::<f32>("w");
    let blocks: Vec<Vec<f32>> = rows
        .iter()
        .zip(&scales)
        .flat_map(|(row, scale)| {
            let scaled: Vec<f32> = row.iter().map(|value| value / scale.to_f32()).collect();
            scaled.chunks(BLOCK).map(<[f32]>::to_vec).collect::<Vec<_>>()
        })
        .collect();
    for k in 1..=4u32 {
        let trellis = Trellis::new(Code::OneMad, k, 12).unwrap();
        let values = |states: &[u16]| -> Vec<f32> {
            states.iter().map(|state| trellis.values()[usize::from(*state)]).collect()
        };
        let expected = golden.get::<f32>(&format!("k{k}.mse")).values;
        for (block, expected) in blocks.iter().zip(&expected) {
            let states = trellis.encode(block);
            let mean = mean_square(&values(&states), block);
            assert!((mean / f64::from(*expected) - 1.0).abs() < 1e-3, "k{k}: {mean}, expected {expected}");
            let before = states[BLOCK - 1..].iter().chain(&states);
            for (t, (before, state)) in before.zip(&states).enumerate() {
                assert_eq!(before & ((1 << (12 - k)) - 1), state >> k, "k{k} at {t}");
            }
        }
        let Some(expected) = golden.find::<f32>(&format!("k{k}.free.mse")) else { continue };
        for (block, expected) in blocks.iter().zip(&expected.values) {
            let mean = mean_square(&values(&trellis.encode_free(block)), block);
            assert!((mean / f64::from(*expected) - 1.0).abs() < 1e-3, "k{k} free: {mean}, {expected}");
        }
    }
}

#[test]
fn a_trellis_of_no_use_is_refused() {
    for (bits, state_bits) in [(0, 12), (5, 12), (4, 4), (3, 17)] {
        assert!(Trellis::new(Code::OneMad, bits, state_bits).is_err(), "{bits} {state_bits}");
    }
}

fn rows() -> impl Iterator<Item = (u32, &'static Format)> {
    let ours = FORMATS.iter().filter(|format| is_ours(format));
    ours.map(|format| (format.name[format.name.len() - 1..].parse().unwrap(), *format))
}

/// What QTIP's 1MAD loses of Gaussian numbers at 12 bits a state (spec 8.4), k from 1 to 4. The scale of our blocks is
/// their own, which makes it less.
#[test]
fn blocks_lose_no_more_than_the_published_code() {
    const LOST: [f64; 4] = [0.2860, 0.0747, 0.0197, 0.0055];
    let weights = gaussian(3, 200 * BLOCK);
    for (k, format) in rows() {
        assert_eq!(format.bits_per_weight(), f64::from(k) + 1.0 / 16.0);
        let found = decode(format, &quantize(format, Isa::Scalar, &weights));
        let lost = mean_square(&found, &weights);
        // With two weights a state, four bits have less to choose from.
        let limit = LOST[k as usize - 1] * if k == 4 { 1.05 } else { 1.01 };
        assert!(lost < limit, "{}: {lost:.5}, limit {limit:.5}", format.name);
    }
}

/// The encoder in whole numbers against the plain one with floats, both with the code of our blocks.
#[test]
fn whole_numbers_find_paths_as_near_as_floats() {
    let weights = gaussian(5, 32 * BLOCK);
    let mut failures = Failures::default();
    for (k, format) in rows() {
        let plain_trellis = Trellis::new(Code::Pairs, k, 14).unwrap();
        let (mut plain, mut fast) = (0.0, 0.0);
        for weights in weights.chunks(BLOCK) {
            // In the order of the path, whose last pair is coded first.
            let pairs = (0..BLOCK / 2).rev().map(|pair| pair % 8 * 32 + pair / 8 * 2);
            let block: Vec<f32> = pairs.flat_map(|first| [weights[first], weights[first + 1]]).collect();
            let scale = trellis::scale(k as usize, weights);
            let scaled: Vec<f32> = block.iter().map(|value| value / scale).collect();
            let states = plain_trellis.encode(&scaled);
            let codes: Vec<f32> = states
                .iter()
                .flat_map(|state| &plain_trellis.values()[2 * usize::from(*state)..][..2])
                .copied()
                .collect();
            // The scale that suits the codes best, as the encoder of blocks takes it.
            let products: f64 = codes.iter().zip(&block).map(|(c, w)| f64::from(*c) * f64::from(*w)).sum();
            let best = f16::from_f64(products / mean_square(&codes, &[0.0; BLOCK]) / BLOCK as f64).to_f32();
            let decoded: Vec<f32> = codes.iter().map(|code| code * best).collect();
            plain += mean_square(&decoded, &block);
            fast += mean_square(&decode(format, &quantize(format, Isa::Scalar, weights)), weights);
        }
        // What the shorter search through the seam and inputs of 8 bits, cut at 63.5 codes, lose: 1.2 % at k = 3, 1.7 % at k = 4.
        let limit = 1.02;
        failures.check(fast < plain * limit, || format!("{}: {fast}, plainly {plain}", format.name));
    }
}

/// Weights with what makes sums large: outliers, and pairs as far from all codes as can be.
#[test]
fn every_instruction_set_finds_the_same_paths() {
    fn check<const K: usize>(weights: &[f32]) {
        let expected = trellis::paths::<K>(Isa::Scalar, weights);
        for isa in Isa::available() {
            assert!(trellis::paths::<K>(isa, weights) == expected, "k{K} {}", isa.name());
        }
        // Blocks do not depend on those beside them.
        let isa = Isa::detect().unwrap();
        let alone: Vec<_> = weights.chunks(BLOCK).flat_map(|one| trellis::paths::<K>(isa, one)).collect();
        assert!(alone == expected, "k{K}");
    }
    let mut weights = gaussian(7, 11 * BLOCK);
    weights[BLOCK / 2] = 100.0;
    for (index, weight) in weights[BLOCK..2 * BLOCK].iter_mut().enumerate() {
        *weight = if index / 32 % 2 == 0 { 1.0 } else { -1.0 };
    }
    weights[2 * BLOCK..3 * BLOCK].fill(0.0);
    check::<1>(&weights);
    check::<2>(&weights);
    check::<3>(&weights);
    check::<4>(&weights);
}

/// Rows that are encoded side by side get what each gets alone, also where some of them run away.
#[test]
fn feedback_does_not_depend_on_the_rows_beside() {
    let format = Format::by_name("trellis_k2").unwrap();
    let columns = 4 * BLOCK;
    let inputs = gaussian(11, 8 * columns);
    // Inputs of few dimensions: errors can be made up for, and some rows' grow.
    let mut hessian = vec![0.0; columns * columns];
    for input in inputs.chunks(columns) {
        for (i, row) in input.iter().zip(hessian.chunks_mut(columns)) {
            row.iter_mut().zip(input).for_each(|(sum, j)| *sum += f64::from(i * j));
        }
    }
    let feedback = ldlq(&hessian, columns, BLOCK).unwrap();
    let mut rows = gaussian(12, 3 * columns);
    rows[columns..2 * columns].iter_mut().for_each(|weight| *weight = weight.signum());
    let row_bytes = format.bytes_for(columns).unwrap();
    let mut together = vec![0; 3 * row_bytes];
    feedback.encode_rows(format, &rows, None, &mut together).unwrap();
    for (row, together) in rows.chunks(columns).zip(together.chunks(row_bytes)) {
        let mut alone = vec![0; row_bytes];
        feedback.encode_rows(format, row, None, &mut alone).unwrap();
        assert!(alone == together);
    }
}

#[test]
fn zeros_and_what_is_too_large_stay_finite() {
    for (_, format) in rows() {
        assert!(decode(format, &quantize(format, Isa::Scalar, &[0.0; BLOCK])).iter().all(|w| *w == 0.0));
        for large in [1e30, f32::MAX] {
            let found = decode(format, &quantize(format, Isa::Scalar, &[large; BLOCK]));
            assert!(found.iter().all(|weight| weight.is_finite()), "{}", format.name);
        }
    }
}

/// tr(E H E^T) of the errors E of some rows.
fn loss(found: &[f32], rows: &[f32], hessian: &[f64], columns: usize) -> f64 {
    let mut loss = 0.0;
    for (found, row) in found.chunks(columns).zip(rows.chunks(columns)) {
        let errors: Vec<f64> = found.iter().zip(row).map(|(a, b)| f64::from(a - b)).collect();
        for (i, error) in errors.iter().enumerate() {
            let products = errors.iter().zip(&hessian[i * columns..]).map(|(e, h)| e * h);
            loss += error * products.sum::<f64>();
        }
    }
    loss
}

/// The seed's rows and inputs: feedback has to bring the loss of outputs down as far as it does there.
#[test]
fn feedback_makes_up_for_errors() {
    let golden = Golden::open("mlx/trellis_ldlq.safetensors");
    let (rows, inputs) = (golden.get::<f32>("W"), golden.get::<f32>("A"));
    let n = rows.columns;
    let mut hessian = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..n {
            let row = |i: usize| &inputs.values[i * inputs.columns..(i + 1) * inputs.columns];
            let products = row(i).iter().zip(row(j)).map(|(a, b)| f64::from(a * b));
            hessian[i * n + j] = products.sum::<f64>() + if i == j { 0.05 } else { 0.0 };
        }
    }
    let expected = loss(&golden.get::<f32>("What").values, &rows.values, &hessian, n);
    let plain = loss(&golden.get::<f32>("Wplain").values, &rows.values, &hessian, n);
    let feedback = ldlq(&hessian, n, BLOCK).unwrap();
    // The same code and scales as there: a few rows are too few to compare codes by.
    let trellis = Trellis::new(Code::OneMad, 3, 12).unwrap();
    let scales = golden.get::<f16>("scales").values;
    let mut found = Vec::new();
    let format = Format::by_name("trellis_k3").unwrap();
    for (row, scale) in rows.iter().zip(scales) {
        let scale = scale.to_f32();
        let mut decoded = vec![0.0; n];
        let stable = feedback.each_block(row, |index, _, wanted, out| {
            let scaled: Vec<f32> = wanted.iter().map(|value| value / scale).collect();
            let states = trellis.encode(&scaled);
            out.iter_mut().zip(&states).for_each(|(out, s)| *out = trellis.values()[usize::from(*s)] * scale);
            decoded[index * BLOCK..(index + 1) * BLOCK].copy_from_slice(out);
            Ok(())
        });
        assert_eq!(stable.unwrap(), [true]);
        found.extend(decoded);
    }
    let lost = loss(&found, &rows.values, &hessian, n);
    assert!(lost < expected * 1.02, "{lost}, the reference's {expected}, without feedback {plain}");
    // The inputs have twelve dimensions: four rows of any code lose a fifth more or less by chance, 32 a fourteenth. Errors of equal
    // size lose 0.56 of what they do without feedback.
    let weights = gaussian(13, 32 * n);
    let mut bytes = vec![0; format.bytes_for(weights.len()).unwrap()];
    feedback.encode_rows(format, &weights, None, &mut bytes).unwrap();
    let lost = loss(&decode(format, &bytes), &weights, &hessian, n);
    let plain = loss(&decode(format, &quantize(format, Isa::Scalar, &weights)), &weights, &hessian, n);
    assert!(lost < plain * 0.75, "{lost} with our blocks, without feedback {plain}");
}

/// Errors that grow from block to block end in blocks that are encoded alone.
#[test]
fn errors_that_run_away_are_stopped() {
    let format = Format::by_name("q8_0").unwrap();
    let mut random = fastrand::Rng::with_seed(9);
    let inputs: Vec<f64> = (0..128).map(|i| if i < 96 { random.f64() } else { 1.0 }).collect();
    let hessian: Vec<f64> = (0..128 * 128).map(|i| inputs[i / 128] * inputs[i % 128]).collect();
    let feedback = ldlq(&hessian, 128, 32).unwrap();
    let row: Vec<f32> = (0..128).map(|_| random.f32() - 0.5).collect();
    // Blocks that come out far from what they should be.
    let stable = feedback.each_block(&row, |_, _, _, out| {
        out.fill(-1e6);
        Ok(())
    });
    assert_eq!(stable.unwrap(), [false]);
    let mut bytes = vec![0; format.bytes_for(128).unwrap()];
    feedback.encode_rows(format, &row, None, &mut bytes).unwrap();
    let lost = mean_square(&decode(format, &bytes), &row);
    assert!(lost < 1e-4, "{lost}");
}

#[test]
fn hessians_of_no_use_have_no_feedback() {
    assert!(ldlq(&[0.0; 64 * 64], 64, 32).is_none(), "no input");
    assert!(ldlq(&[f64::NAN; 64 * 64], 64, 32).is_none(), "not finite");
    assert!(ldlq(&[1.0; 64 * 64], 64, 48).is_none(), "no whole blocks");
    // One input only: singular, which damping mends.
    let one: Vec<f64> = (0..64 * 64).map(|i| f64::from((i % 64 + 1) * (i / 64 + 1))).collect();
    assert!(ldlq(&one, 64, 32).is_some());
}

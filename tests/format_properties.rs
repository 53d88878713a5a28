//! What holds for every row of `FORMATS` whatever the numbers: errors instead of panics, lengths, and how far a
//! weight may be from its decoded code.

#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use hadal::Error;
use hadal::quant::{FORMATS, Format};
use hadal::simd::Isa;
use proptest::collection::vec;
use proptest::prelude::*;

/// How exact a format's encoder is.
enum Bound {
    /// The error of each weight is at most this, in units of the block's largest magnitude, plus this, in units of
    /// the difference between the block's largest and smallest weight.
    Each(f32, f32),
    /// The root of the mean square of a block's errors is at most this, in units of its largest magnitude.
    Mean(f32),
}

/// Half a step of the codes, or a whole one where the codes reach one step less far on one side; plus what rounding
/// scale (and minimum) to halves moves the farthest code. The searches of the K quants trade single weights for the
/// sum of squares: there it is the mean that stays below half a step. A step is the range over the number of codes
/// less one: -1..=1 for those with minimums, the largest magnitude over the lowest code for the others.
const BOUNDS: &[(&str, Bound)] = &[
    ("f32", Bound::Each(0.0, 0.0)),
    ("f16", Bound::Each(HALF, 0.0)),
    ("bf16", Bound::Each(1.0 / 256.0, 0.0)),
    ("q4_0", Bound::Each(1.0 / 8.0 + HALF, 0.0)),
    ("q4_1", Bound::Each(HALF, 0.5 / 15.0 + HALF)),
    ("q5_0", Bound::Each(1.0 / 16.0 + HALF, 0.0)),
    ("q5_1", Bound::Each(HALF, 0.5 / 31.0 + HALF)),
    ("q8_0", Bound::Each(0.5 / 127.0 + HALF, 0.0)),
    ("q8_1", Bound::Each(0.5 / 127.0 + HALF, 0.0)),
    ("q8_k", Bound::Each(0.5 / 127.0, 0.0)),
    ("q2_k", Bound::Mean(1.0 / 3.0)),
    ("q3_k", Bound::Mean(0.5 / 4.0)),
    ("q4_k", Bound::Mean(1.0 / 15.0)),
    ("q5_k", Bound::Mean(1.0 / 31.0)),
    ("q6_k", Bound::Mean(0.5 / 32.0)),
    // A path trades single weights for the sum of squares: a code is at most 3.5 times the root mean square.
    ("trellis_k1", Bound::Each(3.5, 0.0)),
    ("trellis_k2", Bound::Each(3.5, 0.0)),
    ("trellis_k3", Bound::Each(3.5, 0.0)),
    ("trellis_k4", Bound::Each(3.5, 0.0)),
];

/// The relative error of rounding to an IEEE half.
const HALF: f32 = 1.0 / 2048.0;

/// Half the distance of the smallest halves.
const SMALLEST: f32 = 1.0 / (1 << 25) as f32;

/// Their scales are searched for, and codes are points of a grid: a weight may land on the other side of zero. Some store
/// seven of eight signs, the last one makes the number of minuses even.
const SEARCHED: &[&str] = &["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"];

/// Float arithmetic on the way, relative to the largest magnitude.
const ROUNDING: f32 = 1e-6;

/// Formats whose encoder does not give back its own weights: they search for a scale that suits all weights rather
/// than the extreme one, or keep a scale in f32 that is computed anew (q8_k).
const NOT_IDEMPOTENT: &[&str] = &[
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "q8_k",
    "iq1_s",
    "iq1_m",
    "iq2_xxs",
    "iq2_xs",
    "iq2_s",
    "iq3_xxs",
    "iq3_s",
    "iq4_nl",
    "iq4_xs",
    "trellis_k1",
    "trellis_k2",
    "trellis_k3",
    "trellis_k4",
];

fn decode(format: &Format, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / format.block_bytes * format.block_len];
    format.decode(bytes, &mut out).unwrap();
    out
}

fn encode(format: &Format, values: &[f32]) -> Vec<u8> {
    let mut out = vec![0; format.bytes_for(values.len()).unwrap()];
    format.encode(values, &mut out).unwrap();
    out
}

fn is_format_error<T>(result: &hadal::Result<T>, format: &Format) -> bool {
    matches!(result, Err(Error::Format { format: name, .. }) if *name == format.name)
}

fn encodable() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().copied().filter(|format| format.has_encoder())
}

/// Enough of the repeated `numbers` for a block of `format`, or all of them.
fn fill<T: Copy>(format: &Format, numbers: &[T]) -> Vec<T> {
    numbers.iter().copied().cycle().take(format.block_len.max(numbers.len())).collect()
}

/// 256 weights of one order of magnitude, far enough from the limits of a half that its relative error holds.
fn weights() -> impl Strategy<Value = Vec<f32>> {
    let one = prop_oneof![
        4 => -1.0f32..1.0,
        1 => Just(0.0f32),
        1 => Just(-0.0f32),
        1 => Just(1.0f32),
        1 => Just(-1.0f32),
    ];
    (vec(one, 256), 1.0f32..100.0).prop_map(|(mut weights, scale)| {
        weights.iter_mut().for_each(|weight| *weight *= scale);
        // One large weight in each 16, so that no scale is small.
        weights.iter_mut().step_by(16).for_each(|weight| *weight = scale.copysign(*weight));
        weights
    })
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, value| value.abs().max(largest))
}

fn energy(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value).powi(2)).sum()
}

/// Checks one block's decoded weights.
fn check_block(format: &Format, values: &[f32], found: &[f32]) -> Result<(), TestCaseError> {
    let name = format.name;
    let errors = values.iter().zip(found).map(|(value, found)| found - value);
    let largest = largest(values);
    let (lost, all) = (energy(errors.clone()), energy(values.iter().copied()));
    let (each, total) = match BOUNDS.iter().find(|(format, _)| *format == name) {
        Some((_, Bound::Each(of_largest, of_range))) => {
            let max = values.iter().copied().fold(f32::MIN, f32::max);
            let min = values.iter().copied().fold(f32::MAX, f32::min);
            ((of_largest + ROUNDING) * largest + of_range * (max - min) + SMALLEST, all)
        }
        Some((_, Bound::Mean(of_largest))) => {
            (largest * 1.01, f64::from(of_largest * largest).powi(2) * values.len() as f64)
        }
        // Unknown here: no weight moves by more than the largest magnitude, and all in all they are nearer to the
        // weights than zeros would be.
        None => (largest * if SEARCHED.contains(&name) { 2.01 } else { 1.01 }, all),
    };
    for (i, error) in errors.enumerate() {
        prop_assert!(error.abs() <= each, "{name} weight {i}: off by {error}, limit {each}");
    }
    prop_assert!(lost <= total, "{name}: squared errors {lost}, limit {total}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoding_encoded_weights_stays_within_the_bound(values in weights()) {
        for format in encodable() {
            let values = fill(format, &values);
            let found = decode(format, &encode(format, &values));
            let blocks = values.chunks_exact(format.block_len).zip(found.chunks_exact(format.block_len));
            for (values, found) in blocks {
                check_block(format, values, found)?;
            }
        }
    }

    #[test]
    fn encoding_decoded_weights_changes_nothing(values in weights()) {
        // MLX's scales follow the extremes, which rounding moves.
        let steady = |format: &&'static Format| {
            !NOT_IDEMPOTENT.contains(&format.name) && !format.name.starts_with("affine") && format.name != "mxfp8"
        };
        for format in encodable().filter(steady) {
            let once = decode(format, &encode(format, &fill(format, &values)));
            let twice = decode(format, &encode(format, &once));
            prop_assert_eq!(once, twice, "{}", format.name);
        }
    }

    #[test]
    fn any_bytes_decode_without_panic(bytes in vec(any::<u8>(), 1024)) {
        for format in FORMATS {
            let blocks = bytes.len() / format.block_bytes;
            let weights = decode(format, &bytes[..blocks * format.block_bytes]);
            prop_assert_eq!(weights.len(), blocks * format.block_len);
        }
    }

    #[test]
    fn any_floats_encode_without_panic_and_alike_on_every_isa(bits in vec(any::<u32>(), 256)) {
        let floats: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        // WebAssembly leaves open which NaN comes of two: an engine's answer changes when it optimizes the function.
        let comparable = !cfg!(target_arch = "wasm32") || floats.iter().all(|float| float.is_finite());
        for format in encodable() {
            let values = fill(format, &floats);
            let mut expected = vec![0; format.bytes_for(values.len()).unwrap()];
            format.quantize(Isa::Scalar, &values, &mut expected).unwrap();
            for isa in Isa::available() {
                let mut found = vec![0; expected.len()];
                format.quantize(isa, &values, &mut found).unwrap();
                if comparable {
                    prop_assert_eq!(&found, &expected, "{} {}", format.name, isa.name());
                }
            }
        }
    }

    #[test]
    fn a_length_that_does_not_fit_is_an_error(blocks in 0..3usize, off in 1..300usize, less in any::<bool>()) {
        for format in FORMATS {
            let (len, bytes) = (blocks * format.block_len, blocks * format.block_bytes);
            let wrong = if less { bytes.saturating_sub(off) } else { bytes + off };
            if wrong != bytes {
                let found = format.decode(&vec![0; wrong], &mut vec![0.0; len]);
                prop_assert!(is_format_error(&found, format), "{} {wrong} bytes decoded", format.name);
                let found = format.encode(&vec![0.0; len], &mut vec![0; wrong]);
                prop_assert!(is_format_error(&found, format), "{} {wrong} bytes encoded", format.name);
            }
            if !off.is_multiple_of(format.block_len) {
                let len = len + off;
                prop_assert!(is_format_error(&format.bytes_for(len), format), "{} {len}", format.name);
                let found = format.decode(&vec![0; bytes], &mut vec![0.0; len]);
                prop_assert!(is_format_error(&found, format), "{} {len} decoded", format.name);
            }
        }
    }

    #[test]
    fn the_first_number_that_is_not_finite_is_named(
        position in any::<prop::sample::Index>(),
        later in any::<bool>(),
        value in prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
    ) {
        for format in encodable() {
            let len = format.block_len.max(4) * 2;
            let mut values = vec![1.0; len];
            let first = position.index(len);
            values[first] = value;
            if later && first + 1 < len {
                values[len - 1] = f32::NAN;
            }
            let mut out = vec![0; format.bytes_for(len).unwrap()];
            match format.encode(&values, &mut out) {
                Err(Error::NonFinite { format: name, index, value: named }) => {
                    prop_assert_eq!((name, index), (format.name, first));
                    prop_assert_eq!(named.to_bits(), value.to_bits());
                }
                other => prop_assert!(false, "{}: {other:?}", format.name),
            }
        }
    }
}

#[test]
fn nothing_encodes_to_nothing() {
    for format in FORMATS {
        assert_eq!(format.bytes_for(0).unwrap(), 0, "{}", format.name);
        format.decode(&[], &mut []).unwrap();
        if format.has_encoder() {
            format.encode(&[], &mut []).unwrap();
            format.quantize(Isa::Scalar, &[], &mut []).unwrap();
        }
        for isa in Isa::available() {
            if let Some(dot) = format.row_dot(isa) {
                assert_eq!(dot.call(&[], &[]).to_bits(), 0, "{} {}", format.name, isa.name());
            }
        }
    }
}

#[test]
fn a_format_without_encoder_says_so() {
    for format in FORMATS.iter().filter(|format| !format.has_encoder()) {
        let (values, mut out) = (vec![0.0; format.block_len], vec![0; format.block_bytes]);
        assert!(is_format_error(&format.encode(&values, &mut out), format), "{}", format.name);
    }
}

#[test]
fn a_length_beyond_memory_is_an_error() {
    for format in FORMATS.iter().filter(|format| format.block_bytes > format.block_len) {
        let most = usize::MAX / format.block_len * format.block_len;
        assert!(is_format_error(&format.bytes_for(most), format), "{}", format.name);
    }
}

//! Every row of the format table on arbitrary bytes: decoding, multiplying and encoding never panic, and all
//! instruction sets give the same bits. The first byte picks the row, the rest is blocks, inputs and numbers.

#![no_main]

use hadal::quant::{FORMATS, Format};
use hadal::simd::Isa;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, bytes)) = data.split_first() else { return };
    let format = FORMATS[usize::from(first) % FORMATS.len()];
    decode(format, bytes);
    multiply(format, bytes);
    encode(format, bytes);
});

fn decode(format: &Format, bytes: &[u8]) {
    let mut values = vec![0.0; bytes.len() / format.block_bytes * format.block_len];
    let whole = values.len() / format.block_len * format.block_bytes;
    format.decode(&bytes[..whole], &mut values).expect("whole blocks");
    assert_eq!(format.decode(bytes, &mut values).is_ok(), whole == bytes.len());
}

/// Arbitrary weights with an input that the encoder made, on which the instruction sets must agree, and with an
/// arbitrary input, which may break what they rely on (no code is -128; sums are true) but must not panic.
fn multiply(format: &'static Format, bytes: &[u8]) {
    let Some(dot) = &format.dot else { return };
    let step = format.block_len.max(dot.input.block_len);
    let len = bytes.len() / format.block_bytes * format.block_len / step * step;
    let weights = &bytes[..format.bytes_for(len).expect("whole blocks")];
    // Read backwards, so that the input is not the weights once more.
    let arbitrary: Vec<u8> = bytes.iter().rev().copied().cycle().take(len * 4).collect();

    let mut input = vec![0; dot.input.bytes_for(len).expect("whole blocks")];
    dot.input.quantize(Isa::Scalar, &floats(&arbitrary), &mut input).expect("an input format has an encoder");
    let results: Vec<_> = results(format, weights, &input);
    let (_, expected) = results[0];
    for (isa, found) in results {
        let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(same, "{} {}: {found:e}, scalar {expected:e}", format.name, isa.name());
    }

    input.iter_mut().zip(arbitrary.iter().cycle()).for_each(|(byte, &other)| *byte = other);
    self::results(format, weights, &input);
}

/// The dots alone and as each of four.
fn results(format: &'static Format, weights: &[u8], input: &[u8]) -> Vec<(Isa, f32)> {
    let dots = |isa| {
        let dot = format.row_dot(isa).expect("the format has a dot");
        let [a, b, c, d] = dot.rows4([weights; 4], input);
        [dot.call(weights, input), a, b, c, d].map(|dot| (isa, dot))
    };
    Isa::available().flat_map(dots).collect()
}

fn encode(format: &Format, bytes: &[u8]) {
    if !format.has_encoder() {
        return;
    }
    let mut values = floats(bytes);
    values.truncate(values.len() / format.block_len * format.block_len);
    let mut blocks = vec![0; format.bytes_for(values.len()).expect("whole blocks")];
    let encoded = format.encode(&values, &mut blocks);
    assert_eq!(encoded.is_ok(), values.iter().all(|value| value.is_finite()));
    format.quantize(Isa::Scalar, &values, &mut blocks).expect("whole blocks");
    format.decode(&blocks, &mut values).expect("whole blocks");
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

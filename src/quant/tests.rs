//! The generic kernels, emulated: what instruction sets that this machine lacks would compute.

use super::panel::Scratch;
use super::*;

/// Random bytes whose weights are finite.
fn random_blocks(format: &Format, blocks: usize, rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = vec![0; blocks * format.block_bytes];
    let mut weights = vec![0.0; format.block_len];
    for block in bytes.chunks_exact_mut(format.block_bytes) {
        loop {
            rng.fill(block);
            format.decode(block, &mut weights).expect("a block");
            if weights.iter().all(|weight| weight.is_finite()) {
                break;
            }
        }
    }
    bytes
}

/// `rows` of quantized inputs, one of which has only the largest codes.
fn random_inputs(format: &Format, rows: usize, columns: usize, rng: &mut fastrand::Rng) -> Vec<u8> {
    let value = |i: usize, rng: &mut fastrand::Rng| {
        let sign = if rng.bool() { 1.0 } else { -1.0 };
        if i < columns { sign } else { sign * rng.f32() }
    };
    let values: Vec<f32> = (0..rows * columns).map(|i| value(i, rng)).collect();
    let mut bytes = vec![0; format.bytes_for(values.len()).expect("whole blocks")];
    format.encode(&values, &mut bytes).expect("finite values");
    bytes
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Formats with generic kernels.
fn block_formats() -> impl Iterator<Item = (&'static Format, &'static Format)> {
    let formats = FORMATS.iter().filter(|format| !format.panel.emulated.is_empty());
    formats.map(|format| (*format, format.dot.as_ref().expect("a dot").input))
}

#[test]
fn every_block_format_has_generic_kernels() {
    for format in FORMATS.iter().filter(|format| format.dot.is_some()) {
        let expected = format.dot.as_ref().expect("a dot").input.block_len > 1;
        assert_eq!(!format.panel.emulated.is_empty(), expected, "{}", format.name);
    }
}

#[test]
fn emulated_arms_give_the_bits_of_the_scalar_dot() {
    let mut rng = fastrand::Rng::with_seed(11);
    for (format, input) in block_formats() {
        let dot = format.dot.as_ref().expect("a dot");
        let scalar = format.row_dot(Isa::Scalar).expect("a dot");
        for blocks in [0, 1, 2, 3, 7, 8, 9, 17] {
            let columns = blocks * input.block_len.max(format.block_len);
            let rows = [(); 4].map(|()| random_blocks(format, columns / format.block_len, &mut rng));
            let rows = rows.each_ref().map(|row| &row[..]);
            for _ in 0..2 {
                let inputs = random_inputs(input, 1, columns, &mut rng);
                let expected = rows.map(|row| scalar.call(row, &inputs));
                for (i, arm) in dot.emulated.iter().filter(|arm| arm.isa.is_available()).enumerate() {
                    let rows4 = arm.rows4.expect("all block formats have one");
                    // SAFETY: this machine has the arm's instruction set.
                    let (alone, together) =
                        unsafe { (rows.map(|row| (arm.call)(row, &inputs)), rows4(rows, &inputs)) };
                    let right = (0..4).all(|i| same(alone[i], expected[i]) && same(together[i], expected[i]));
                    let name = format.name;
                    assert!(
                        right,
                        "{name} {i} {columns}: {alone:?}, together {together:?}, not {expected:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn emulated_panels_give_the_bits_of_the_scalar_dot() {
    let mut rng = fastrand::Rng::with_seed(12);
    let mut scratch = Scratch::default();
    for (format, input) in block_formats() {
        let scalar = format.row_dot(Isa::Scalar).expect("a dot");
        for (rows, blocks, tokens) in [(1, 1, 1), (17, 3, 2), (33, 9, 11)] {
            let columns = blocks * input.block_len.max(format.block_len);
            let weights = random_blocks(format, rows * columns / format.block_len, &mut rng);
            let row_bytes = weights.len() / rows;
            let blocks = random_inputs(input, tokens, columns, &mut rng);
            let input_bytes = blocks.len() / tokens;
            for (k, kernel) in Multiply::emulated(format).enumerate() {
                let mut inputs = kernel.prepare(tokens, columns);
                inputs.runs_mut().for_each(|mut run| run.fill(&blocks));
                kernel.run(&weights, &inputs, &mut scratch, |token, dots| {
                    for (row, &found) in dots.iter().enumerate() {
                        let weights = &weights[row * row_bytes..][..row_bytes];
                        let expected = scalar.call(weights, &blocks[token * input_bytes..][..input_bytes]);
                        let name = format.name;
                        assert!(
                            same(found, expected),
                            "{name} {k} {rows} x {columns} [{row}, {token}]: {found:e}, not {expected:e}"
                        );
                    }
                });
            }
        }
    }
}

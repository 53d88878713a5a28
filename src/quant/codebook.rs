//! What the formats with 256 weights and integer codes share (IQ1, IQ2, IQ3 and IQ4_XS): weight i of a block is
//! `scale * multipliers[i / 16] * codes[i]`, of which only the scale is no integer.
//!
//! Their dot, which is the specification for every instruction set: a block's integer is the sum over the 16 groups
//! of the multiplier times the dot of codes and inputs. It is exact (at most 32 * 127 * 128 * 256 < 2^31) in any
//! order. Blocks in ascending order: `sum += (scale_w * scale_x) * integer`, where the integer is rounded to the
//! nearest f32, ties to even.

use super::{Block, q8_k};

/// A block taken apart.
pub(super) struct Unpacked {
    pub scale: f32,
    /// -32..=31.
    pub multipliers: [i16; 16],
    /// -127..=127.
    pub codes: [i8; 256],
}

/// A block that can be taken apart.
pub(super) trait Codebook: Block {
    fn unpack(&self) -> Unpacked;
}

impl Unpacked {
    /// `scale * multiplier` is exact: an f16 times 6 bits and a power of two.
    pub fn decode(&self, out: &mut [f32]) {
        for ((out, codes), &multiplier) in
            out.chunks_exact_mut(16).zip(self.codes.chunks_exact(16)).zip(&self.multipliers)
        {
            let step = self.scale * f32::from(multiplier);
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = step * f32::from(code);
            }
        }
    }

    fn integer_dot(&self, input: &[i8; 256]) -> i32 {
        let mut sum = 0;
        for ((codes, input), &multiplier) in
            self.codes.chunks_exact(16).zip(input.chunks_exact(16)).zip(&self.multipliers)
        {
            let group: i32 = codes.iter().zip(input).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            sum += i32::from(multiplier) * group;
        }
        sum
    }
}

/// The values of a codebook entry, negated where `signs` has a bit, lowest bit first.
pub(super) fn put(codes: &mut [i8], entry: &[i8], signs: u8) {
    for (i, (code, &value)) in codes.iter_mut().zip(entry).enumerate() {
        *code = if signs >> i & 1 == 1 { -value } else { value };
    }
}

pub(super) fn dot<B: Codebook>(weights: &[B], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let w = w.unpack();
        sum += (w.scale * x.scale.get()) * w.integer_dot(&x.codes) as f32;
    }
    sum
}

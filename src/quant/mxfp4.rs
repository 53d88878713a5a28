//! MXFP4: 32 weights in 17 bytes: a power of two, then 16 bytes of nibbles.
//! Byte j holds weight j (low nibble) and weight j + 16 (high); a nibble is an E2M1 float and stands for half of
//! `VALUES[nibble]`, which are whole numbers; weight = 2^(exponent - 128) * `VALUES[nibble]`.
//! (OCP Microscaling Formats 1.0; ggml: `e`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::iq4_nl::integer_dot;
use super::parts::{self, Codes, Shuffle, Terms};
use super::{Format, arms, panel, q8_0};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    exponent: u8,
    nibbles: [u8; 16],
}

/// Twice the E2M1 float of each nibble, here and in NVFP4.
pub(super) static VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The table row. Measured (see [`panel`]): four rows 22, panels 84 GMAC/s; 7.3 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("mxfp4", Some(39))
    .shader(include_str!("../../wgsl/quant/mxfp4.wgsl"))
    .encoder::<Block>()
    .dot(&q8_0::FORMAT, arms![terms; Block, q8_0::Block; dot, avx2])
    .panel(panel::terms::<Block>());

impl Block {
    /// 2^(exponent - 128), exactly: subnormal for exponents 0 and 1. The 255 that OCP calls NaN is 2^127 in ggml.
    #[inline(always)]
    fn scale(self) -> f32 {
        let exponent = u32::from(self.exponent);
        f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 })
    }
}

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 17;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale();
        for (j, &byte) in self.nibbles.iter().enumerate() {
            out[j] = scale * f32::from(VALUES[usize::from(byte & 15)]);
            out[j + 16] = scale * f32::from(VALUES[usize::from(byte >> 4)]);
        }
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Unsigned { most: 24, bias: 12 };

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], _: &mut [f32]) {
        scales[0] = self.scale();
        parts::table_nibbles::<S>(&BIASED_VALUES, &self.nibbles, codes);
    }
}

/// [`VALUES`] plus 12, so that none is negative.
pub(super) static BIASED_VALUES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

impl super::Encode for Block {
    /// The exponent that brings the largest magnitude into 4..8 (6 is the largest E2M1), then the nearest value.
    /// Below 2^-125 the exponent wraps around, as the reference's does: such a block decodes to zeros.
    fn encode(values: &[f32]) -> Self {
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        // log2 rounded to f32: just below a power of two it gives that power's exponent, and so must we.
        let exponent = (libm::log2(f64::from(largest)) as f32).floor() + 125.0;
        let exponent = if largest > 0.0 { exponent as i32 as u8 } else { 0 };
        let mut block = Block { exponent, nibbles: [0; 16] };
        let nibbles = nearest::<32>(&std::array::from_fn(|i| values[i]), block.scale());
        for (j, byte) in block.nibbles.iter_mut().enumerate() {
            *byte = nibbles[j] | nibbles[j + 16] << 4;
        }
        block
    }
}

/// For each value the first nibble for which `scale * VALUES[nibble]` is nearest.
pub(super) fn nearest<const N: usize>(values: &[f32; N], scale: f32) -> [u8; N] {
    let (mut best, mut least) = ([0; N], [0.0; N]);
    for i in 0..N {
        least[i] = values[i].abs();
    }
    // One nibble after the other for all values: in loops that the compiler vectorizes.
    for (nibble, &code) in (0u32..).zip(&VALUES).skip(1) {
        let level = f32::from(code) * scale;
        for i in 0..N {
            let error = (level - values[i]).abs();
            let less = u32::from(error < least[i]).wrapping_neg();
            least[i] = if error < least[i] { error } else { least[i] };
            best[i] = nibble & less | best[i] & !less;
        }
    }
    best.map(|nibble| nibble as u8)
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        sum += (w.scale() * x.scale.get()) * integer_dot(&VALUES, &w.nibbles, &x.codes) as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, VALUES, q8_0};
    use crate::simd::x86::{Products, load32i, lookup16, move_signs, nibbles, sum_i32};

    #[target_feature(enable = "avx2")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input) {
            let integer = sum_i32(V::fours(products::<V>(w, load32i(&x.codes))));
            sum += (w.scale() * x.scale.get()) * integer as f32;
        }
        sum
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_0::Block]) -> [f32; 4] {
        let scales = |w: [&Block; 4]| _mm_set_ps(w[3].scale(), w[2].scale(), w[1].scale(), w[0].scale());
        q8_0::avx2::rows4_blocks(rows, input, scales, |w, x| products::<V>(w, x), |sums| V::totals(sums))
    }

    /// No value is -128, so the codes may take the inputs' signs, and those hold anything.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products<V: Products>(w: &Block, x: __m256i) -> __m256i {
        let (magnitudes, codes) = move_signs(x, lookup16(&VALUES, nibbles(&w.nibbles)));
        V::dot(magnitudes, codes)
    }
}

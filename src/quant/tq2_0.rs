//! TQ2_0: 256 ternary weights in 66 bytes: two halves of 32 bytes, then an f16 scale.
//! Byte j of a half holds four 2-bit codes, lowest first: weights j, j + 32, j + 64 and j + 96 of that half;
//! weight = (code - 1) * scale. Code 3 is never written, and decodes to twice the scale.
//! (ggml: `qs`, `d`.)

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::parts::{Codes, Parts, Scaled, Shuffle};
use super::{Format, arms, k, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    halves: [[u8; 32]; 2],
    scale: F16,
}

/// The table row. Measured (see [`panel`]): four rows 55, panels 100 GMAC/s; 7.8 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("tq2_0", Some(35))
    .shader(include_str!("../../wgsl/quant/tq2_0.wgsl"))
    .encoder::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; dot, avx2])
    .panel(panel::scaled::<Block>());

impl Block {
    /// Of weight `i`: 0, 1, 2, or 3 in a foreign block.
    fn code(&self, i: usize) -> u8 {
        self.halves[i / 128][i % 32] >> (2 * (i / 32 % 4)) & 3
    }
}

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 66;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (i, out) in out.iter_mut().enumerate() {
            *out = (f32::from(self.code(i)) - 1.0) * scale;
        }
    }
}

impl Scaled for Block {
    const CODES: Codes = Codes::Unsigned { most: 3, bias: 1 };
    const GROUP: usize = 32;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        parts.scale = self.scale.get();
        parts.multipliers = [1; 16];
        k::bit_pairs(bytemuck::cast_ref(&self.halves), &mut parts.codes);
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let (scale, trits) = trits(values);
        let mut halves = [[0; 32]; 2];
        for (i, trit) in trits.iter().enumerate() {
            halves[i / 128][i % 32] |= trit << (2 * (i / 32 % 4));
        }
        Block { halves, scale }
    }
}

/// The largest magnitude as the scale, and each value's trit (-1, 0 or 1) plus 1. Trits come from the unrounded scale
/// and round half away from zero; where its reciprocal overflows, all but zeros become ±1 of a scale that is stored as 0.
pub(super) fn trits(values: &[f32]) -> (F16, [u8; 256]) {
    let scale = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let mut trits = [0; 256];
    for (trit, value) in trits.iter_mut().zip(values) {
        *trit = ((value * inverse).round().clamp(-1.0, 1.0) as i8 + 1) as u8;
    }
    (F16::new(scale), trits)
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * integer, where the integer is the exact dot of codes and
/// inputs less the sum of the inputs, taken from the block's `sums`.
fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let mut integer = 0;
        for (i, &code) in x.codes.iter().enumerate() {
            integer += i32::from(w.code(i)) * i32::from(code);
        }
        for x in &x.sums {
            integer -= i32::from(x.get());
        }
        sum += (w.scale.get() * x.scale.get()) * integer as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, q8_k};
    use crate::quant::k;
    use crate::simd::x86::{Products, load32};

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_k::Block]) -> f32 {
        k::avx2::dot(weights, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_k::Block]) -> [f32; 4] {
        k::avx2::rows4(rows, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    /// Partial sums of a block's integer.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn integers<V: Products>(w: &Block, x: &q8_k::Block) -> __m256i {
        // As i16, 8 pairs of at most 3 * 128 * 2 fit.
        let mut sums = _mm256_setzero_si256();
        for half in 0..2 {
            let mut bytes = load32(&w.halves[half]);
            for section in 4 * half..4 * half + 4 {
                let codes = _mm256_and_si256(bytes, _mm256_set1_epi8(3));
                bytes = _mm256_srli_epi16::<2>(bytes);
                sums = V::add(sums, codes, k::avx2::load_group(x, section));
            }
        }
        // The sum of the inputs comes off each code.
        V::fours(V::less(sums, k::avx2::load_sums(x)))
    }
}

//! Q1_0: 128 weights in 18 bytes: an f16 scale, then a bit for each weight, lowest first in each byte.
//! Weight = scale where the bit is set, -scale where it is not.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::parts::{self, Codes, Shuffle, Terms};
use super::{Format, arms, panel, q8_0};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    /// Of 32 weights each.
    signs: [[u8; 4]; 4],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("q1_0", Some(41))
    .encoder::<Block>()
    .dot(
        &q8_0::FORMAT,
        arms![terms; Block, q8_0::Block; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: avx2::dot],
    )
    .panel(panel::terms::<Block>());

impl super::Block for Block {
    const LEN: usize = 128;
    const BYTES: usize = 18;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, byte) in out.chunks_exact_mut(8).zip(self.signs.as_flattened()) {
            for (bit, out) in out.iter_mut().enumerate() {
                *out = if byte >> bit & 1 == 1 { scale } else { -scale };
            }
        }
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Unsigned { most: 2, bias: 1 };

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], _: &mut [f32]) {
        scales.fill(self.scale.get());
        for (codes, &bits) in codes.chunks_exact_mut(8).zip(self.signs.as_flattened()) {
            for (code, bit) in codes.iter_mut().zip(&parts::BITS[usize::from(bits)]) {
                *code = bit & 2;
            }
        }
    }
}

impl super::Encode for Block {
    /// The scale is the mean magnitude; zero counts as positive.
    fn encode(values: &[f32]) -> Self {
        let mut sum = 0.0;
        let mut signs = [[0; 4]; 4];
        for (values, byte) in values.chunks_exact(8).zip(signs.as_flattened_mut()) {
            for (bit, value) in values.iter().enumerate() {
                sum += value.abs();
                *byte |= u8::from(*value >= 0.0) << bit;
            }
        }
        Block { scale: F16::new(sum / 128.0), signs }
    }
}

/// Input blocks (four to a block of weights) in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input.as_chunks::<4>().0) {
        for (signs, x) in w.signs.iter().zip(x) {
            let mut integer = 0;
            for (i, &code) in x.codes.iter().enumerate() {
                let code = i32::from(code);
                integer += if signs[i / 8] >> (i % 8) & 1 == 1 { code } else { -code };
            }
            sum += (w.scale.get() * x.scale.get()) * integer as f32;
        }
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, q8_0};
    use crate::simd::x86::{bit_masks, dot_i8_i8, load32i, sum_i32};

    #[target_feature(enable = "avx2")]
    pub fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input.as_chunks::<4>().0) {
            let scale = w.scale.get();
            for (&signs, x) in w.signs.iter().zip(x) {
                let integer = sum_i32(dot_i8_i8(load32i(&x.codes), ones(signs)));
                sum += (scale * x.scale.get()) * integer as f32;
            }
        }
        sum
    }

    /// 32 bits to bytes: 1 where set, -1 where clear.
    #[target_feature(enable = "avx2")]
    fn ones(bits: [u8; 4]) -> __m256i {
        let twos = _mm256_and_si256(bit_masks(u32::from_le_bytes(bits)), _mm256_set1_epi8(2));
        _mm256_sub_epi8(twos, _mm256_set1_epi8(1))
    }
}

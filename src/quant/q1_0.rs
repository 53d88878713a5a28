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

/// The table row. Measured (see [`panel`]): four rows 19, panels 59 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("q1_0", Some(41))
    .shader(include_str!("../../wgsl/quant/q1_0.wgsl"))
    .encoder::<Block>()
    .dot(&q8_0::FORMAT, arms![terms; Block, q8_0::Block; dot, avx2])
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
    use crate::simd::x86::{Products, bit_masks, load32i, sum_i32};

    #[target_feature(enable = "avx2")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input.as_chunks::<4>().0) {
            let scale = w.scale.get();
            for p in 0..4 {
                let integer = sum_i32(V::fours(products::<V>(w, p, load32i(&x[p].codes))));
                sum += (scale * x[p].scale.get()) * integer as f32;
            }
        }
        sum
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_0::Block]) -> [f32; 4] {
        let sums = q8_0::avx2::rows4_parts::<V, _, 4, false>(rows, input, |w, p, x| products::<V>(w, p, x));
        bytemuck::cast(sums[0])
    }

    /// Sums of the input, negated where bits are clear.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products<V: Products>(w: &Block, p: usize, x: __m256i) -> __m256i {
        let set = bit_masks(u32::from_le_bytes(w.signs[p]));
        let signs = _mm256_or_si256(_mm256_xor_si256(set, _mm256_set1_epi8(-1)), _mm256_set1_epi8(1));
        V::dot(_mm256_set1_epi8(1), _mm256_sign_epi8(x, signs))
    }
}

//! Q5_K: 256 weights in 176 bytes: as [`super::q4_k`], with 32 bytes of high bits before the nibbles: bit g of byte i
//! is the fifth bit of weight i of group g; weight = (scale * group scale) * code - min * group min.
//! (ggml: `d`, `dmin`, `scales`, `qh`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::k::search::Steps;
use super::le::F16;
use super::parts::{Codes, Parts, Scaled, Shuffle};
use super::{Format, arms, k, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    min: F16,
    group_scales: [u8; 12],
    high_bits: [u8; 32],
    nibbles: [u8; 128],
}

/// The table row. Measured (see [`panel`]): four rows 24, panels 86 GMAC/s; 6.8 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("q5_k", Some(13))
    .shader(include_str!("../../wgsl/quant/q5_k.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; dot, avx2])
    .panel(panel::scaled::<Block>());

impl Block {
    fn codes(&self) -> [i8; 256] {
        let mut codes = k::unpack_nibbles(&self.nibbles);
        for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (code, &bits) in codes.iter_mut().zip(&self.high_bits) {
                *code |= ((bits >> group & 1) << 4).cast_signed();
            }
        }
        codes
    }
}

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 176;

    fn decode(&self, out: &mut [f32]) {
        k::decode_groups_of_32(self.scale, self.min, &self.group_scales, &self.codes(), out);
    }
}

impl Scaled for Block {
    const CODES: Codes = Codes::Unsigned { most: 31, bias: 0 };
    const GROUP: usize = 32;
    const MIN: bool = true;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        (parts.scale, parts.min) = (self.scale.get(), self.min.get());
        (parts.multipliers, parts.mins) = k::multipliers_and_mins(&self.group_scales);
        k::nibbles(&self.nibbles, &mut parts.codes);
        for (g, codes) in parts.codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (code, bits) in codes.iter_mut().zip(&self.high_bits) {
                *code |= (bits >> g & 1) << 4;
            }
        }
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let steps = Steps { most: 31, first: -0.5, delta: 0.1, last: 15, squares: true };
        k::encode_groups_of_32(values, &steps).into()
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], _: f32) -> Self {
        k::encode_groups_of_32_weighted(values, importance, 31).into()
    }
}

impl From<k::GroupsOf32> for Block {
    fn from(block: k::GroupsOf32) -> Self {
        let mut high_bits = [0; 32];
        for (j, code) in block.codes.iter().enumerate() {
            high_bits[j % 32] |= (code.cast_unsigned() >> 4) << (j / 32);
        }
        Block {
            scale: block.scale,
            min: block.min,
            group_scales: block.group_scales,
            high_bits,
            nibbles: k::pack_nibbles(&block.codes),
        }
    }
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * integer - (min_w * scale_x) * offset.
fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let (scales, mins) = k::unpack_scales(&w.group_scales);
        let integer = k::scaled_dot(&w.codes(), &scales, &x.codes);
        let offset = k::scaled_sums(&mins, &x.sums);
        let scale_x = x.scale.get();
        sum += (w.scale.get() * scale_x) * integer as f32 - (w.min.get() * scale_x) * offset as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, k, q8_k};
    use crate::simd::x86::{Products, load32};

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_k::Block]) -> f32 {
        k::avx2::dot_with_min(weights, input, |w| [w.scale, w.min], |w, x| integers::<V>(w, x))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_k::Block]) -> [f32; 4] {
        k::avx2::rows4_with_min(rows, input, |w| [w.scale, w.min], |w, x| integers::<V>(w, x))
    }

    /// Pair sums of codes and input are at most 2 * 31 * 127: no saturation.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn integers<V: Products>(w: &Block, x: &q8_k::Block) -> (__m256i, __m256i) {
        let (scales, offsets) = k::avx2::scales_and_offsets(&w.group_scales, x);
        let mut bits = load32(&w.high_bits);
        let nibbles: &[[u8; 32]; 4] = bytemuck::cast_ref(&w.nibbles);
        let mut integers = _mm256_setzero_si256();
        for i in 0..4 {
            let [low, high] = pair(load32(&nibbles[i]), bits);
            bits = _mm256_srli_epi16::<2>(bits);
            integers = k::avx2::add_group::<V>(integers, low, x, scales, 2 * i);
            integers = k::avx2::add_group::<V>(integers, high, x, scales, 2 * i + 1);
        }
        (integers, offsets)
    }

    /// The codes of two groups: low and high nibbles, with the two lowest bits of each byte of `bits` on top.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pair(nibbles: __m256i, bits: __m256i) -> [__m256i; 2] {
        let low = |v| _mm256_and_si256(v, _mm256_set1_epi8(15));
        let high = |v| _mm256_and_si256(v, _mm256_set1_epi8(16));
        [
            _mm256_or_si256(low(nibbles), high(_mm256_slli_epi16::<4>(bits))),
            _mm256_or_si256(low(_mm256_srli_epi16::<4>(nibbles)), high(_mm256_slli_epi16::<3>(bits))),
        ]
    }
}

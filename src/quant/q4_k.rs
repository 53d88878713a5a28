//! Q4_K: 256 weights in 144 bytes: an f16 scale and an f16 minimum for the block, 8 groups of 32 with a 6-bit scale
//! and minimum each (packed in 12 bytes), then 128 bytes of nibbles. Byte 32 * p + i holds weight i of group 2p (low)
//! and of group 2p + 1 (high); weight = (scale * group scale) * nibble - min * group min.
//! (ggml: `d`, `dmin`, `scales`, `qs`.)

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
    nibbles: [u8; 128],
}

/// The table row. Measured (see [`panel`]): four rows 33, panels 95 GMAC/s; 7.6 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("q4_k", Some(12))
    .shader(include_str!("../../wgsl/quant/q4_k.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; dot, avx2])
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 144;

    fn decode(&self, out: &mut [f32]) {
        k::decode_groups_of_32(
            self.scale,
            self.min,
            &self.group_scales,
            &k::unpack_nibbles(&self.nibbles),
            out,
        );
    }
}

impl Scaled for Block {
    const CODES: Codes = Codes::Unsigned { most: 15, bias: 0 };
    const GROUP: usize = 32;
    const MIN: bool = true;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        (parts.scale, parts.min) = (self.scale.get(), self.min.get());
        (parts.multipliers, parts.mins) = k::multipliers_and_mins(&self.group_scales);
        k::nibbles(&self.nibbles, &mut parts.codes);
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let steps = Steps { most: 15, first: -1.0, delta: 0.1, last: 20, squares: true };
        k::encode_groups_of_32(values, &steps).into()
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], _: f32) -> Self {
        k::encode_groups_of_32_weighted(values, importance, 15).into()
    }
}

impl From<k::GroupsOf32> for Block {
    fn from(block: k::GroupsOf32) -> Self {
        Block {
            scale: block.scale,
            min: block.min,
            group_scales: block.group_scales,
            nibbles: k::pack_nibbles(&block.codes),
        }
    }
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * integer - (min_w * scale_x) * offset.
fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let (scales, mins) = k::unpack_scales(&w.group_scales);
        let integer = k::scaled_dot(&k::unpack_nibbles(&w.nibbles), &scales, &x.codes);
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

    /// Pair sums of nibbles and input are at most 2 * 15 * 127: no saturation.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn integers<V: Products>(w: &Block, x: &q8_k::Block) -> (__m256i, __m256i) {
        let mask = _mm256_set1_epi8(15);
        let (scales, offsets) = k::avx2::scales_and_offsets(&w.group_scales, x);
        let nibbles: &[[u8; 32]; 4] = bytemuck::cast_ref(&w.nibbles);
        let mut integers = _mm256_setzero_si256();
        for pair in 0..4 {
            let both = load32(&nibbles[pair]);
            let low = _mm256_and_si256(both, mask);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask);
            integers = k::avx2::add_group::<V>(integers, low, x, scales, 2 * pair);
            integers = k::avx2::add_group::<V>(integers, high, x, scales, 2 * pair + 1);
        }
        (integers, offsets)
    }
}

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

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("q4_k", Some(12))
    .encoder::<Block>()
    .dot(
        &q8_k::FORMAT,
        arms![Block, q8_k::Block; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: avx2::dot | avx2::dot4],
    )
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
        let steps = Steps { most: 15, first: -1.0, last: 20, error: |difference| difference * difference };
        let block = k::encode_groups_of_32(values, &steps);
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

    use super::k::avx2::GroupsOf32;
    use super::{Block, k, q8_k};
    use crate::simd::x86::{load32, load32i};

    /// Pair sums of nibbles and input are at most 2 * 15 * 127: no saturation.
    #[target_feature(enable = "avx2,f16c")]
    pub fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
        let mask = _mm256_set1_epi8(15);
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input) {
            let (scales, offsets) = k::avx2::scales_and_offsets(&w.group_scales, x);
            let mut integers = _mm256_setzero_si256();
            let pairs = w.nibbles.as_chunks::<32>().0.iter().zip(x.codes.as_chunks::<64>().0);
            for (pair, (nibbles, x)) in pairs.enumerate() {
                let both = load32(nibbles);
                let low = _mm256_and_si256(both, mask);
                let high = _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask);
                let (x, _) = x.as_chunks::<32>();
                for (half, codes) in [low, high].into_iter().enumerate() {
                    let pair_sums = _mm256_maddubs_epi16(codes, load32i(&x[half]));
                    let scale = k::avx2::spread(scales, 2 * pair + half);
                    integers = _mm256_add_epi32(integers, _mm256_madd_epi16(pair_sums, scale));
                }
            }
            sum += k::avx2::term_with_min([w.scale, w.min], x.scale.get(), integers, offsets);
        }
        sum
    }

    /// [`dot`] with four inputs.
    #[target_feature(enable = "avx2,f16c")]
    pub fn dot4(weights: &[Block], inputs: [&[q8_k::Block]; 4]) -> [f32; 4] {
        k::avx2::dot4_groups_of_32(weights, inputs, |w| {
            let mut codes = [_mm256_setzero_si256(); 8];
            for (codes, nibbles) in codes.as_chunks_mut::<2>().0.iter_mut().zip(w.nibbles.as_chunks::<32>().0)
            {
                let (mask, both) = (_mm256_set1_epi8(15), load32(nibbles));
                let high = _mm256_srli_epi16::<4>(both);
                *codes = [_mm256_and_si256(both, mask), _mm256_and_si256(high, mask)];
            }
            GroupsOf32 { scale: w.scale, min: w.min, group_scales: &w.group_scales, codes }
        })
    }
}

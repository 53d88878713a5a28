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

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("q5_k", Some(13))
    .encoder::<Block>()
    .dot(
        &q8_k::FORMAT,
        arms![Block, q8_k::Block; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: avx2::dot | avx2::dot4],
    )
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
        let steps = Steps { most: 31, first: -0.5, last: 15, error: |difference| difference * difference };
        let block = k::encode_groups_of_32(values, &steps);
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

    use super::k::avx2::GroupsOf32;
    use super::{Block, k, q8_k};
    use crate::simd::x86::{load32, load32i};

    /// Pair sums of codes and input are at most 2 * 31 * 127: no saturation.
    #[target_feature(enable = "avx2,f16c")]
    pub fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input) {
            let (scales, offsets) = k::avx2::scales_and_offsets(&w.group_scales, x);
            let mut bits = load32(&w.high_bits);
            let mut integers = _mm256_setzero_si256();
            let pairs = w.nibbles.as_chunks::<32>().0.iter().zip(x.codes.as_chunks::<64>().0);
            for (index, (nibbles, x)) in pairs.enumerate() {
                let codes = pair(load32(nibbles), bits);
                bits = _mm256_srli_epi16::<2>(bits);
                let (x, _) = x.as_chunks::<32>();
                for (half, codes) in codes.into_iter().enumerate() {
                    let pair_sums = _mm256_maddubs_epi16(codes, load32i(&x[half]));
                    let scale = k::avx2::spread(scales, 2 * index + half);
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
            let mut bits = load32(&w.high_bits);
            for (codes, nibbles) in codes.as_chunks_mut::<2>().0.iter_mut().zip(w.nibbles.as_chunks::<32>().0)
            {
                *codes = pair(load32(nibbles), bits);
                bits = _mm256_srli_epi16::<2>(bits);
            }
            GroupsOf32 { scale: w.scale, min: w.min, group_scales: &w.group_scales, codes }
        })
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

//! Q5_K: 256 weights in 176 bytes: as [`super::q4_k`], with 32 bytes of high bits before the nibbles: bit g of byte i
//! is the fifth bit of weight i of group g; weight = (scale * group scale) * code - min * group min.
//! (ggml: `d`, `dmin`, `scales`, `qh`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::{Format, arms, k, q8_k};

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
pub static FORMAT: Format = Format::new::<Block>("q5_k", Some(13)).dot(
    &q8_k::FORMAT,
    arms![Block, q8_k::Block; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: avx2::dot],
);

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
    use crate::simd::x86::{load32, load32i};

    /// Pair sums of codes and input are at most 2 * 31 * 127: no saturation.
    #[target_feature(enable = "avx2,f16c")]
    pub fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
        let mask = _mm256_set1_epi8(15);
        let high = |bits| _mm256_and_si256(bits, _mm256_set1_epi8(16));
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input) {
            let (scales, offsets) = k::avx2::scales_and_offsets(&w.group_scales, x);
            let mut bits = load32(&w.high_bits);
            let mut integers = _mm256_setzero_si256();
            let pairs = w.nibbles.as_chunks::<32>().0.iter().zip(x.codes.as_chunks::<64>().0);
            for (pair, (nibbles, x)) in pairs.enumerate() {
                let both = load32(nibbles);
                let low_nibbles = _mm256_and_si256(both, mask);
                let high_nibbles = _mm256_and_si256(_mm256_srli_epi16::<4>(both), mask);
                // The pair's bits are at the bottom of each byte: they move up to the nibbles.
                let even = _mm256_or_si256(low_nibbles, high(_mm256_slli_epi16::<4>(bits)));
                let odd = _mm256_or_si256(high_nibbles, high(_mm256_slli_epi16::<3>(bits)));
                bits = _mm256_srli_epi16::<2>(bits);
                let (x, _) = x.as_chunks::<32>();
                for (half, codes) in [even, odd].into_iter().enumerate() {
                    let pair_sums = _mm256_maddubs_epi16(codes, load32i(&x[half]));
                    let scale = k::avx2::spread(scales, 2 * pair + half);
                    integers = _mm256_add_epi32(integers, _mm256_madd_epi16(pair_sums, scale));
                }
            }
            sum += k::avx2::term_with_min([w.scale, w.min], x.scale.get(), integers, offsets);
        }
        sum
    }
}

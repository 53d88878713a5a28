//! Q8_1: 32 activations in 36 bytes: an f16 scale, an f16 sum (scale * sum of the codes), then 32 signed codes;
//! value = code * scale. Only what the inputs of Q4_1 and Q5_1 are quantized to: the sum meets their minimum.
//! (ggml: `d`, `s`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::{Format, q8_0, quantizers};

/// 32 activations.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Step between codes.
    pub scale: F16,
    /// The sum of the 32 values, from the f32 scale, then rounded.
    pub sum: F16,
    /// -127..=127.
    pub codes: [i8; 32],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("q8_1", Some(9))
    .encoder::<Block>()
    .largest(65_504.0 / 32.0)
    .quantizers(quantizers![
        Block;
        #[cfg(target_arch = "x86_64")] Avx2: avx2::quantize,
        #[cfg(target_arch = "aarch64")] Neon: quantize_lanes,
        #[cfg(target_arch = "wasm32")] Simd128: quantize_lanes,
    ]);

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 36;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, &code) in out.iter_mut().zip(&self.codes) {
            *out = f32::from(code) * scale;
        }
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let (scale, codes) = q8_0::encode_codes(values);
        let sum: i32 = codes.iter().map(|&code| i32::from(code)).sum();
        Block { scale: F16::new(scale), sum: F16::new(sum as f32 * scale), codes }
    }
}

/// See [`q8_0::lanes`].
#[cfg(not(target_arch = "x86_64"))]
fn quantize_lanes(values: &[f32], out: &mut [Block]) {
    for (values, out) in values.as_chunks::<32>().0.iter().zip(out) {
        let (scale, codes) = q8_0::lanes::encode_codes(values);
        let sum: i32 = codes.iter().map(|&code| i32::from(code)).sum();
        *out = Block { scale: F16::new(scale), sum: F16::new(sum as f32 * scale), codes };
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use bytemuck::Pod;

    use super::{Block, q8_0};
    use crate::simd::x86::{
        Avx2, FourRows, Products, half, leading_halves, leading_halves_of_4, load32i, sum_i32,
    };

    /// The dot of any format with blocks of 32 unsigned `codes`, at most 32, that begin with f16 scale and minimum,
    /// and Q8_1 inputs. The integers of four blocks are summed together; their terms are added one by one, in the
    /// order of the scalar dot.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn dot_blocks<V: Products, W: Pod>(
        weights: &[W],
        input: &[Block],
        codes: impl Fn(&W) -> __m256i,
    ) -> f32 {
        let mut sum = 0.0;
        let (weight_groups, weight_rest) = weights.as_chunks::<4>();
        let (input_groups, input_rest) = input.as_chunks::<4>();
        for (w, x) in weight_groups.iter().zip(input_groups) {
            let products = |i: usize| V::dot(codes(&w[i]), load32i(&x[i].codes));
            let integers = _mm_cvtepi32_ps(V::totals([products(0), products(1), products(2), products(3)]));
            let both = _mm256_mul_ps(leading_halves_of_4(w.each_ref()), leading_halves_of_4(x.each_ref()));
            let (scales, offsets) = (_mm256_castps256_ps128(both), _mm256_extractf128_ps::<1>(both));
            let terms: [f32; 4] = bytemuck::cast(_mm_add_ps(_mm_mul_ps(scales, integers), offsets));
            for term in terms {
                sum += term;
            }
        }
        for (w, x) in weight_rest.iter().zip(input_rest) {
            let integer = sum_i32(V::fours(V::dot(codes(w), load32i(&x.codes))));
            let both = _mm_mul_ps(leading_halves(w), leading_halves(x));
            let (scale, offset) = (_mm_cvtss_f32(both), _mm_cvtss_f32(_mm_movehdup_ps(both)));
            sum += scale * integer as f32 + offset;
        }
        sum
    }

    /// The dots of four rows, each of which takes a lane of the sum.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4_blocks<V: Products, W: Pod>(
        rows: [&[W]; 4],
        input: &[Block],
        codes: impl Fn(&W) -> __m256i,
    ) -> [f32; 4] {
        let mut sums = _mm_setzero_ps();
        let rows = FourRows::new(rows, input.len());
        for (i, x) in input.iter().enumerate() {
            let [a, b, c, d] = rows.blocks(i);
            let input = load32i(&x.codes);
            let products = |w: &W| V::dot(codes(w), input);
            let integers = _mm_cvtepi32_ps(V::totals([products(a), products(b), products(c), products(d)]));
            let both = leading_halves(x);
            let (scale, sum) = (_mm_broadcastss_ps(both), _mm_broadcastss_ps(_mm_movehdup_ps(both)));
            let both = leading_halves_of_4([a, b, c, d]);
            let (scales, mins) = (_mm256_castps256_ps128(both), _mm256_extractf128_ps::<1>(both));
            let terms = _mm_mul_ps(_mm_mul_ps(scales, scale), integers);
            sums = _mm_add_ps(sums, _mm_add_ps(terms, _mm_mul_ps(mins, sum)));
        }
        bytemuck::cast(sums)
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn quantize(values: &[f32], out: &mut [Block]) {
        for (values, out) in values.as_chunks::<32>().0.iter().zip(out) {
            let (scale, codes) = q8_0::avx2::encode_codes(values);
            let sum = sum_i32(Avx2::fours(Avx2::dot(_mm256_set1_epi8(1), codes)));
            *out = Block {
                scale: bytemuck::cast(half(scale)),
                sum: bytemuck::cast(half(sum as f32 * scale)),
                codes: bytemuck::cast(codes),
            };
        }
    }
}

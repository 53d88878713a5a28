//! Keys: 32 elements in 4 + 4 b bytes: an f16 scale, an f16 zero, then codes of b bits as a bit stream (`bits.rs`);
//! element = (code + zero) · scale. Codes are -127..=127 for 8 bits, else 0..=2^b - 1.
//!
//! Elements that are all alike and not tiny have a scale of 0 and a zero of ±infinity, and decode to NaN: so does the
//! reference (vllm-metal), whose bytes these are.

use bytemuck::{Pod, Zeroable};

use super::{bits, query};
use crate::quant::le::F16;
use crate::quant::parts::{Codes, Shuffle, Terms};
use crate::quant::{Format, arms, panel, q8_0};

/// 32 elements with `N` bytes of codes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Block<const N: usize> {
    scale: F16,
    zero: F16,
    codes: [u8; N],
}

// SAFETY: all fields are plain bytes of alignment 1, so zeros are a value and there is no padding.
unsafe impl<const N: usize> Zeroable for Block<N> {}
// SAFETY: as above; any bytes are a value.
unsafe impl<const N: usize> Pod for Block<N> {}

/// The row of `$bytes` bytes of codes, and its dots in a module of its own: arms name functions of one block.
macro_rules! row {
    ($(#[$doc:meta])* $row:ident, $name:literal, $bytes:literal, $module:ident) => {
        $(#[$doc])*
        pub static $row: Format = Format::new::<Block<$bytes>>($name, None)
            .shader(include_str!("../../../wgsl/quant/turbo_keys.wgsl"))
            .encode_shader(include_str!("../../../wgsl/encode/turbo_keys.wgsl"))
            .encoder::<Block<$bytes>>()
            .dot(&query::FORMAT, arms![terms; Block<$bytes>, query::Block; dot, $module])
            .panel(panel::terms::<Block<$bytes>>());

        #[cfg(target_arch = "x86_64")]
        mod $module {
            use super::{Block, avx2, query};
            use crate::simd::x86::Products;

            #[target_feature(enable = "avx2,f16c")]
            pub fn dot<V: Products>(keys: &[Block<$bytes>], query: &[query::Block]) -> f32 {
                avx2::dot::<V, $bytes>(keys, query)
            }

            #[target_feature(enable = "avx2,f16c")]
            pub fn rows4<V: Products>(rows: [&[Block<$bytes>]; 4], query: &[query::Block]) -> [f32; 4] {
                avx2::rows4::<V, $bytes>(rows, query)
            }
        }
    };
}

row!(
    /// 2 bits.
    K2, "turbo_k2", 8, k2
);
row!(
    /// 4 bits.
    K4, "turbo_k4", 16, k4
);
row!(
    /// 5 bits.
    K5, "turbo_k5", 20, k5
);
row!(
    /// 8 bits.
    K8, "turbo_k8", 32, k8
);

/// Added to the scale before numbers are divided by it; never stored.
const EPSILON: f32 = 1e-8;

impl<const N: usize> Block<N> {
    /// Codes as they are multiplied: i8 for 8 bits, else u8.
    #[inline(always)]
    fn signed_codes(&self) -> [i8; 32] {
        bits::unpack(&self.codes).map(u8::cast_signed)
    }
}

impl<const N: usize> crate::quant::Block for Block<N> {
    const LEN: usize = 32;
    const BYTES: usize = 4 + N;

    #[inline(always)]
    fn decode(&self, out: &mut [f32]) {
        let (scale, zero) = (self.scale.get(), self.zero.get());
        for (out, code) in out.iter_mut().zip(self.signed_codes()) {
            *out = (f32::from(code) + zero) * scale;
        }
    }
}

impl<const N: usize> crate::quant::Encode for Block<N> {
    /// A NaN or infinity among the values makes all codes 0.
    fn encode(values: &[f32]) -> Self {
        let (min, max) = range(values);
        let most = (1u32 << (N / 4)) as f32 - 1.0;
        let (scale, divisor, zero, least, most) = if N == 32 {
            let scale = (max - min) / 254.0;
            let divisor = scale + EPSILON;
            (scale, divisor, ((max + min) / (2.0 * divisor)).round_ties_even(), -127.0, 127.0)
        } else {
            let scale = (max - min) / most;
            let divisor = scale + EPSILON;
            (scale, divisor, (min / divisor).round_ties_even(), 0.0, most)
        };
        let mut codes = [0; 32];
        for (code, &value) in codes.iter_mut().zip(values) {
            let nearest = (value / divisor - zero).round_ties_even();
            *code = (nearest.clamp(least, most) as i8).cast_unsigned();
        }
        Block { scale: F16::new(scale), zero: F16::new(zero), codes: bits::pack(&codes) }
    }
}

/// The smallest and the largest value; NaN if one is.
fn range(values: &[f32]) -> (f32, f32) {
    let (mut min, mut max) = (values[0], values[0]);
    for &value in values {
        if value.is_nan() {
            return (value, value);
        }
        min = if value < min { value } else { min };
        max = if value > max { value } else { max };
    }
    (min, max)
}

impl<const N: usize> Terms for Block<N> {
    const CODES: Codes =
        if N == 32 { Codes::Signed } else { Codes::Unsigned { most: (1 << (N / 4)) - 1, bias: 0 } };
    const MIN: bool = true;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        (scales[0], mins[0]) = (self.scale.get(), self.zero.get() * self.scale.get());
        *codes.first_chunk_mut().expect("a block's codes") = bits::unpack(&self.codes);
    }
}

/// Blocks in ascending order: sum += (scale_k · scale_q) · exact integer dot + (zero_k · scale_k) · sum_q.
fn dot<const N: usize>(keys: &[Block<N>], query: &[query::Block]) -> f32 {
    let mut sum = 0.0;
    for (k, q) in keys.iter().zip(query) {
        let integer = q8_0::integer_dot(&k.signed_codes(), &q.codes);
        let (scale, zero) = (k.scale.get(), k.zero.get());
        sum += (scale * q.scale.get()) * integer as f32 + (zero * scale) * q.sum.get();
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, bits, query};
    use crate::simd::x86::{FourRows, Products, load32i, move_signs, sum_i32, sum4_i32};

    /// Each row takes a lane of the sum.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products, const N: usize>(rows: [&[Block<N>]; 4], query: &[query::Block]) -> [f32; 4] {
        let mut sums = _mm_setzero_ps();
        let rows = FourRows::new(rows, query.len());
        for (i, q) in query.iter().enumerate() {
            let [a, b, c, d] = rows.blocks(i);
            let codes = load32i(&q.codes);
            let products = |k: &Block<N>| products::<V, N>(k, codes);
            let products = [products(a), products(b), products(c), products(d)];
            let integers = if N == 32 { sum4_i32(products) } else { V::totals(products) };
            let (scales, zeros) = scales_and_zeros([a, b, c, d]);
            let (scale, sum) = (_mm_set1_ps(q.scale.get()), _mm_set1_ps(q.sum.get()));
            let terms = _mm_mul_ps(_mm_mul_ps(scales, scale), _mm_cvtepi32_ps(integers));
            let offsets = _mm_mul_ps(_mm_mul_ps(zeros, scales), sum);
            sums = _mm_add_ps(sums, _mm_add_ps(terms, offsets));
        }
        bytemuck::cast(sums)
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products, const N: usize>(keys: &[Block<N>], query: &[query::Block]) -> f32 {
        let mut sum = 0.0;
        for (k, q) in keys.iter().zip(query) {
            let products = products::<V, N>(k, load32i(&q.codes));
            let integer = sum_i32(if N == 32 { products } else { V::fours(products) });
            let (scale, zero) = (k.scale.get(), k.zero.get());
            sum += (scale * q.scale.get()) * integer as f32 + (zero * scale) * q.sum.get();
        }
        sum
    }

    /// Partial sums: in fours for signed codes, two products of which may fill an i16; else codes are at most 31, and four
    /// sums of two fit.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products<V: Products, const N: usize>(keys: &Block<N>, query: __m256i) -> __m256i {
        let codes = bits::avx2::unpack(&keys.codes);
        if N < 32 {
            return V::dot(codes, query);
        }
        let (magnitudes, query) = move_signs(codes, query);
        V::fours(V::dot(magnitudes, query))
    }

    /// Those of four blocks, which may be shorter than a vector.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn scales_and_zeros<const N: usize>(blocks: [&Block<N>; 4]) -> (__m128, __m128) {
        let word = |i: usize| -> i32 { bytemuck::cast([blocks[i].scale, blocks[i].zero]) };
        let words = _mm_setr_epi32(word(0), word(1), word(2), word(3));
        let order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        let both = _mm256_cvtph_ps(_mm_shuffle_epi8(words, order));
        (_mm256_castps256_ps128(both), _mm256_extractf128_ps::<1>(both))
    }
}

//! Q2_0: 128 weights in 34 bytes: an f16 scale, then 2-bit codes, four to a byte, lowest first;
//! weight = (code - 1) * scale, so that codes 0, 1 and 2 are ternary weights and 3 is twice the scale.
//! PrismML's layout, as Fucina reads it. [`super::q2_0_g64`] is ggml's own with the same GGUF id and half the block.

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::parts::{self, Codes, Shuffle, Terms};
use super::{Format, arms, panel, q8_0};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    /// Of 32 weights each.
    codes: [[u8; 8]; 4],
}

/// The table row. Measured (see [`panel`]): four rows 18, panels 38 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("q2_0", Some(42))
    .shader(include_str!("../../wgsl/quant/q2_0.wgsl"))
    .encoder::<Block>()
    .dot(&q8_0::FORMAT, arms![terms; Block, q8_0::Block; dot, avx2])
    .panel(panel::terms::<Block>());

impl super::Block for Block {
    const LEN: usize = 128;
    const BYTES: usize = 34;

    fn decode(&self, out: &mut [f32]) {
        decode(self.scale.get(), self.codes.as_flattened(), out);
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Unsigned { most: 3, bias: 1 };
    const SUMS: usize = 4;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], _: &mut [f32]) {
        scales.fill(self.scale.get());
        unpack_codes(self.codes.as_flattened(), codes);
    }
}

/// Four codes for each byte.
#[inline(always)]
pub(super) fn unpack_codes(bytes: &[u8], codes: &mut [u8]) {
    for (codes, &byte) in codes.chunks_exact_mut(4).zip(bytes) {
        codes.copy_from_slice(&parts::BIT_PAIRS[usize::from(byte)]);
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let mut codes = [[0; 8]; 4];
        let scale = encode(values, codes.as_flattened_mut());
        Block { scale, codes }
    }
}

/// Four weights of `out` for each byte of codes.
pub(super) fn decode(scale: f32, codes: &[u8], out: &mut [f32]) {
    for (out, byte) in out.chunks_exact_mut(4).zip(codes) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = (f32::from(byte >> (2 * i) & 3) - 1.0) * scale;
        }
    }
}

/// The scale is the largest magnitude; codes come from the unrounded scale and round half away from zero. A block whose
/// reciprocal scale overflows has code 1, zero, everywhere.
pub(super) fn encode(values: &[f32], codes: &mut [u8]) -> F16 {
    let scale = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let inverse = 1.0 / scale;
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    for (values, byte) in values.chunks_exact(4).zip(codes) {
        for (i, value) in values.iter().enumerate() {
            *byte |= (((value * inverse).round() + 1.0).clamp(0.0, 3.0) as u8) << (2 * i);
        }
    }
    F16::new(scale)
}

/// The dot of 32 codes, each less 1, with the codes of an input block.
pub(super) fn integer_dot(codes: &[u8; 8], input: &[i8; 32]) -> i32 {
    let code = |i: usize| i32::from(codes[i / 4] >> (2 * (i % 4)) & 3) - 1;
    input.iter().enumerate().map(|(i, &x)| code(i) * i32::from(x)).sum()
}

/// Four lanes, one for each quarter of a block. Blocks in ascending order:
/// lane += (scale_w * scale_x) * exact integer dot; at the end (lane 0 + lane 1) + (lane 2 + lane 3).
fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
    let mut lanes = [0.0f32; 4];
    for (w, x) in weights.iter().zip(input.as_chunks::<4>().0) {
        for ((lane, codes), x) in lanes.iter_mut().zip(&w.codes).zip(x) {
            *lane += (w.scale.get() * x.scale.get()) * integer_dot(codes, &x.codes) as f32;
        }
    }
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, q8_0};
    use crate::simd::x86::{Products, load32i, sum_each};

    #[target_feature(enable = "avx2")]
    pub(super) fn dot<V: Products>(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        let mut lanes = _mm_setzero_ps();
        for (w, [a, b, c, d]) in weights.iter().zip(input.as_chunks().0) {
            let integers = sum_each(
                products::<V>(w.codes[0], &a.codes),
                products::<V>(w.codes[1], &b.codes),
                products::<V>(w.codes[2], &c.codes),
                products::<V>(w.codes[3], &d.codes),
            );
            let inputs = _mm_set_ps(d.scale.get(), c.scale.get(), b.scale.get(), a.scale.get());
            let scales = _mm_mul_ps(_mm_set1_ps(w.scale.get()), inputs);
            lanes = _mm_add_ps(lanes, _mm_mul_ps(scales, _mm_cvtepi32_ps(integers)));
        }
        let pairs = _mm_hadd_ps(lanes, lanes);
        _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_0::Block]) -> [f32; 4] {
        let sums = |w: &Block, p: usize, x| sums::<V>(w.codes[p], x);
        let [a, b, c, d] = q8_0::avx2::rows4_parts::<V, _, 4, true>(rows, input, sums);
        bytemuck::cast(_mm_add_ps(_mm_add_ps(a, b), _mm_add_ps(c, d)))
    }

    /// The terms of [`super::integer_dot`], summed in fours: 8 × i32.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn products<V: Products>(codes: [u8; 8], input: &[i8; 32]) -> __m256i {
        V::fours(sums::<V>(codes, load32i(input)))
    }

    /// Sums of the terms of [`super::integer_dot`], see [`Products`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn sums<V: Products>(codes: [u8; 8], input: __m256i) -> __m256i {
        let bias = _mm256_maddubs_epi16(_mm256_set1_epi8(1), input);
        V::less(V::dot(crumbs(codes), input), bias)
    }

    /// 32 codes of 2 bits, lowest first, to bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn crumbs(bytes: [u8; 8]) -> __m256i {
        // In each lane of four: the byte, and it shifted so that its code i lies at the bottom of byte i.
        let bytes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(bytes)));
        let halves = _mm256_or_si256(bytes, _mm256_slli_epi32::<12>(bytes));
        let quarters = _mm256_or_si256(halves, _mm256_slli_epi32::<6>(halves));
        _mm256_and_si256(quarters, _mm256_set1_epi8(3))
    }
}

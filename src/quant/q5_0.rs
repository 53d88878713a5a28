//! Q5_0: 32 weights in 22 bytes: an f16 scale, 32 high bits (bit j of the little-endian word is weight j's), then 16
//! bytes of nibbles. Byte j holds weight j (low nibble) and weight j + 16 (high); the code is nibble + 16 * bit,
//! weight = (code - 16) * scale. (ggml: `d`, `qh`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::k::search;
use super::le::{F16, U32};
use super::parts::{self, Codes, Shuffle, Terms};
use super::{Format, arms, panel, q4_0, q8_0};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    high_bits: U32,
    nibbles: [u8; 16],
}

/// The table row. Measured (see [`panel`]): four rows 17, panels 49 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("q5_0", Some(6))
    .shader(include_str!("../../wgsl/quant/q5_0.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_0::FORMAT, arms![terms; Block, q8_0::Block; dot, avx2])
    .panel(panel::terms::<Block>());

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 22;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, code) in out.iter_mut().zip(unpack(self.high_bits, &self.nibbles)) {
            *out = f32::from(code - 16) * scale;
        }
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Unsigned { most: 31, bias: 16 };

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], _: &mut [f32]) {
        scales[0] = self.scale.get();
        unpack_codes(self.high_bits, &self.nibbles, codes);
    }
}

/// The 32 codes, 0..=31.
#[inline(always)]
pub(super) fn unpack_codes(high_bits: U32, nibbles: &[u8; 16], codes: &mut [u8]) {
    parts::nibbles(nibbles, codes);
    for (codes, bits) in codes.chunks_exact_mut(8).zip(high_bits.get().to_le_bytes()) {
        for (code, bit) in codes.iter_mut().zip(&parts::BITS[usize::from(bits)]) {
            *code |= bit & 16;
        }
    }
}

impl super::Encode for Block {
    /// The scale maps the signed value of the first largest magnitude to code 0, so that it is exact.
    fn encode(values: &[f32]) -> Self {
        let scale = q4_0::first_extreme(values) / -16.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let (high_bits, nibbles) = pack(|j| q4_0::truncate(values[j] * inverse + 16.5, 31.0, inverse));
        Block { scale: F16::new(scale), high_bits, nibbles }
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], energy: f32) -> Self {
        let (mut weights, mut codes) = ([0.0; 32], [0; 32]);
        search::weights(values, importance, energy, &mut weights);
        let scale = search::symmetric_weighted(values, &weights, 16, &mut codes);
        let (high_bits, nibbles) = pack(|j| (codes[j] + 16).cast_unsigned());
        Block { scale: F16::new(scale), high_bits, nibbles }
    }
}

/// The 32 codes, 0..=31.
pub(super) fn unpack(high_bits: U32, nibbles: &[u8; 16]) -> [i8; 32] {
    let high_bit = |j: usize| (high_bits.get() >> j & 1) as i8 * 16;
    let mut codes = [0; 32];
    for (j, &byte) in nibbles.iter().enumerate() {
        codes[j] = (byte & 15).cast_signed() + high_bit(j);
        codes[j + 16] = (byte >> 4).cast_signed() + high_bit(j + 16);
    }
    codes
}

/// High bits and nibbles of 32 codes, 0..=31, which `code` gives.
pub(super) fn pack(code: impl Fn(usize) -> u8) -> (U32, [u8; 16]) {
    let mut high_bits = 0;
    let mut nibbles = [0; 16];
    for (j, byte) in nibbles.iter_mut().enumerate() {
        let (low, high) = (code(j), code(j + 16));
        *byte = low & 15 | high << 4;
        high_bits |= u32::from(low >> 4) << j | u32::from(high >> 4) << (j + 16);
    }
    (U32::new(high_bits), nibbles)
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let codes = unpack(w.high_bits, &w.nibbles).map(|code| code - 16);
        sum += (w.scale.get() * x.scale.get()) * q8_0::integer_dot(&codes, &x.codes) as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, U32, q8_0};
    use crate::simd::x86::{Products, bit_masks, nibbles};

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn dot<V: Products>(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        q8_0::avx2::dot_blocks(weights, input, |w, x| products::<V>(w, x), |sums| V::totals(sums))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_0::Block]) -> [f32; 4] {
        let scales = |w: [&Block; 4]| q8_0::avx2::leading_scales(w);
        q8_0::avx2::rows4_blocks(rows, input, scales, |w, x| products::<V>(w, x), |sums| V::totals(sums))
    }

    /// Code - 16 is the nibble, less 16 where the high bit is clear: those inputs are summed apart.
    /// The pair sums are at most 2 * 16 * 127.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products<V: Products>(w: &Block, x: __m256i) -> __m256i {
        let low = _mm256_andnot_si256(bit_masks(w.high_bits.get()), x);
        let bias = _mm256_maddubs_epi16(_mm256_set1_epi8(16), low);
        V::less(V::dot(nibbles(&w.nibbles), x), bias)
    }

    /// The 32 codes, 0..=31.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn unpack(high_bits: U32, low: &[u8; 16]) -> __m256i {
        let high = _mm256_and_si256(bit_masks(high_bits.get()), _mm256_set1_epi8(16));
        _mm256_or_si256(nibbles(low), high)
    }
}

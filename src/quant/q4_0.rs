//! Q4_0: 32 weights in 18 bytes: an f16 scale, then 16 bytes of nibbles.
//! Byte j holds weight j (low nibble) and weight j + 16 (high); weight = (nibble - 8) * scale.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::k::search;
use super::le::F16;
use super::parts::{self, Codes, Shuffle, Terms};
use super::{Format, arms, panel, q8_0};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    nibbles: [u8; 16],
}

/// The table row. Measured (see [`panel`]): four rows 26, panels 87 GMAC/s; 7.1 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("q4_0", Some(2))
    .shader(include_str!("../../wgsl/quant/q4_0.wgsl"))
    .encode_shader(include_str!("../../wgsl/encode/q4_0.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_0::FORMAT, arms![terms; Block, q8_0::Block; dot, avx2])
    .panel(panel::terms::<Block>());

impl Block {
    #[inline(always)]
    fn codes(&self) -> [i8; 32] {
        let mut codes = [0; 32];
        for (j, &byte) in self.nibbles.iter().enumerate() {
            codes[j] = (byte & 15).cast_signed() - 8;
            codes[j + 16] = (byte >> 4).cast_signed() - 8;
        }
        codes
    }
}

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 18;

    #[inline(always)]
    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, code) in out.iter_mut().zip(self.codes()) {
            *out = f32::from(code) * scale;
        }
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Unsigned { most: 15, bias: 8 };

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], _: &mut [f32]) {
        scales[0] = self.scale.get();
        parts::nibbles(&self.nibbles, codes);
    }
}

impl super::Encode for Block {
    /// The scale maps the signed value of the first largest magnitude to code 0, so that it is exact.
    fn encode(values: &[f32]) -> Self {
        let scale = first_extreme(values) / -8.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let code = |value: f32| truncate(value * inverse + 8.5, 15.0, inverse);
        let mut nibbles = [0; 16];
        for (j, byte) in nibbles.iter_mut().enumerate() {
            *byte = code(values[j]) | code(values[j + 16]) << 4;
        }
        Block { scale: F16::new(scale), nibbles }
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], energy: f32) -> Self {
        let (mut weights, mut codes) = ([0.0; 32], [0; 32]);
        search::weights(values, importance, energy, &mut weights);
        let scale = search::symmetric_weighted(values, &weights, 8, &mut codes);
        let code = |j: usize| (codes[j] + 8).cast_unsigned();
        Block { scale: F16::new(scale), nibbles: std::array::from_fn(|j| code(j) | code(j + 16) << 4) }
    }
}

/// The signed value of the first largest magnitude.
pub(super) fn first_extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |extreme, &value| if value.abs() > extreme.abs() { value } else { extreme })
}

/// The code of a scaled value, cut to 0..=`most`. If `inverse`, the reciprocal of the scale, overflowed, it is 0:
/// the reference's conversion is undefined there, and gives 0 on x86; the scale is stored as 0 anyway.
pub(super) fn truncate(scaled: f32, most: f32, inverse: f32) -> u8 {
    if inverse.is_finite() { scaled.max(0.0).min(most) as u8 } else { 0 }
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        sum += (w.scale.get() * x.scale.get()) * q8_0::integer_dot(&w.codes(), &x.codes) as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, q8_0};
    use crate::simd::x86::{Products, nibbles};

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        q8_0::avx2::dot_blocks(weights, input, |w, x| products::<V>(w, x), |sums| V::totals(sums))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_0::Block]) -> [f32; 4] {
        let scales = |w: [&Block; 4]| q8_0::avx2::leading_scales(w);
        q8_0::avx2::rows4_blocks(rows, input, scales, |w, x| products::<V>(w, x), |sums| V::totals(sums))
    }

    /// The bias is taken off the pair sums, which are then at most 2 * 8 * 127.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products<V: Products>(w: &Block, x: __m256i) -> __m256i {
        let bias = _mm256_maddubs_epi16(_mm256_set1_epi8(8), x);
        V::less(V::dot(nibbles(&w.nibbles), x), bias)
    }
}

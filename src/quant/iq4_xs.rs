//! IQ4_XS: 256 weights in 136 bytes: an f16 scale; a u16 of eight 2-bit upper parts and 4 bytes of eight 4-bit lower
//! parts of the multipliers, lowest first; then for each 32 weights 16 bytes of nibbles: byte j holds weight j (low
//! nibble) and weight j + 16 (high). Weight = scale * (multiplier - 32) * `VALUES[nibble]`, the values of
//! [`super::iq4_nl`]. (ggml: `d`, `scales_h`, `scales_l`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::iq4_nl::{VALUES, extreme, group_scale, integer_dot, nearest, pack, squares};
use super::k::search;
use super::le::{F16, U16};
use super::parts::{self, Codes, Parts, Scaled, Shuffle};
use super::{Format, arms, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    multipliers_high: U16,
    multipliers_low: [u8; 4],
    nibbles: [[u8; 16]; 8],
}

/// The table row. Measured (see [`panel`]): four rows 22, panels 61 GMAC/s; 7.8 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("iq4_xs", Some(23))
    .shader(include_str!("../../wgsl/quant/iq4_xs.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; dot, avx2])
    .panel(panel::scaled::<Block>());

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 136;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (g, (out, nibbles)) in out.chunks_exact_mut(32).zip(&self.nibbles).enumerate() {
            let step = scale * f32::from(self.multiplier(g));
            for (j, &byte) in nibbles.iter().enumerate() {
                out[j] = step * f32::from(VALUES[usize::from(byte & 15)]);
                out[j + 16] = step * f32::from(VALUES[usize::from(byte >> 4)]);
            }
        }
    }
}

impl Scaled for Block {
    const CODES: Codes = Codes::Signed;
    const GROUP: usize = 32;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        parts.scale = self.scale.get();
        parts.multipliers = std::array::from_fn(|i| self.multiplier(i / 2));
        for (codes, nibbles) in parts.codes.as_chunks_mut::<32>().0.iter_mut().zip(&self.nibbles) {
            parts::table_nibbles::<S>(bytemuck::cast_ref(&VALUES), nibbles, codes);
        }
    }
}

impl Block {
    /// Of 32 weights; -32..=31.
    fn multiplier(&self, group: usize) -> i16 {
        let low = self.multipliers_low[group / 2] >> (4 * (group % 2)) & 15;
        let high = self.multipliers_high.get() >> (2 * group) & 3;
        (u16::from(low) | high << 4) as i16 - 32
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        Block::of(values, |_, values| squares(values))
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], _: f32) -> Self {
        let energy = values.iter().fold(0.0f32, |sum, x| sum + x * x) * (2.0 / 256.0);
        Block::of(values, |group, values| {
            let mut weights = [0.0; 32];
            search::weights(values, &importance[32 * group..], energy, &mut weights);
            weights
        })
    }
}

impl Block {
    /// The best scale for each 32 values, those in steps of 1/32 of the largest one, then the codes for the
    /// resulting scales. `weights` gives what errors count in a group.
    fn of(values: &[f32], weights: impl Fn(usize, &[f32]) -> [f32; 32]) -> Self {
        let mut scales = [0.0; 8];
        for (g, (scale, values)) in scales.iter_mut().zip(values.chunks_exact(32)).enumerate() {
            *scale = group_scale(values, &weights(g, values));
        }
        let scale = -extreme(&scales) / 32.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let mut block = Block { scale: F16::new(scale), ..Zeroable::zeroed() };
        let mut high = 0;
        for (g, values) in values.chunks_exact(32).enumerate() {
            let multiplier = (inverse * scales[g]).round_ties_even().clamp(-32.0, 31.0) as i16;
            let step = scale * f32::from(multiplier);
            let inverse_step = if step == 0.0 { 0.0 } else { 1.0 / step };
            block.nibbles[g] = pack(&std::array::from_fn(|i| nearest(inverse_step * values[i])));
            let stored = (multiplier + 32) as u16;
            block.multipliers_low[g / 2] |= (stored as u8 & 15) << (4 * (g % 2));
            high |= (stored >> 4) << (2 * g);
        }
        block.multipliers_high = U16::new(high);
        block
    }
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * integer, where the integer is the exact sum over the groups
/// of 32 of the multiplier times the integer dot (at most 32 * 127 * 128 * 256 < 2^31), rounded to the nearest f32, ties
/// to even.
fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let mut integer = 0;
        for (g, (nibbles, x)) in w.nibbles.iter().zip(x.codes.as_chunks().0).enumerate() {
            integer += i32::from(w.multiplier(g)) * integer_dot(&VALUES, nibbles, x);
        }
        sum += (w.scale.get() * x.scale.get()) * integer as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, VALUES, q8_k};
    use crate::quant::k;
    use crate::simd::x86::{Products, lookup16, move_signs, nibbles};

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_k::Block]) -> f32 {
        k::avx2::dot(weights, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_k::Block]) -> [f32; 4] {
        k::avx2::rows4(rows, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    /// Partial sums of a block's integer.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn integers<V: Products>(w: &Block, x: &q8_k::Block) -> __m256i {
        let multipliers = multipliers(w);
        let mut integers = _mm256_setzero_si256();
        for g in 0..8 {
            let codes = lookup16(&VALUES, nibbles(&w.nibbles[g]));
            // No value is -128, so the codes may take the inputs' signs, and those hold anything.
            let (magnitudes, codes) = move_signs(k::avx2::load_group(x, g), codes);
            let multiplier = _mm256_permutevar8x32_epi32(multipliers, _mm256_set1_epi32(g as i32));
            integers = V::add_scaled(integers, magnitudes, codes, multiplier);
        }
        integers
    }

    /// Of the 8 groups, each as two i16.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn multipliers(w: &Block) -> __m256i {
        let low = _mm256_set1_epi32(i32::from_le_bytes(w.multipliers_low));
        let low = _mm256_srlv_epi32(low, _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0));
        let high = _mm256_set1_epi32(i32::from(w.multipliers_high.get()));
        let high = _mm256_srlv_epi32(high, _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0));
        let low = _mm256_and_si256(low, _mm256_set1_epi32(15));
        let high = _mm256_and_si256(high, _mm256_set1_epi32(3));
        let stored = _mm256_or_si256(low, _mm256_slli_epi32::<4>(high));
        let twice = _mm256_or_si256(stored, _mm256_slli_epi32::<16>(stored));
        _mm256_sub_epi16(twice, _mm256_set1_epi16(32))
    }
}

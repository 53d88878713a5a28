//! Q3_K: 256 weights in 110 bytes: 32 bytes of high bits, 64 bytes of low bit pairs, 16 six-bit group scales in 12
//! bytes, then an f16 scale for the block. Bit pairs lie as in [`super::q2_k`]; bit g of high-bit byte i belongs to
//! weight i of the g-th 32; code = pair + 4 * bit, weight = (scale * (group scale - 32)) * (code - 4). Byte j of the
//! group scales holds the low nibbles of scale j (below) and j + 8 (above) for j < 8; bit pair p of byte 8 + j is the
//! upper two bits of scale 4 * p + j. (ggml: `hmask`, `qs`, `scales`, `d`.)

use bytemuck::{Pod, Zeroable};

use super::k::search::{self, nearest};
use super::k::{lanes, symmetric};
use super::le::F16;
use super::parts::{Codes, Parts, Scaled, Shuffle};
use super::q4_0::first_extreme;
use super::{Format, arms, k, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    high_bits: [u8; 32],
    bit_pairs: [u8; 64],
    group_scales: [u8; 12],
    scale: F16,
}

/// The table row. Measured (see [`panel`]): four rows 24, panels 93 GMAC/s; 6.0 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("q3_k", Some(11))
    .shader(include_str!("../../wgsl/quant/q3_k.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; dot, avx2])
    .panel(panel::scaled::<Block>());

impl Block {
    fn scales(&self) -> [i8; 16] {
        let mut scales = [0; 16];
        for (j, scale) in scales.iter_mut().enumerate() {
            let low = self.group_scales[j % 8] >> (4 * (j / 8)) & 15;
            let high = self.group_scales[8 + j % 4] >> (2 * (j / 4)) & 3;
            *scale = (low | high << 4).cast_signed() - 32;
        }
        scales
    }

    fn codes(&self) -> [i8; 256] {
        let mut codes = k::unpack_bit_pairs(&self.bit_pairs);
        for (j, code) in codes.iter_mut().enumerate() {
            let high_bit = self.high_bits[j % 32] >> (j / 32) & 1;
            *code = (*code | (high_bit << 2).cast_signed()) - 4;
        }
        codes
    }

    /// Codes of the search, made anew for the scales as they are stored.
    fn fill(&mut self, values: &[f32], mut codes: [i8; 256]) {
        let scales = self.scales().map(|scale| self.scale.get() * f32::from(scale));
        symmetric::assign(lanes::isa(), values, &scales, 4, &mut codes);
        for code in &mut codes {
            *code += 4;
        }
        for (g, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
            for (bits, code) in self.high_bits.iter_mut().zip(codes) {
                *bits |= (code >> 2).cast_unsigned() << g;
            }
        }
        self.bit_pairs = k::pack_bit_pairs(&codes);
    }
}

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 110;

    fn decode(&self, out: &mut [f32]) {
        let (codes, scales) = (self.codes(), self.scales());
        for (j, (out, code)) in out.iter_mut().zip(codes).enumerate() {
            *out = (self.scale.get() * f32::from(scales[j / 16])) * f32::from(code);
        }
    }
}

impl Scaled for Block {
    const CODES: Codes = Codes::Unsigned { most: 7, bias: 4 };

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        parts.scale = self.scale.get();
        parts.multipliers = self.scales().map(i16::from);
        k::bit_pairs(&self.bit_pairs, &mut parts.codes);
        for (g, codes) in parts.codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (code, bits) in codes.iter_mut().zip(&self.high_bits) {
                *code |= (bits >> g & 1) << 2;
            }
        }
    }
}

impl super::Encode for Block {
    /// The group scale of largest magnitude becomes -32.
    fn encode(values: &[f32]) -> Self {
        let mut codes = [0; 256];
        let scales = symmetric::of_block(&mut codes, |part, codes| {
            symmetric::adjusted(lanes::isa(), &values[part], 4, codes)
        });
        let extreme = first_extreme(&scales);
        let mut block = Block::zeroed();
        if extreme != 0.0 {
            let inverse = -32.0 / extreme;
            block.group_scales =
                pack_scales(&scales.map(|scale| nearest(inverse * scale).clamp(-32, 31) as i8));
            block.scale = F16::new(1.0 / inverse);
        }
        block.fill(values, codes);
        block
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], _: f32) -> Self {
        let energy = 2.0 * values.iter().fold(0.0f32, |sum, x| sum + x * x) / 256.0;
        let mut weights = [0.0; 256];
        search::weights(values, importance, energy, &mut weights);
        let mut sums = [0.0; 16];
        for (sum, weights) in sums.iter_mut().zip(weights.chunks_exact(16)) {
            *sum = weights.iter().fold(0.0f32, |sum, weight| sum + weight);
        }
        let mut codes = [0; 256];
        let scales = symmetric::of_block(&mut codes, |part, codes| {
            symmetric::weighted(lanes::isa(), &values[part.clone()], &weights[part], 4, codes)
        });
        let mut multiples = [0; 16];
        let scale = search::symmetric_weighted(&scales, &sums, 32, &mut multiples);
        let mut block = Block::zeroed();
        block.group_scales = pack_scales(&multiples);
        block.scale = F16::new(scale);
        block.fill(values, codes);
        block
    }
}

/// The inverse of [`Block::scales`].
fn pack_scales(scales: &[i8; 16]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (j, scale) in scales.iter().enumerate() {
        let scale = (scale + 32).cast_unsigned();
        bytes[j % 8] |= (scale & 15) << (4 * (j / 8));
        bytes[8 + j % 4] |= (scale >> 4) << (2 * (j / 4));
    }
    bytes
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * integer.
fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let integer = k::scaled_dot(&w.codes(), &w.scales(), &x.codes);
        sum += (w.scale.get() * x.scale.get()) * integer as f32;
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
        k::avx2::dot(weights, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_k::Block]) -> [f32; 4] {
        k::avx2::rows4(rows, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    /// Codes stay biased by 4: pair sums are at most 2 * 7 * 127, no saturation. The input's sums of sixteens take
    /// the bias off again.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn integers<V: Products>(w: &Block, x: &q8_k::Block) -> __m256i {
        let group_scales = unpack_scales(&w.group_scales);
        let bias = _mm256_madd_epi16(_mm256_cvtepi8_epi16(group_scales), k::avx2::load_sums(x));
        let scales = k::avx2::widen_even_odd(group_scales);
        let mut integers = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32::<2>(bias));
        let mut high_bits = load32(&w.high_bits);
        let halves: &[[u8; 32]; 2] = bytemuck::cast_ref(&w.bit_pairs);
        for half in 0..2 {
            let mut bit_pairs = load32(&halves[half]);
            for section in 4 * half..4 * half + 4 {
                let low = _mm256_and_si256(bit_pairs, _mm256_set1_epi8(3));
                let high = _mm256_and_si256(_mm256_slli_epi16::<2>(high_bits), _mm256_set1_epi8(4));
                bit_pairs = _mm256_srli_epi16::<2>(bit_pairs);
                high_bits = _mm256_srli_epi16::<1>(high_bits);
                let codes = _mm256_or_si256(low, high);
                integers = k::avx2::add_group::<V>(integers, codes, x, scales, section);
            }
        }
        integers
    }

    /// The 16 group scales as bytes, four at a time.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn unpack_scales(bytes: &[u8; 12]) -> __m128i {
        let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let (a, b, upper) = (word(0), word(4), word(8));
        let low = |word: u32| word & 0x0f0f_0f0f;
        let high = |word: u32| word & 0x3030_3030;
        let words = [
            low(a) | high(upper << 4),
            low(b) | high(upper << 2),
            low(a >> 4) | high(upper),
            low(b >> 4) | high(upper >> 2),
        ];
        _mm_sub_epi8(bytemuck::cast(words), _mm_set1_epi8(32))
    }
}

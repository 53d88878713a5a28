//! Q6_K: 256 weights in 210 bytes: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales for groups
//! of 16, then an f16 scale for the block. Each half of 128 weights is four sections of 32: sections 0 and 1 are the
//! low nibbles of the half's 64 nibble bytes, 2 and 3 the high ones; bit pair s of the half's byte i belongs to
//! weight i of section s; weight = (scale * group scale) * (code - 32).
//! (ggml: `ql`, `qh`, `scales`, `d`.)

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
    nibbles: [[u8; 64]; 2],
    bit_pairs: [[u8; 32]; 2],
    group_scales: [i8; 16],
    scale: F16,
}

/// The table row. Measured (see [`panel`]): four rows 28, panels 80 GMAC/s; 9.3 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("q6_k", Some(14))
    .shader(include_str!("../../wgsl/quant/q6_k.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; dot, avx2])
    .panel(panel::scaled::<Block>());

impl Block {
    fn codes(&self) -> [i8; 256] {
        let mut codes = [0; 256];
        for (half, codes) in codes.as_chunks_mut::<128>().0.iter_mut().enumerate() {
            let (nibbles, bit_pairs) = (&self.nibbles[half], &self.bit_pairs[half]);
            for (j, code) in codes.iter_mut().enumerate() {
                let low = nibbles[j % 64] >> (4 * (j / 64)) & 15;
                let high = bit_pairs[j % 32] >> (2 * (j / 32)) & 3;
                *code = (low | high << 4).cast_signed() - 32;
            }
        }
        codes
    }
}

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 210;

    fn decode(&self, out: &mut [f32]) {
        let codes = self.codes();
        for (j, out) in out.iter_mut().enumerate() {
            *out = (self.scale.get() * f32::from(self.group_scales[j / 16])) * f32::from(codes[j]);
        }
    }
}

impl Scaled for Block {
    const CODES: Codes = Codes::Unsigned { most: 63, bias: 32 };

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        parts.scale = self.scale.get();
        parts.multipliers = self.group_scales.map(i16::from);
        for (half, codes) in parts.codes.as_chunks_mut::<128>().0.iter_mut().enumerate() {
            let (nibbles, bit_pairs) = (&self.nibbles[half], &self.bit_pairs[half]);
            for (section, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                let nibbles = &nibbles[32 * (section % 2)..][..32];
                for ((code, nibble), pair) in codes.iter_mut().zip(nibbles).zip(bit_pairs) {
                    *code = nibble >> (4 * (section / 2)) & 15 | (pair >> (2 * section) & 3) << 4;
                }
            }
        }
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        Block::of(values, &std::array::from_fn(|i| values[i] * values[i]))
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], _: f32) -> Self {
        Block::of(values, &std::array::from_fn(|i| importance[i]))
    }
}

impl Block {
    /// Errors count as `weights` say. The group scale of largest magnitude becomes -128.
    fn of(values: &[f32], weights: &[f32; 256]) -> Self {
        let mut codes = [0; 256];
        let scales = symmetric::of_block(&mut codes, |part, codes| {
            symmetric::weighted(lanes::isa(), &values[part.clone()], &weights[part], 32, codes)
        });
        let extreme = first_extreme(&scales);
        if extreme.abs() < search::EPSILON {
            return Block::zeroed();
        }
        let inverse = -128.0 / extreme;
        let scale = F16::new(1.0 / inverse);
        let group_scales = scales.map(|group_scale| nearest(inverse * group_scale).min(127) as i8);
        let stored = group_scales.map(|group_scale| scale.get() * f32::from(group_scale));
        symmetric::assign(lanes::isa(), values, &stored, 32, &mut codes);
        let (nibbles, bit_pairs) = pack(&codes);
        Block { nibbles, bit_pairs, group_scales, scale }
    }
}

/// The inverse of [`Block::codes`].
fn pack(codes: &[i8; 256]) -> ([[u8; 64]; 2], [[u8; 32]; 2]) {
    let (mut nibbles, mut bit_pairs) = ([[0; 64]; 2], [[0; 32]; 2]);
    for (section, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
        let (half, section) = (section / 4, section % 4);
        let nibbles = &mut nibbles[half][32 * (section % 2)..][..32];
        for i in 0..32 {
            let code = (codes[i] + 32).cast_unsigned();
            nibbles[i] |= (code & 15) << (4 * (section / 2));
            bit_pairs[half][i] |= (code >> 4) << (2 * section);
        }
    }
    (nibbles, bit_pairs)
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * integer.
fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let integer = k::scaled_dot(&w.codes(), &w.group_scales, &x.codes);
        sum += (w.scale.get() * x.scale.get()) * integer as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, k, q8_k};
    use crate::simd::x86::{Products, load16, load32};

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_k::Block]) -> f32 {
        k::avx2::dot(weights, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_k::Block]) -> [f32; 4] {
        k::avx2::rows4(rows, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    /// Codes stay biased by 32: pair sums are at most 2 * 63 * 127, no saturation. The input's sums of sixteens take
    /// the bias off again.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn integers<V: Products>(w: &Block, x: &q8_k::Block) -> __m256i {
        let group_scales = load16(bytemuck::cast_ref(&w.group_scales));
        let bias = _mm256_madd_epi16(_mm256_cvtepi8_epi16(group_scales), k::avx2::load_sums(x));
        let scales = k::avx2::widen_even_odd(group_scales);
        let mut integers = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32::<5>(bias));
        for half in 0..2 {
            let codes = sections(&w.nibbles[half], &w.bit_pairs[half]);
            for section in 0..4 {
                integers = k::avx2::add_group::<V>(integers, codes[section], x, scales, 4 * half + section);
            }
        }
        integers
    }

    /// The 128 codes of a half, still biased.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn sections(nibbles: &[u8; 64], bit_pairs: &[u8; 32]) -> [__m256i; 4] {
        let (nibbles, _) = nibbles.as_chunks::<32>();
        let (first, second, pairs) = (load32(&nibbles[0]), load32(&nibbles[1]), load32(bit_pairs));
        let low = |v| _mm256_and_si256(v, _mm256_set1_epi8(15));
        let high = |v| _mm256_and_si256(v, _mm256_set1_epi8(0x30));
        [
            _mm256_or_si256(low(first), high(_mm256_slli_epi16::<4>(pairs))),
            _mm256_or_si256(low(second), high(_mm256_slli_epi16::<2>(pairs))),
            _mm256_or_si256(low(_mm256_srli_epi16::<4>(first)), high(pairs)),
            _mm256_or_si256(low(_mm256_srli_epi16::<4>(second)), high(_mm256_srli_epi16::<2>(pairs))),
        ]
    }
}

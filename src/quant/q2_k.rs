//! Q2_K: 256 weights in 84 bytes: 16 bytes, one a group of 16, with the group's scale (low nibble) and minimum (high);
//! 64 bytes of codes; an f16 scale and an f16 minimum for the block. Each half of 128 weights is four sections of 32:
//! bit pair s of the half's byte i is weight i of section s;
//! weight = (scale * group scale) * code - min * group min. (ggml: `scales`, `qs`, `d`, `dmin`.)

use bytemuck::{Pod, Zeroable};

use super::k::lanes;
use super::k::search::{self, Steps, nearest};
use super::le::F16;
use super::parts::{Codes, Parts, Scaled, Shuffle};
use super::{Format, arms, k, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    group_scales: [u8; 16],
    bit_pairs: [u8; 64],
    scale: F16,
    min: F16,
}

/// The table row. Measured (see [`panel`]): four rows 32, panels 92 GMAC/s; 6.0 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("q2_k", Some(10))
    .shader(include_str!("../../wgsl/quant/q2_k.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; dot, avx2])
    .panel(panel::scaled::<Block>());

impl Block {
    fn scales(&self) -> [i8; 16] {
        self.group_scales.map(|byte| (byte & 15).cast_signed())
    }

    fn mins(&self) -> [i8; 16] {
        self.group_scales.map(|byte| (byte >> 4).cast_signed())
    }

    /// Scales, minimums and the codes of the search, which are made anew for scales and minimums as they are stored.
    fn new(
        values: &[f32],
        mut codes: [i8; 256],
        (scale, scales): (F16, [u8; 16]),
        (min, mins): (F16, [u8; 16]),
    ) -> Block {
        for (j, (values, codes)) in values.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
            let group_scale = scale.get() * f32::from(scales[j]);
            let group_min = min.get() * f32::from(mins[j]);
            if group_scale == 0.0 {
                continue; // The reference keeps the codes of the search, although all of them mean -group_min.
            }
            for (code, &x) in codes.iter_mut().zip(values) {
                *code = nearest((x + group_min) / group_scale).clamp(0, 3) as i8;
            }
        }
        let mut group_scales = scales;
        for (byte, min) in group_scales.iter_mut().zip(mins) {
            *byte |= min << 4;
        }
        Block { group_scales, bit_pairs: k::pack_bit_pairs(&codes), scale, min }
    }
}

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 84;

    fn decode(&self, out: &mut [f32]) {
        let (codes, scales, mins) = (k::unpack_bit_pairs(&self.bit_pairs), self.scales(), self.mins());
        for (j, (out, code)) in out.iter_mut().zip(codes).enumerate() {
            let scale = self.scale.get() * f32::from(scales[j / 16]);
            *out = scale * f32::from(code) - self.min.get() * f32::from(mins[j / 16]);
        }
    }
}

impl Scaled for Block {
    const CODES: Codes = Codes::Unsigned { most: 3, bias: 0 };
    const MIN: bool = true;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        (parts.scale, parts.min) = (self.scale.get(), self.min.get());
        parts.multipliers = self.group_scales.map(|byte| i16::from(byte & 15));
        parts.mins = self.group_scales.map(|byte| i16::from(byte >> 4));
        k::bit_pairs(&self.bit_pairs, &mut parts.codes);
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let steps = Steps { most: 3, first: -0.5, delta: 0.1, last: 15, squares: false };
        let weights: [f32; 256] = std::array::from_fn(|i| values[i].abs());
        let (codes, scales, mins) = searched(values, &weights, &steps);
        Block::new(values, codes, four_bits(&scales), four_bits(&mins))
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], _: f32) -> Self {
        let energy = values.iter().fold(0.0f32, |sum, x| sum + x * x) / 256.0;
        let (mut weights, mut sums) = ([0.0; 256], [0.0; 16]);
        search::weights(values, importance, energy, &mut weights);
        for (sum, weights) in sums.iter_mut().zip(weights.chunks_exact(16)) {
            *sum = weights.iter().fold(0.0f32, |sum, weight| sum + weight);
        }
        let (codes, scales, mins) = searched(values, &weights, &Steps::fine(3));
        let four_bits = |numbers: &[f32; 16]| {
            let mut multiples = [0; 16];
            let scale = search::multiples(numbers, &sums, 15, &mut multiples);
            (F16::new(scale), multiples)
        };
        Block::new(values, codes, four_bits(&scales), four_bits(&mins))
    }
}

/// Codes, scales and minimums of the 16 groups.
fn searched(values: &[f32], weights: &[f32; 256], steps: &Steps) -> ([i8; 256], [f32; 16], [f32; 16]) {
    let (mut codes, mut scales, mut mins) = ([0; 256], [0.0; 16], [0.0; 16]);
    for half in 0..2 {
        let (groups, part) = (8 * half..8 * half + 8, 128 * half..128 * half + 128);
        let (values, weights) = (&values[part.clone()], &weights[part.clone()]);
        let found = lanes::affine(lanes::isa(), values, weights, steps, &mut codes[part]);
        scales[groups.clone()].copy_from_slice(&found.0);
        mins[groups].copy_from_slice(&found.1);
    }
    (codes, scales, mins)
}

/// Sixteen numbers, not negative, as a common half and multiples of it in 0..=15.
fn four_bits(numbers: &[f32; 16]) -> (F16, [u8; 16]) {
    let largest = numbers.iter().fold(0.0f32, |largest, &x| if x > largest { x } else { largest });
    if largest <= 0.0 {
        return (F16::default(), [0; 16]);
    }
    let inverse = 15.0 / largest;
    // No number is out of range unless `inverse` overflowed.
    (F16::new(largest / 15.0), numbers.map(|x| nearest(inverse * x) as u8 & 15))
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * integer - (min_w * scale_x) * offset.
fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let integer = k::scaled_dot(&k::unpack_bit_pairs(&w.bit_pairs), &w.scales(), &x.codes);
        let offset = k::scaled_sums(&w.mins(), &x.sums);
        let scale_x = x.scale.get();
        sum += (w.scale.get() * scale_x) * integer as f32 - (w.min.get() * scale_x) * offset as f32;
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
        k::avx2::dot_with_min(weights, input, |w| [w.scale, w.min], |w, x| integers::<V>(w, x))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_k::Block]) -> [f32; 4] {
        k::avx2::rows4_with_min(rows, input, |w| [w.scale, w.min], |w, x| integers::<V>(w, x))
    }

    /// Pair sums of codes and input are at most 2 * 3 * 127: no saturation.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn integers<V: Products>(w: &Block, x: &q8_k::Block) -> (__m256i, __m256i) {
        let group_scales = load16(&w.group_scales);
        let nibble = _mm_set1_epi8(15);
        let scales = k::avx2::widen_even_odd(_mm_and_si128(group_scales, nibble));
        let mins = _mm_and_si128(_mm_srli_epi16::<4>(group_scales), nibble);
        let offsets = _mm256_madd_epi16(_mm256_cvtepi8_epi16(mins), k::avx2::load_sums(x));
        let halves: &[[u8; 32]; 2] = bytemuck::cast_ref(&w.bit_pairs);
        let mut integers = _mm256_setzero_si256();
        for half in 0..2 {
            let mut bit_pairs = load32(&halves[half]);
            for section in 4 * half..4 * half + 4 {
                let codes = _mm256_and_si256(bit_pairs, _mm256_set1_epi8(3));
                bit_pairs = _mm256_srli_epi16::<2>(bit_pairs);
                integers = k::avx2::add_group::<V>(integers, codes, x, scales, section);
            }
        }
        (integers, offsets)
    }
}

//! NVFP4: 64 weights in 36 bytes: four scales, then for each 16 weights 8 bytes of nibbles.
//! Byte j of a group holds its weight j (low nibble) and weight j + 8 (high); weight = scale * `VALUES[nibble]`, the
//! doubled E2M1 floats of [`super::mxfp4`]. A scale byte is an unsigned E4M3 float and stands for half of it.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::mxfp4::{BIASED_VALUES, VALUES, nearest};
use super::parts::{Codes, Shuffle, Terms};
use super::{Format, arms, panel, q8_0};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scales: [u8; 4],
    nibbles: [[u8; 8]; 4],
}

/// The table row. Measured (see [`panel`]): four rows 11, panels 58 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("nvfp4", Some(40))
    .shader(include_str!("../../wgsl/quant/nvfp4.wgsl"))
    .encoder::<Block>()
    .dot(&q8_0::FORMAT, arms![terms; Block, q8_0::Block; dot, avx2])
    .panel(panel::terms::<Block>());

/// Half the E4M3 float of each byte. The top bit, a sign elsewhere, is ignored. 0x7f, elsewhere NaN, is zero, though
/// not with the top bit set: so decides the reference.
static SCALES: [f32; 256] = scales();

const fn scales() -> [f32; 256] {
    let mut scales = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (exponent, mantissa) = ((byte as u32) >> 3 & 15, (byte as u32) & 7);
        scales[byte] = match (byte, exponent) {
            (0x7f, _) => 0.0,
            (_, 0) => mantissa as f32 / 1024.0,
            _ => f32::from_bits((exponent + 127 - 8) << 23 | mantissa << 20),
        };
        byte += 1;
    }
    scales
}

impl Block {
    #[inline(always)]
    fn scale(&self, group: usize) -> f32 {
        SCALES[usize::from(self.scales[group])]
    }
}

impl super::Block for Block {
    const LEN: usize = 64;
    const BYTES: usize = 36;

    fn decode(&self, out: &mut [f32]) {
        for (g, (out, nibbles)) in out.chunks_exact_mut(16).zip(&self.nibbles).enumerate() {
            for (j, &byte) in nibbles.iter().enumerate() {
                out[j] = self.scale(g) * f32::from(VALUES[usize::from(byte & 15)]);
                out[j + 8] = self.scale(g) * f32::from(VALUES[usize::from(byte >> 4)]);
            }
        }
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Unsigned { most: 24, bias: 12 };
    const TERM: usize = 16;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], _: &mut [f32]) {
        for (g, (codes, bytes)) in codes.chunks_exact_mut(16).zip(&self.nibbles).enumerate() {
            scales[g] = self.scale(g);
            let mut nibbles = [0; 16];
            for (i, byte) in bytes.iter().enumerate() {
                (nibbles[i], nibbles[i + 8]) = (byte & 15, byte >> 4);
            }
            codes.copy_from_slice(&S::lookup16(&BIASED_VALUES, &nibbles));
        }
    }
}

impl super::Encode for Block {
    /// The scale that maps a group's largest magnitude to 6, the largest E2M1, then the nearest values.
    fn encode(values: &[f32]) -> Self {
        let mut block = Block::zeroed();
        for (g, values) in values.chunks_exact(16).enumerate() {
            let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            block.scales[g] = e4m3(largest / 6.0);
            let nibbles = nearest::<16>(&std::array::from_fn(|i| values[i]), block.scale(g));
            for (j, byte) in block.nibbles[g].iter_mut().enumerate() {
                *byte = nibbles[j] | nibbles[j + 8] << 4;
            }
        }
        block
    }
}

/// `value` >= 0 as an unsigned E4M3 float, ties away from zero. Two quirks are the reference's: from 256 on all is 448,
/// and subnormals never round up to the smallest normal number.
fn e4m3(value: f32) -> u8 {
    let bits = value.to_bits();
    let exponent = (bits >> 23) as i32 - 127 + 7;
    if exponent <= 0 {
        return ((value * 512.0 + 0.5) as u8).min(7);
    }
    // The mantissa's carry runs into the exponent.
    let rounded = ((exponent as u32) << 3 | bits >> 20 & 7) + (bits >> 19 & 1);
    if rounded >= 15 << 3 { 0x7e } else { rounded as u8 }
}

/// Groups of 16 weights in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input.as_chunks::<2>().0) {
        for (g, nibbles) in w.nibbles.iter().enumerate() {
            let x = &x[g / 2];
            let codes = &x.codes[16 * (g % 2)..][..16];
            let mut integer = 0;
            for (j, &byte) in nibbles.iter().enumerate() {
                integer += i32::from(VALUES[usize::from(byte & 15)]) * i32::from(codes[j]);
                integer += i32::from(VALUES[usize::from(byte >> 4)]) * i32::from(codes[j + 8]);
            }
            sum += (w.scale(g) * x.scale.get()) * integer as f32;
        }
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, VALUES, q8_0};
    use crate::simd::x86::{
        FourRows, Products, half_sums4_i32, load16, load32i, lookup16, move_signs, sum_fours,
    };

    #[target_feature(enable = "avx2")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input.as_chunks::<2>().0) {
            for (half, x) in x.iter().enumerate() {
                let [low, high] = sum_fours(products::<V>(w, half, load32i(&x.codes)));
                let scale = x.scale.get();
                sum += (w.scale(2 * half) * scale) * low as f32;
                sum += (w.scale(2 * half + 1) * scale) * high as f32;
            }
        }
        sum
    }

    #[target_feature(enable = "avx2")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_0::Block]) -> [f32; 4] {
        let mut sums = _mm_setzero_ps();
        let (input, _) = input.as_chunks::<2>();
        let rows = FourRows::new(rows, input.len());
        for (i, x) in input.iter().enumerate() {
            let [a, b, c, d] = rows.blocks(i);
            for half in 0..2 {
                let codes = load32i(&x[half].codes);
                let products = [
                    products::<V>(a, half, codes),
                    products::<V>(b, half, codes),
                    products::<V>(c, half, codes),
                    products::<V>(d, half, codes),
                ];
                let integers = _mm256_cvtepi32_ps(half_sums4_i32(products));
                let (low, high) = (2 * half, 2 * half + 1);
                let scales = _mm256_set_ps(
                    d.scale(high),
                    c.scale(high),
                    b.scale(high),
                    a.scale(high),
                    d.scale(low),
                    c.scale(low),
                    b.scale(low),
                    a.scale(low),
                );
                let scales = _mm256_mul_ps(scales, _mm256_set1_ps(x[half].scale.get()));
                let terms = _mm256_mul_ps(scales, integers);
                sums = _mm_add_ps(sums, _mm256_castps256_ps128(terms));
                sums = _mm_add_ps(sums, _mm256_extractf128_ps::<1>(terms));
            }
        }
        bytemuck::cast(sums)
    }

    /// Partial sums of the products of two groups, one in each half.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products<V: Products>(w: &Block, half: usize, x: __m256i) -> __m256i {
        let bytes: &[[u8; 16]; 2] = bytemuck::cast_ref(&w.nibbles);
        // No value is -128, so the codes may take the inputs' signs, and those hold anything.
        let (magnitudes, codes) = move_signs(x, lookup16(&VALUES, two_groups(&bytes[half])));
        V::fours(V::dot(magnitudes, codes))
    }

    /// The nibbles of two groups, 8 bytes each: each half of the result is a group, low nibbles first.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn two_groups(bytes: &[u8; 16]) -> __m256i {
        let low = load16(bytes);
        let high = _mm_srli_epi16::<4>(low);
        let both = _mm256_set_m128i(_mm_unpackhi_epi64(low, high), _mm_unpacklo_epi64(low, high));
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_bytes_survive_a_round_trip() {
        for byte in 0..0x7f {
            // From 256 on, see `e4m3`.
            let expected = if byte < 0x78 { byte } else { 0x7e };
            assert_eq!(e4m3(2.0 * SCALES[usize::from(byte)]), expected, "{byte:#x}");
        }
    }

    #[test]
    fn scales_round_to_the_nearest_and_halves_up() {
        for byte in 8..0x77u8 {
            let (low, high) = (2.0 * SCALES[usize::from(byte)], 2.0 * SCALES[usize::from(byte) + 1]);
            let half = (low + high) / 2.0;
            assert_eq!((e4m3(half.next_down()), e4m3(half)), (byte, byte + 1), "{byte:#x}");
        }
    }
}

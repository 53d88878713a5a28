//! What the formats with codebooks share (IQ1, IQ2 and IQ3, all with 256 weights to a block): a weight is
//! `scale * multiplier * code`, of which only the block's scale is no integer. A code is an entry of a codebook, changed
//! by a bit of its own; 16 weights share a multiplier.
//!
//! Their dot, which is the specification for every instruction set: a block's integer is the sum over its 16
//! multipliers of the multiplier times the dot of codes and inputs. It is exact (at most 31 * 62 * 128 * 256 < 2^26) in
//! any order. Blocks in ascending order: `sum += (scale_w * scale_x) * integer`, where the integer is rounded to the
//! nearest f32, ties to even.

use super::parts::{self, Codes, Parts, Scaled, Shuffle};
use super::q8_k;

/// A block that can be taken apart.
pub(super) trait Codebook: super::Block {
    /// What the groups' bits mean.
    const BITS: Bits;
    /// The largest magnitude of a code.
    const LARGEST: u8;

    fn scale(&self) -> f32;

    /// Weights 32 g to 32 g + 31; g < 8.
    fn group(&self, g: usize) -> Group;
}

/// 32 weights, less the scale.
pub(super) struct Group {
    /// Of 16 weights each; 1..=31.
    pub multipliers: [i16; 2],
    /// Eight signed bytes each, the first one lowest; -8..=62.
    pub entries: [u64; 4],
    /// A bit for each entry, lowest first.
    pub bits: [u8; 4],
}

/// What a set bit does to an entry.
pub(super) enum Bits {
    /// Clear: the entry is the code; set: it is negated.
    Sign,
    /// Clear: the code is the entry plus 1; set: minus 1.
    Offset,
}

impl Group {
    #[inline]
    fn codes<B: Codebook>(&self) -> [i8; 32] {
        let mut codes = [0; 32];
        for ((codes, entry), bits) in codes.chunks_exact_mut(8).zip(self.entries).zip(self.bits) {
            for (i, (code, byte)) in codes.iter_mut().zip(entry.to_le_bytes()).enumerate() {
                let sign = if bits & 1 << i == 0 { 1 } else { -1 };
                *code = match B::BITS {
                    Bits::Sign => byte as i8 * sign,
                    Bits::Offset => byte as i8 + sign,
                };
            }
        }
        codes
    }
}

impl<B: Codebook> Scaled for B {
    const CODES: Codes = Codes::Unsigned { most: 2 * B::LARGEST as usize, bias: B::LARGEST as i16 };

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        parts.scale = self.scale();
        for (g, codes) in parts.codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let group = self.group(g);
            let entries: [u8; 32] = bytemuck::cast(group.entries.map(u64::to_le));
            let bits: [[u8; 8]; 4] = group.bits.map(|bits| parts::BITS[usize::from(bits)]);
            for ((code, entry), set) in codes.iter_mut().zip(&entries).zip(bits.as_flattened()) {
                *code = match B::BITS {
                    Bits::Sign => (entry ^ set).wrapping_sub(*set),
                    Bits::Offset => entry.wrapping_add(set | 1),
                }
                .wrapping_add(B::LARGEST);
            }
            parts.multipliers[2 * g..][..2].copy_from_slice(&group.multipliers);
        }
    }
}

/// `scale * multiplier` is exact: an f16 times 6 bits and a power of two.
pub(super) fn decode<B: Codebook>(block: &B, out: &mut [f32]) {
    for (g, out) in out.chunks_exact_mut(32).enumerate() {
        let group = block.group(g);
        for (i, (out, code)) in out.iter_mut().zip(group.codes::<B>()).enumerate() {
            *out = (block.scale() * f32::from(group.multipliers[i / 16])) * f32::from(code);
        }
    }
}

pub(super) fn dot<B: Codebook>(weights: &[B], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let mut integer = 0;
        for (g, x) in x.codes.as_chunks::<32>().0.iter().enumerate() {
            let group = w.group(g);
            let codes = group.codes::<B>();
            for (half, multiplier) in group.multipliers.into_iter().enumerate() {
                let pairs = codes[16 * half..][..16].iter().zip(&x[16 * half..]);
                let products = pairs.map(|(&w, &x)| i32::from(w) * i32::from(x));
                integer += i32::from(multiplier) * products.sum::<i32>();
            }
        }
        sum += (w.scale() * x.scale.get()) * integer as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use super::{Bits, Codebook, Group, q8_k};
    use crate::simd::x86::{bit_masks, load32i, pairs_i8_i8, sum_i32};

    #[target_feature(enable = "avx2")]
    pub fn dot<B: Codebook>(weights: &[B], input: &[q8_k::Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input) {
            let mut integer = _mm256_setzero_si256();
            for (g, x) in x.codes.as_chunks().0.iter().enumerate() {
                let group = w.group(g);
                // No code is -128, so the input may take the sign trick's first place and hold anything.
                let pairs = pairs_i8_i8(load32i(x), codes::<B>(&group));
                let [low, high] = group.multipliers;
                let multipliers = _mm256_set_m128i(_mm_set1_epi16(high), _mm_set1_epi16(low));
                integer = _mm256_add_epi32(integer, _mm256_madd_epi16(pairs, multipliers));
            }
            sum += (w.scale() * x.scale.get()) * sum_i32(integer) as f32;
        }
        sum
    }

    #[target_feature(enable = "avx2")]
    fn codes<B: Codebook>(group: &Group) -> __m256i {
        let [a, b, c, d] = group.entries;
        let entries = _mm256_set_epi64x(d.cast_signed(), c.cast_signed(), b.cast_signed(), a.cast_signed());
        let set = bit_masks(u32::from_le_bytes(group.bits));
        match B::BITS {
            Bits::Sign => _mm256_sub_epi8(_mm256_xor_si256(entries, set), set),
            Bits::Offset => _mm256_add_epi8(entries, _mm256_or_si256(set, _mm256_set1_epi8(1))),
        }
    }
}

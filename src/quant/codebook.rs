//! What the formats with codebooks share (IQ1, IQ2 and IQ3, all with 256 weights to a block): a weight is
//! `scale * multiplier * code`, of which only the block's scale is no integer. A code is an entry of a codebook, changed
//! by a bit of its own; 16 weights share a multiplier.
//!
//! Their dot, which is the specification for every instruction set: a block's integer is the sum over its 16
//! multipliers of the multiplier times the dot of codes and inputs. It is exact (at most 31 * 62 * 128 * 256 < 2^26) in
//! any order. Blocks in ascending order: `sum += (scale_w * scale_x) * integer`, where the integer is rounded to the
//! nearest f32, ties to even.

pub(super) mod book;
pub(super) mod search;

use super::parts::{self, Codes, Parts, Scaled, Shuffle};
use super::{grids, q8_k};

/// A block that can be taken apart.
pub(super) trait Codebook: super::Block {
    /// The codebook.
    const GRID: Grid;
    /// What the groups' bits mean.
    const BITS: Bits;
    /// The largest magnitude of a code.
    const LARGEST: u8;

    fn scale(&self) -> f32;

    /// All but the scale; written in loops that the compiler vectorizes.
    fn fields(&self, fields: &mut Fields);

    /// `fields.indices[i]`, for kernels that look up one after the other: read from the block where that is cheaper than
    /// taking it out of a vector.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn index(&self, fields: &Fields, i: usize) -> usize {
        usize::from(fields.indices[i])
    }
}

/// Entries as bytes, -8..=62, the first one lowest.
#[derive(Clone, Copy, Debug)]
pub enum Grid {
    /// Of eight weights.
    Eights(&'static [u64]),
    /// Of four weights.
    Fours(&'static [u32]),
}

impl Grid {
    /// All entries as bytes, in order.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Grid::Eights(grid) => bytemuck::cast_slice(grid),
            Grid::Fours(grid) => bytemuck::cast_slice(grid),
        }
    }

    /// Weights `8 i` to `8 i + 7` of a block.
    #[inline(always)]
    fn eight(self, indices: &[u16; 64], i: usize) -> [u8; 8] {
        match self {
            Grid::Eights(grid) => grid[usize::from(indices[i])].to_le_bytes(),
            Grid::Fours(grid) => {
                let four = |i: usize| grid[usize::from(indices[i])].to_le_bytes();
                bytemuck::cast([four(2 * i), four(2 * i + 1)])
            }
        }
    }
}

/// What a block holds, spread to whole numbers.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Fields {
    /// Of 4 weights each, or the first half of them of 8 weights each.
    pub indices: [u16; 64],
    /// For 8 weights each a bit of their own, lowest first.
    pub bits: [u8; 32],
    /// Of 16 weights each; 1..=31: first those of the lower halves of each 32 weights, then of the upper ones.
    pub multipliers: [[i16; 8]; 2],
}

impl Fields {
    pub const ZERO: Fields = Fields { indices: [0; 64], bits: [0; 32], multipliers: [[0; 8]; 2] };

    /// `2 * stored + 1` for the 32 weights of group `g`.
    #[inline(always)]
    pub fn set_multiplier(&mut self, g: usize, stored: u8) {
        self.multipliers[0][g] = 2 * i16::from(stored) + 1;
        self.multipliers[1][g] = self.multipliers[0][g];
    }

    /// For the 32 weights of group `g`: four times 7 bits of signs, lowest first, and above them the multiplier.
    #[inline(always)]
    pub fn set_even_signs(&mut self, g: usize, word: u32) {
        for i in 0..4 {
            self.bits[4 * g + i] = grids::even_signs(word >> (7 * i));
        }
        self.set_multiplier(g, (word >> 28) as u8);
    }

    /// `2 * nibble + 1`, the low one for the lower half of each 32 weights.
    #[inline(always)]
    pub fn set_multipliers(&mut self, nibbles: &[u8; 8]) {
        for g in 0..8 {
            self.multipliers[0][g] = 2 * i16::from(nibbles[g] & 15) + 1;
            self.multipliers[1][g] = 2 * i16::from(nibbles[g] >> 4) + 1;
        }
    }
}

/// What a set bit does to an entry.
pub(super) enum Bits {
    /// Clear: the entry is the code; set: it is negated.
    Sign,
    /// Clear: the code is the entry plus 1; set: minus 1.
    Offset,
}

impl<B: Codebook> Scaled for B {
    const CODES: Codes = Codes::Unsigned { most: 2 * B::LARGEST as usize, bias: B::LARGEST as i16 };

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        parts.scale = self.scale();
        let mut fields = Fields::ZERO;
        self.fields(&mut fields);
        // Whole arrays one after the other: eight bytes at a time the compiler would move byte by byte.
        let (mut entries, mut set) = ([[0; 8]; 32], [[0; 8]; 32]);
        for i in 0..32 {
            entries[i] = B::GRID.eight(&fields.indices, i);
            set[i] = parts::BITS[usize::from(fields.bits[i])];
        }
        let (entries, set) = (entries.as_flattened(), set.as_flattened());
        for i in 0..256 {
            let code = match B::BITS {
                Bits::Sign => (entries[i] ^ set[i]).wrapping_sub(set[i]),
                Bits::Offset => entries[i].wrapping_add(set[i] | 1),
            };
            parts.codes[i] = code.wrapping_add(B::LARGEST);
        }
        for (g, multiplier) in parts.multipliers.iter_mut().enumerate() {
            *multiplier = fields.multipliers[g % 2][g / 2];
        }
    }
}

/// Of weight `i`: the multiplier, and the code.
fn weight<B: Codebook>(fields: &Fields, i: usize) -> (i16, i8) {
    let entry = B::GRID.eight(&fields.indices, i / 8)[i % 8].cast_signed();
    let sign = if fields.bits[i / 8] & 1 << (i % 8) == 0 { 1 } else { -1 };
    let code = match B::BITS {
        Bits::Sign => entry * sign,
        Bits::Offset => entry + sign,
    };
    (fields.multipliers[i / 16 % 2][i / 32], code)
}

/// `scale * multiplier` is exact: an f16 times 6 bits and a power of two.
pub(super) fn decode<B: Codebook>(block: &B, out: &mut [f32]) {
    let mut fields = Fields::ZERO;
    block.fields(&mut fields);
    for (i, out) in out.iter_mut().enumerate() {
        let (multiplier, code) = weight::<B>(&fields, i);
        *out = (block.scale() * f32::from(multiplier)) * f32::from(code);
    }
}

pub(super) fn dot<B: Codebook>(weights: &[B], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let mut fields = Fields::ZERO;
        w.fields(&mut fields);
        let mut integer = 0;
        for (i, &x) in x.codes.iter().enumerate() {
            let (multiplier, code) = weight::<B>(&fields, i);
            integer += i32::from(multiplier) * i32::from(code) * i32::from(x);
        }
        sum += (w.scale() * x.scale.get()) * integer as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use super::{Bits, Codebook, Fields, Grid, q8_k};
    use crate::quant::k;
    use crate::simd::x86::{
        FourRows, Products, bit_masks_of, load16, load32, load32i, move_signs, sum_i32, twice,
    };

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[impl Codebook], input: &[q8_k::Block]) -> f32 {
        k::avx2::dot(weights, input, |w| w.scale(), |w, x| integers::<V, _>(w, x))
    }

    /// As [`k::avx2::rows4`]; the rows in a loop, since what is called in four places is too large to be inlined.
    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[impl Codebook]; 4], input: &[q8_k::Block]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        let rows = FourRows::new(rows, input.len());
        for (i, x) in input.iter().enumerate() {
            for (sum, w) in sums.iter_mut().zip(rows.blocks(i)) {
                *sum += (w.scale() * x.scale.get()) * sum_i32(integers::<V, _>(w, x)) as f32;
            }
        }
        sums
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn integers<V: Products, B: Codebook>(w: &B, x: &q8_k::Block) -> __m256i {
        let mut fields = Fields::ZERO;
        w.fields(&mut fields);
        let bits: &[[u8; 16]; 2] = bytemuck::cast_ref(&fields.bits);
        let bits = [twice(load16(&bits[0])), twice(load16(&bits[1]))];
        let inputs: &[[i8; 32]; 8] = bytemuck::cast_ref(&x.codes);
        let multipliers = load32(bytemuck::cast_ref(&fields.multipliers));
        let mut integers = _mm256_setzero_si256();
        // Unrolled: the compiler would not, and then compute each group's shuffle anew.
        macro_rules! groups {
            ($($g:literal)*) => {
                $({
                    const G: usize = $g;
                    // In place: as a function it is called eight times and not inlined.
                    let entries = match B::GRID {
                        Grid::Eights(grid) => {
                            let at = |i: usize| grid[w.index(&fields, 4 * G + i)].cast_signed();
                            _mm256_set_epi64x(at(3), at(2), at(1), at(0))
                        }
                        Grid::Fours(grid) => {
                            let at = |i: usize| grid[w.index(&fields, 8 * G + i)].cast_signed();
                            _mm256_set_epi32(at(7), at(6), at(5), at(4), at(3), at(2), at(1), at(0))
                        }
                    };
                    let set = bit_masks_of(bits[G / 4], G % 4);
                    let x = load32i(&inputs[G]);
                    let (magnitudes, signed) = match B::BITS {
                        // Entries are magnitudes: the input takes their signs.
                        Bits::Sign => (entries, _mm256_sub_epi8(_mm256_xor_si256(x, set), set)),
                        // No code is -128, so the codes may take the inputs' signs, and those hold anything.
                        Bits::Offset => {
                            let ones = _mm256_or_si256(set, _mm256_set1_epi8(1));
                            move_signs(x, _mm256_add_epi8(entries, ones))
                        }
                    };
                    integers = V::add_scaled(integers, magnitudes, signed, k::avx2::spread(multipliers, G));
                })*
            };
        }
        groups!(0 1 2 3 4 5 6 7);
        integers
    }
}

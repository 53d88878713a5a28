//! The integers of trellis blocks with AVX2. Of k = 3, 32 weights take eleven instructions (nine with VNNI), of which three
//! multiply (two): three to make the states' words of the ring's, on the average of the eight groups of a block, five to make codes of them, three to multiply.

use std::arch::x86_64::*;

use super::{BIAS, Block, MASK, MULTIPLIERS, STATE_BITS, TABLE};
use crate::quant::{k, q8_k};
use crate::simd::x86::{Products, load32};

/// Partial sums of a block's integer. Codes are at most 127: pairs of products do not pass an i16.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn integers<V: Products, const K: usize>(w: &Block<K>, x: &q8_k::Block) -> __m256i {
    let mut words = [_mm256_setzero_si256(); 5];
    for i in 0..K {
        words[i] = load32(bytemuck::cast_ref(&w.words[i]));
    }
    words[K] = lanes_after(words[0]);
    let bias = _mm256_set1_epi16(-i16::from(BIAS));
    let integers = _mm256_madd_epi16(bias, k::avx2::load_sums(x));
    // The groups' shifts are constants only if they are written out.
    let integers = _mm256_add_epi32(integers, products::<V, K, 0>(&words, x));
    let integers = _mm256_add_epi32(integers, products::<V, K, 1>(&words, x));
    let integers = _mm256_add_epi32(integers, products::<V, K, 2>(&words, x));
    let integers = _mm256_add_epi32(integers, products::<V, K, 3>(&words, x));
    let integers = _mm256_add_epi32(integers, products::<V, K, 4>(&words, x));
    let integers = _mm256_add_epi32(integers, products::<V, K, 5>(&words, x));
    let integers = _mm256_add_epi32(integers, products::<V, K, 6>(&words, x));
    _mm256_add_epi32(integers, products::<V, K, 7>(&words, x))
}

/// Of the 32 weights of `GROUP`. `words` are those of the block and what comes behind them.
#[inline]
#[target_feature(enable = "avx2")]
fn products<V: Products, const K: usize, const GROUP: usize>(
    words: &[__m256i; 5],
    x: &q8_k::Block,
) -> __m256i {
    let (word, shift) = (2 * K * GROUP / 16, 2 * K * GROUP % 16);
    let states = states(words[word], words[word + 1], shift);
    V::fours(V::dot(codes(states), k::avx2::load_group(x, GROUP)))
}

/// In each lane the word of the next one; in the last that of the first.
#[inline]
#[target_feature(enable = "avx2")]
fn lanes_after(words: __m256i) -> __m256i {
    let swapped = _mm256_permute2x128_si256::<1>(words, words);
    _mm256_alignr_epi8::<2>(swapped, words)
}

/// The 16 bits from bit `shift` of `word` on, or as many as a state has, with others above.
#[inline]
#[target_feature(enable = "avx2")]
fn states(word: __m256i, next: __m256i, shift: usize) -> __m256i {
    let low = _mm256_srl_epi16(word, _mm_cvtsi32_si128(shift as i32));
    if shift + STATE_BITS <= 16 {
        return low;
    }
    _mm256_or_si256(low, _mm256_sll_epi16(next, _mm_cvtsi32_si128(16 - shift as i32)))
}

/// The codes of 32 weights.
#[inline]
#[target_feature(enable = "avx2")]
fn codes(states: __m256i) -> __m256i {
    let low = _mm256_set1_epi16(MULTIPLIERS[0].cast_signed());
    let high = _mm256_set1_epi16(MULTIPLIERS[1].cast_signed());
    let hashes = _mm256_mulhi_epu16(_mm256_mullo_epi16(states, low), high);
    let hashes = _mm256_and_si256(hashes, _mm256_set1_epi16(MASK.cast_signed()));
    let table = _mm256_broadcastsi128_si256(bytemuck::cast(TABLE));
    _mm256_avg_epu8(hashes, _mm256_shuffle_epi8(table, hashes))
}

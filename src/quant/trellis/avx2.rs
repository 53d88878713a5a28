//! The integers of trellis blocks with AVX2: 32 weights take 27 instructions (25 with VNNI), of which 14 multiply.

use std::arch::x86_64::*;

use super::{BIAS, Block, MULTIPLIERS, STATES};
use crate::quant::{k, q8_k};
use crate::simd::x86::{Products, load16};

/// Partial sums of a block's integer. Codes are at most 127: pairs of products do not pass an i16.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn integers<V: Products, const K: usize>(w: &Block<K>, x: &q8_k::Block) -> __m256i {
    let bias = _mm256_set1_epi16(-i16::from(BIAS));
    let mut integers = _mm256_madd_epi16(bias, k::avx2::load_sums(x));
    for group in 0..8 {
        let products = V::fours(V::dot(codes(windows(w, group)), k::avx2::load_group(x, group)));
        integers = _mm256_add_epi32(integers, products);
    }
    integers
}

/// For each four of the 32 weights of `group`, the bits that their states are cut from, lowest first. States of neighbours
/// are `K` bits apart.
#[inline]
#[target_feature(enable = "avx2")]
fn windows<const K: usize>(w: &Block<K>, group: usize) -> [__m256i; 2] {
    let mask = _mm256_set1_epi16((STATES - 1) as i16);
    let bits = fours(w, group);
    // States of weights 0 and 2, and of 1 and 3, in the halves of each lane.
    let shift = |bits, by: usize| _mm256_sll_epi32(bits, _mm_cvtsi32_si128(by as i32));
    let down = _mm256_srl_epi32(bits, _mm_cvtsi32_si128(K as i32));
    let even = _mm256_blend_epi16::<0xaa>(bits, shift(bits, 16 - 2 * K));
    let odd = _mm256_blend_epi16::<0xaa>(down, shift(bits, 16 - 3 * K));
    [_mm256_and_si256(even, mask), _mm256_and_si256(odd, mask)]
}

/// Lane i: 25 bits or more from the first bit of weight 4 i on.
#[inline]
#[target_feature(enable = "avx2")]
fn fours<const K: usize>(w: &Block<K>, group: usize) -> __m256i {
    // Of four bits a weight, 16 bytes hold 16 weights and what their states reach behind them.
    let bytes = if K == 4 {
        _mm256_set_m128i(ring16(w, 16 * group + 8), ring16(w, 16 * group))
    } else {
        _mm256_broadcastsi128_si256(ring16(w, 4 * K * group))
    };
    let order: [u8; 32] = const {
        let mut order = [0; 32];
        let mut i = 0;
        while i < 32 {
            let lane = if K == 4 { i / 4 % 4 } else { i / 4 };
            order[i] = (lane * K / 2 + i % 4) as u8;
            i += 1;
        }
        order
    };
    let bits = _mm256_shuffle_epi8(bytes, bytemuck::cast(order));
    // Four weights of an odd number of bits end within a byte.
    if K.is_multiple_of(2) {
        bits
    } else {
        _mm256_srlv_epi32(bits, _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4))
    }
}

/// 16 bytes of the ring from byte `at` on, a multiple of 4.
#[inline]
#[target_feature(enable = "avx2")]
fn ring16<const K: usize>(w: &Block<K>, at: usize) -> __m128i {
    let ring = w.symbols.as_flattened();
    let load = |at: usize| load16(ring[at..at + 16].first_chunk().expect("16 bytes"));
    let end = 32 * K - 16;
    if at <= end {
        return load(at);
    }
    match at - end {
        4 => _mm_alignr_epi8::<4>(load(0), load(end)),
        8 => _mm_alignr_epi8::<8>(load(0), load(end)),
        _ => _mm_alignr_epi8::<12>(load(0), load(end)),
    }
}

/// The codes of 32 states, which lie as [`windows`] has them, in the order of the weights.
#[inline]
#[target_feature(enable = "avx2")]
fn codes([even, odd]: [__m256i; 2]) -> __m256i {
    let (even, odd) = (byte_sums(even), byte_sums(odd));
    let odd = _mm256_and_si256(_mm256_slli_epi16::<5>(odd), _mm256_set1_epi16(0x7f00));
    _mm256_or_si256(_mm256_srli_epi16::<3>(even), odd)
}

/// The sums of the bytes of both products of each state.
#[inline]
#[target_feature(enable = "avx2")]
fn byte_sums(states: __m256i) -> __m256i {
    let sums = |multiplier: u16| {
        let products = _mm256_mullo_epi16(states, _mm256_set1_epi16(multiplier.cast_signed()));
        _mm256_maddubs_epi16(products, _mm256_set1_epi8(1))
    };
    _mm256_add_epi16(sums(MULTIPLIERS[0]), sums(MULTIPLIERS[1]))
}

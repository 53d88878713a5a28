//! The dots on AVX2 and what builds on it.

use std::arch::x86_64::*;

use super::{Group, Input};
use crate::simd::x86::{FourRows, Products, load16, load32, load32i, move_signs, sum_i32, sum4_i32};

#[target_feature(enable = "avx2,f16c")]
pub fn dot<V: Products>(weights: &[impl Group], input: &[impl Input]) -> f32 {
    let mut sum = 0.0;
    let terms = input.len() / weights.len().max(1);
    for (w, x) in weights.iter().zip(input.chunks_exact(terms.max(1))) {
        for (term, x) in x.iter().enumerate() {
            let integer = sum_i32(V::fours(products::<V, _>(w, term, load32i(x.codes()))));
            sum += (w.scale() * x.scale()) * integer as f32 + w.offset() * x.sum();
        }
    }
    sum
}

/// Each row takes a lane of the sum.
#[target_feature(enable = "avx2,f16c")]
pub fn rows4<V: Products>(rows: [&[impl Group]; 4], input: &[impl Input]) -> [f32; 4] {
    let mut sums = _mm_setzero_ps();
    let blocks = rows[0].len();
    let terms = input.len() / blocks.max(1);
    let rows = FourRows::new(rows, blocks);
    for (i, x) in input.chunks_exact(terms.max(1)).enumerate() {
        let [a, b, c, d] = rows.blocks(i);
        let scales = _mm_set_ps(d.scale(), c.scale(), b.scale(), a.scale());
        let offsets = _mm_set_ps(d.offset(), c.offset(), b.offset(), a.offset());
        for (term, x) in x.iter().enumerate() {
            let codes = load32i(x.codes());
            let integers = _mm_cvtepi32_ps(sum4_i32([
                V::fours(products::<V, _>(a, term, codes)),
                V::fours(products::<V, _>(b, term, codes)),
                V::fours(products::<V, _>(c, term, codes)),
                V::fours(products::<V, _>(d, term, codes)),
            ]));
            let terms = _mm_mul_ps(_mm_mul_ps(scales, _mm_set1_ps(x.scale())), integers);
            sums = _mm_add_ps(sums, _mm_add_ps(terms, _mm_mul_ps(offsets, _mm_set1_ps(x.sum()))));
        }
    }
    bytemuck::cast(sums)
}

#[inline]
#[target_feature(enable = "avx2")]
fn products<V: Products, W: Group>(w: &W, term: usize, x: __m256i) -> __m256i {
    let bytes = bytemuck::bytes_of(w);
    match W::BITS {
        8 => {
            let codes = bytes[W::HEAD + 32 * term..].first_chunk().expect("32 codes");
            // Inputs are never -128, so they may take the codes' signs.
            let (magnitudes, x) = move_signs(_mm256_xor_si256(load32(codes), _mm256_set1_epi8(-128)), x);
            V::dot(magnitudes, x)
        }
        4 => V::dot(nibbles(bytes[W::HEAD + 16 * term..].first_chunk().expect("32 codes")), x),
        _ => V::dot(spread::<W>(bytes, term), x),
    }
}

/// 32 nibbles, the low one of each byte first.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(bytes: &[u8; 16]) -> __m256i {
    let pairs = _mm256_cvtepu8_epi16(load16(bytes));
    _mm256_and_si256(_mm256_or_si256(pairs, _mm256_slli_epi16::<4>(pairs)), _mm256_set1_epi8(15))
}

/// 32 codes of 2 to 7 bits. Eight of them, as many bytes as a code has bits, are brought into each 64 bits, and halved
/// three times.
#[inline]
#[target_feature(enable = "avx2")]
fn spread<W: Group>(bytes: &[u8], term: usize) -> __m256i {
    let first = W::HEAD + 4 * W::BITS * term;
    let v = _mm256_set_m128i(eights::<W>(bytes, first + 2 * W::BITS), eights::<W>(bytes, first));
    let v = halve::<W>(v, 32);
    let v = halve::<W>(v, 16);
    halve::<W>(v, 8)
}

/// Two times eight codes from byte `at` of a block on, which is longer than 16 bytes or as long.
#[inline]
#[target_feature(enable = "avx2")]
fn eights<W: Group>(bytes: &[u8], at: usize) -> __m128i {
    let from = at.min(bytes.len() - 16);
    let loaded = load16(bytes[from..].first_chunk().expect("16 bytes"));
    let mut places = [0x80u8; 16];
    for (lane, places) in places.chunks_exact_mut(8).enumerate() {
        for (i, place) in places[..W::BITS].iter_mut().enumerate() {
            *place = (at - from + lane * W::BITS + i) as u8;
        }
    }
    _mm_shuffle_epi8(loaded, load16(&places))
}

/// Of each `2 * width` bits, which hold `2 * count` codes in their lowest ones, the upper half moves to the upper `width`.
#[inline]
#[target_feature(enable = "avx2")]
fn halve<W: Group>(v: __m256i, width: usize) -> __m256i {
    let bits = W::BITS * width / 8;
    let low = _mm256_set1_epi64x(
        (0..64 / (2 * width)).fold(0u64, |mask, i| mask | ((1 << bits) - 1) << (2 * width * i)).cast_signed(),
    );
    let high = _mm256_set1_epi64x(
        (0..64 / (2 * width))
            .fold(0u64, |mask, i| mask | ((1 << bits) - 1) << (2 * width * i + bits))
            .cast_signed(),
    );
    let moved = _mm256_sll_epi64(_mm256_and_si256(v, high), _mm_cvtsi32_si128((width - bits) as i32));
    _mm256_or_si256(_mm256_and_si256(v, low), moved)
}

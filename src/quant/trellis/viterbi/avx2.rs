//! A step of the search with AVX2, forth and back.

use std::arch::x86_64::*;

use super::{Input, LANES, Part, Row, STATES, sum_before};
use crate::simd::x86::{load32, load32i, opaque, store32};

/// [`super::best`]: 16 states are four instructions, or three and a half where four oldest symbols come of the same group.
#[target_feature(enable = "avx2")]
pub fn best<const K: usize>(part: Part, input: Input, before: &[i16], after: &mut [i16]) {
    let sharing = if K == 4 { 4 } else { 1 };
    let (input, shuffles) = (broadcast(input), shuffles::<K>());
    for tile in part.tiles::<K>() {
        let (after, _) = after[tile.group..][..LANES].as_chunks_mut::<16>();
        let mut best = [_mm256_set1_epi16(i16::MIN); 4];
        if tile.oldest > 0 {
            for i in 0..4 {
                best[i] = load32(bytemuck::cast_ref(&after[i]));
            }
        }
        for (index, rows) in tile.rows.chunks_exact(sharing).enumerate() {
            let oldest = tile.oldest + index * sharing;
            let sums = sums::<K>(&before[sum_before::<K>(oldest, tile.group)..], &shuffles);
            for i in 0..4 {
                let mut nearest = scores(&rows[0], input, i);
                for row in 1..sharing {
                    nearest = _mm256_max_epi16(nearest, scores(&rows[row], input, i));
                }
                best[i] = _mm256_max_epi16(best[i], _mm256_add_epi16(nearest, sums[i]));
            }
        }
        for i in 0..4 {
            store32(bytemuck::cast_mut(&mut after[i]), best[i]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn broadcast(input: Input) -> __m256i {
    _mm256_set1_epi16(i16::from_le_bytes(input))
}

/// Of states 16 i and on.
#[inline]
#[target_feature(enable = "avx2")]
fn scores(row: &Row, input: __m256i, i: usize) -> __m256i {
    let codes: &[[i8; 32]; 4] = bytemuck::cast_ref(&row.codes);
    let norms: &[[u8; 32]; 4] = bytemuck::cast_ref(&row.norms);
    // Pairs of products do not pass an i16: 2 x 255 x 64.
    _mm256_sub_epi16(_mm256_maddubs_epi16(input, load32i(&codes[i])), load32(&norms[i]))
}

/// Of the groups that 64 states come of, each for the 2^2K neighbours that share it.
#[inline]
#[target_feature(enable = "avx2")]
fn sums<const K: usize>(before: &[i16], shuffles: &[__m256i; 4]) -> [__m256i; 4] {
    if K > 2 {
        return [_mm256_set1_epi16(before[0]); 4];
    }
    let mut all = [_mm256_setzero_si256(); 4];
    let (fours, _) = before.as_chunks::<4>();
    for i in 0..4 {
        let four = _mm256_set1_epi64x(bytemuck::cast(fours[if K == 1 { i } else { 0 }]));
        all[i] = _mm256_shuffle_epi8(four, shuffles[i]);
    }
    all
}

/// Of four words each four times, or one of them sixteen times.
#[inline]
#[target_feature(enable = "avx2")]
fn shuffles<const K: usize>() -> [__m256i; 4] {
    let mut all = [each_four_times(); 4];
    for i in 0..4 {
        let word = _mm256_set1_epi16(0x0100 + 0x0202 * i as i16);
        // One instruction, where the optimizer would take two that it knows more of.
        all[i] = opaque(if K == 1 { all[i] } else { word });
    }
    all
}

/// Indices of the bytes of four words, each four times.
#[inline]
#[target_feature(enable = "avx2")]
fn each_four_times() -> __m256i {
    let word = 0x0101_0101_0101_0101;
    let first = 0x0100_0100_0100_0100;
    _mm256_set_epi64x(first + 6 * word, first + 4 * word, first + 2 * word, first)
}

/// [`super::oldest`] of 16 symbols and more.
#[target_feature(enable = "avx2")]
pub fn oldest<const K: usize>(along: &[Row], input: Input, before: &[i16], group: usize) -> usize {
    let (symbols, groups) = (1 << (2 * K), STATES >> (2 * K));
    let mut gathered = [[0i16; 16]; 16];
    if K == 4 {
        for (i, fours) in before[..64].as_chunks::<4>().0.iter().enumerate() {
            let four = _mm256_set1_epi64x(bytemuck::cast(*fours));
            store32(bytemuck::cast_mut(&mut gathered[i]), _mm256_shuffle_epi8(four, each_four_times()));
        }
    } else {
        let before = &before[group >> (2 * K)..];
        for symbol in 0..symbols {
            gathered[symbol / 16][symbol % 16] = before[symbol * (groups >> (2 * K))];
        }
    }
    let input = broadcast(input);
    let first = group * symbols / 16;
    let mut best = _mm256_set1_epi16(i16::MIN);
    for i in 0..symbols / 16 {
        let scores = scores(&along[(first + i) / 4], input, (first + i) % 4);
        let sums = _mm256_add_epi16(scores, load32(bytemuck::cast_ref(&gathered[i])));
        store32(bytemuck::cast_mut(&mut gathered[i]), sums);
        best = _mm256_max_epi16(best, sums);
    }
    let best = _mm256_broadcastw_epi16(largest(best));
    for i in 0..symbols / 16 {
        let found = _mm256_cmpeq_epi16(best, load32(bytemuck::cast_ref(&gathered[i])));
        let bytes = _mm256_movemask_epi8(found);
        if bytes != 0 {
            return 16 * i + bytes.trailing_zeros() as usize / 2;
        }
    }
    0
}

/// In the first word.
#[inline]
#[target_feature(enable = "avx2")]
fn largest(words: __m256i) -> __m128i {
    let words = _mm_max_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
    // There is an instruction for the smallest unsigned one.
    let top = _mm_set1_epi16(i16::MAX);
    _mm_sub_epi16(top, _mm_minpos_epu16(_mm_sub_epi16(top, words)))
}

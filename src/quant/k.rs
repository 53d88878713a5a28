//! What the formats with 256 weights a block and scaled groups share ("K quants"): the exact integers of their dots,
//! and the packed 6-bit scales and minimums of Q4_K and Q5_K.

use super::le::{F16, I16};

/// Sum over groups of scale * dot of the group's codes with the input. The groups are of equal length.
/// Fits i32 with room to spare: 256 * 127 * 128 * 64 < 2^29.
pub(super) fn scaled_dot(codes: &[i8; 256], scales: &[i8], input: &[i8; 256]) -> i32 {
    let len = codes.len() / scales.len();
    let mut sum = 0;
    for ((codes, input), &scale) in codes.chunks_exact(len).zip(input.chunks_exact(len)).zip(scales) {
        let dot: i32 = codes.iter().zip(input).map(|(&code, &x)| i32::from(code) * i32::from(x)).sum();
        sum += i32::from(scale) * dot;
    }
    sum
}

/// Sum over groups of min * sum of the input codes that the group meets. `sums` are those of sixteens.
pub(super) fn scaled_sums(mins: &[i8], sums: &[I16; 16]) -> i32 {
    let len = sums.len() / mins.len();
    let group = |sums: &[I16]| sums.iter().map(|sum| i32::from(sum.get())).sum::<i32>();
    mins.iter().zip(sums.chunks_exact(len)).map(|(&min, sums)| i32::from(min) * group(sums)).sum()
}

/// The 256 codes of Q4_K and the low four bits of Q5_K's: byte 32 * p + i is code i of group 2p (low nibble) and of
/// group 2p + 1 (high).
pub(super) fn unpack_nibbles(bytes: &[u8; 128]) -> [i8; 256] {
    let mut codes = [0; 256];
    for (j, code) in codes.iter_mut().enumerate() {
        let group = j / 32;
        *code = (bytes[group / 2 * 32 + j % 32] >> (4 * (group % 2)) & 15).cast_signed();
    }
    codes
}

/// The 256 codes of Q2_K and the low two bits of Q3_K's: bit pair s of byte 32 * half + i is code i of section s of
/// the half.
pub(super) fn unpack_bit_pairs(bytes: &[u8; 64]) -> [i8; 256] {
    let mut codes = [0; 256];
    for (j, code) in codes.iter_mut().enumerate() {
        let (half, section) = (j / 128, j % 128 / 32);
        *code = (bytes[32 * half + j % 32] >> (2 * section) & 3).cast_signed();
    }
    codes
}

/// Eight 6-bit scales and eight 6-bit minimums from 12 bytes. The first four of each are the low six bits of bytes
/// 0..4 and 4..8; the last four have their low nibbles in bytes 8..12 (scale below, minimum above) and their upper
/// two bits on top of those bytes.
pub(super) fn unpack_scales(bytes: &[u8; 12]) -> ([i8; 8], [i8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = (bytes[j] & 63).cast_signed();
        mins[j] = (bytes[j + 4] & 63).cast_signed();
        scales[j + 4] = (bytes[j + 8] & 15 | bytes[j] >> 6 << 4).cast_signed();
        mins[j + 4] = (bytes[j + 8] >> 4 | bytes[j + 4] >> 6 << 4).cast_signed();
    }
    (scales, mins)
}

/// The weights of a block of Q4_K or Q5_K: (scale * group scale) * code - min * group min.
pub(super) fn decode_groups_of_32(
    scale: F16,
    min: F16,
    group_scales: &[u8; 12],
    codes: &[i8; 256],
    out: &mut [f32],
) {
    let (scales, mins) = unpack_scales(group_scales);
    for (j, (out, &code)) in out.iter_mut().zip(codes).enumerate() {
        let scale = scale.get() * f32::from(scales[j / 32]);
        *out = scale * f32::from(code) - min.get() * f32::from(mins[j / 32]);
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use crate::quant::{le::F16, q8_k};
    use crate::simd::x86::{halves, load32};

    /// For Q4_K and Q5_K: the 8 group scales for [`spread`], in both halves, and the products of the group minimums
    /// with the sums of the input in four partial sums.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn scales_and_offsets(group_scales: &[u8; 12], input: &q8_k::Block) -> (__m256i, __m128i) {
        let (scales, mins) = unpack_scales(group_scales);
        let sums = load_sums(input);
        // Sums of 32 codes are at most 32 * 127: still i16.
        let sums = _mm_hadd_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        (_mm256_broadcastsi128_si256(widen8(scales)), _mm_madd_epi16(widen8(mins), sums))
    }

    /// As the scalar `unpack_scales`, four bytes at a time: 8 scales and 8 minimums as bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn unpack_scales(bytes: &[u8; 12]) -> (u64, u64) {
        let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let (a, b, c) = (word(0), word(4), word(8));
        let upper = |word: u32| word >> 2 & 0x3030_3030;
        let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let scales = join(a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | upper(a));
        let mins = join(b & 0x3f3f_3f3f, c >> 4 & 0x0f0f_0f0f | upper(b));
        (scales, mins)
    }

    /// 8 unsigned bytes to 8 × i16.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn widen8(bytes: u64) -> __m128i {
        _mm_cvtepu8_epi16(_mm_cvtsi64_si128(bytes.cast_signed()))
    }

    /// 16 signed bytes to 16 × i16, the even ones in the lower half, the odd ones in the upper: what [`spread`]
    /// needs for groups of 16, two of which fill a register.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn widen_even_odd(bytes: __m128i) -> __m256i {
        let order = _mm_set_epi8(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0);
        _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, order))
    }

    /// Lane `i` of each half's 8 × i16, in all lanes of that half.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn spread(v: __m256i, i: usize) -> __m256i {
        _mm256_shuffle_epi8(v, _mm256_set1_epi16(0x0100 + 0x0202 * i as i16))
    }

    /// The 16 sums of the input in sixteens.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn load_sums(input: &q8_k::Block) -> __m256i {
        load32(bytemuck::cast_ref(&input.sums))
    }

    /// The term of a block with minimums: (scale * scale_x) * integer - (min * scale_x) * offset, where `integers`
    /// and `offsets` are partial sums.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn term_with_min(scale_and_min: [F16; 2], scale_x: f32, integers: __m256i, offsets: __m128i) -> f32 {
        let integers =
            _mm_add_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256::<1>(integers));
        let both = _mm_hadd_epi32(integers, offsets);
        let both = _mm_cvtepi32_ps(_mm_hadd_epi32(both, both)); // integer, offset, and again
        let scales = halves(u64::from(bytemuck::cast::<_, u32>(scale_and_min)));
        let terms = _mm_mul_ps(_mm_mul_ps(scales, _mm_set1_ps(scale_x)), both);
        _mm_cvtss_f32(_mm_hsub_ps(terms, terms))
    }
}

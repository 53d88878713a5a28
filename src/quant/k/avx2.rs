//! The AVX2 pieces of the dots of K quants; see the scalar ones in [`super`].

use std::arch::x86_64::*;

use crate::quant::{le::F16, q8_k};
use crate::simd::x86::{load32, load32i, sum4_i32};

/// For Q4_K and Q5_K: the 8 group scales for [`spread`], in both halves, and the products of the group minimums with
/// the sums of the input in 8 partial sums.
#[inline]
#[target_feature(enable = "avx2")]
pub fn scales_and_offsets(group_scales: &[u8; 12], input: &q8_k::Block) -> (__m256i, __m256i) {
    let (scales, mins) = unpack_scales(group_scales);
    let scales = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(scales.cast_signed()));
    // Each minimum twice, as the sums are of 16 inputs and the groups of 32.
    let mins = _mm_cvtsi64_si128(mins.cast_signed());
    let mins = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(mins, mins));
    (_mm256_broadcastsi128_si256(scales), _mm256_madd_epi16(mins, load_sums(input)))
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

/// The scales of four input blocks, one a lane.
#[inline]
#[target_feature(enable = "avx2")]
pub fn input_scales([a, b, c, d]: [&q8_k::Block; 4]) -> __m128 {
    _mm_set_ps(d.scale.get(), c.scale.get(), b.scale.get(), a.scale.get())
}

/// What the dot of Q4_K and Q5_K needs of a block.
pub struct GroupsOf32<'a> {
    pub scale: F16,
    pub min: F16,
    pub group_scales: &'a [u8; 12],
    /// The codes of each group, without sign.
    pub codes: [__m256i; 8],
}

/// The dots of Q4_K and Q5_K with four inputs, which take a lane of the sum each. Pair sums of codes and input are at
/// most 2 * 31 * 127: no saturation.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn dot4_groups_of_32<W>(
    weights: &[W],
    [a, b, c, d]: [&[q8_k::Block]; 4],
    unpack: impl Fn(&W) -> GroupsOf32<'_>,
) -> [f32; 4] {
    let mut sums = _mm_setzero_ps();
    for ((((w, a), b), c), d) in weights.iter().zip(a).zip(b).zip(c).zip(d) {
        let (w, inputs) = (unpack(w), [a, b, c, d]);
        let (scales, _) = scales_and_offsets(w.group_scales, a);
        let mut integers = [_mm256_setzero_si256(); 4];
        for (group, codes) in w.codes.into_iter().enumerate() {
            let scale = spread(scales, group);
            for (integers, x) in integers.iter_mut().zip(inputs) {
                let pair_sums = _mm256_maddubs_epi16(codes, load32i(&x.codes.as_chunks::<32>().0[group]));
                *integers = _mm256_add_epi32(*integers, _mm256_madd_epi16(pair_sums, scale));
            }
        }
        let offsets = |x| scales_and_offsets(w.group_scales, x).1;
        let offsets = [offsets(a), offsets(b), offsets(c), offsets(d)];
        let scales = input_scales(inputs);
        let part = |factor: F16, sums| {
            _mm_mul_ps(_mm_mul_ps(_mm_set1_ps(factor.get()), scales), _mm_cvtepi32_ps(sum4_i32(sums)))
        };
        sums = _mm_add_ps(sums, _mm_sub_ps(part(w.scale, integers), part(w.min, offsets)));
    }
    bytemuck::cast(sums)
}

/// The term of a block with minimums: (scale * scale_x) * integer - (min * scale_x) * offset, where `integers` and
/// `offsets` are partial sums.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn term_with_min(scale_and_min: [F16; 2], scale_x: f32, integers: __m256i, offsets: __m256i) -> f32 {
    // Integers in even lanes, offsets in odd ones.
    let both =
        _mm256_add_epi32(_mm256_unpacklo_epi32(integers, offsets), _mm256_unpackhi_epi32(integers, offsets));
    let both = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
    let both = _mm_cvtepi32_ps(_mm_add_epi32(both, _mm_unpackhi_epi64(both, both)));
    let scales: [u8; 4] = bytemuck::cast(scale_and_min);
    let scales = _mm_cvtph_ps(_mm_cvtsi32_si128(i32::from_le_bytes(scales)));
    let terms = _mm_mul_ps(_mm_mul_ps(scales, _mm_set1_ps(scale_x)), both);
    _mm_cvtss_f32(_mm_sub_ss(terms, _mm_movehdup_ps(terms)))
}

//! The AVX2 pieces of the dots of K quants; see the scalar ones in [`super`].

use std::arch::x86_64::*;

use crate::quant::{le::F16, q8_k};
use crate::simd::x86::{FourRows, Products, load32, load32i, sum_i32, sum4_i32};

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

/// Input codes 32 g to 32 g + 31.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load_group(input: &q8_k::Block, g: usize) -> __m256i {
    let groups: &[[i8; 32]; 8] = bytemuck::cast_ref(&input.codes);
    load32i(&groups[g])
}

/// Adds the products of the unsigned codes of group `g` with its inputs and its scales, see [`spread`], to partial sums.
/// Pair sums may not pass an i16: codes up to 127.
#[inline]
#[target_feature(enable = "avx2")]
pub fn add_group<V: Products>(
    integers: __m256i,
    codes: __m256i,
    input: &q8_k::Block,
    scales: __m256i,
    g: usize,
) -> __m256i {
    V::add_scaled(integers, codes, load_group(input, g), spread(scales, g))
}

/// The 16 sums of the input in sixteens.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load_sums(input: &q8_k::Block) -> __m256i {
    load32(bytemuck::cast_ref(&input.sums))
}

/// The dot of a row of blocks of 256: `integers` gives partial sums of a block's exact integer.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn dot<W>(
    weights: &[W],
    input: &[q8_k::Block],
    scale: impl Fn(&W) -> f32,
    integers: impl Fn(&W, &q8_k::Block) -> __m256i,
) -> f32 {
    let mut sum = 0.0;
    let weights = &weights[..input.len()];
    for (i, x) in input.iter().enumerate() {
        let w = &weights[i];
        sum += (scale(w) * x.scale.get()) * sum_i32(integers(w, x)) as f32;
    }
    sum
}

/// The dots of four rows, each of which takes a lane of the sum.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn rows4<W>(
    rows: [&[W]; 4],
    input: &[q8_k::Block],
    scale: impl Fn(&W) -> f32,
    integers: impl Fn(&W, &q8_k::Block) -> __m256i,
) -> [f32; 4] {
    let mut sums = _mm_setzero_ps();
    let rows = FourRows::new(rows, input.len());
    for (i, x) in input.iter().enumerate() {
        let [a, b, c, d] = rows.blocks(i);
        let integers = sum4_i32([integers(a, x), integers(b, x), integers(c, x), integers(d, x)]);
        let scales = _mm_set_ps(scale(d), scale(c), scale(b), scale(a));
        let scales = _mm_mul_ps(scales, _mm_set1_ps(x.scale.get()));
        sums = _mm_add_ps(sums, _mm_mul_ps(scales, _mm_cvtepi32_ps(integers)));
    }
    bytemuck::cast(sums)
}

/// [`dot`] with minimums: `integers` gives partial sums of a block's exact integer and of its exact offset.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn dot_with_min<W>(
    weights: &[W],
    input: &[q8_k::Block],
    scale_and_min: impl Fn(&W) -> [F16; 2],
    integers: impl Fn(&W, &q8_k::Block) -> (__m256i, __m256i),
) -> f32 {
    let mut sum = 0.0;
    let weights = &weights[..input.len()];
    for (i, x) in input.iter().enumerate() {
        let w = &weights[i];
        let (integers, offsets) = integers(w, x);
        sum += term_with_min(scale_and_min(w), x.scale.get(), integers, offsets);
    }
    sum
}

/// [`rows4`] with minimums.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn rows4_with_min<W>(
    rows: [&[W]; 4],
    input: &[q8_k::Block],
    scale_and_min: impl Fn(&W) -> [F16; 2],
    integers: impl Fn(&W, &q8_k::Block) -> (__m256i, __m256i),
) -> [f32; 4] {
    let mut sums = _mm_setzero_ps();
    let rows = FourRows::new(rows, input.len());
    for (i, x) in input.iter().enumerate() {
        let [a, b, c, d] = rows.blocks(i);
        let ((ia, oa), (ib, ob)) = (integers(a, x), integers(b, x));
        let ((ic, oc), (id, od)) = (integers(c, x), integers(d, x));
        let factors = [scale_and_min(a), scale_and_min(b), scale_and_min(c), scale_and_min(d)];
        let scale_x = _mm_set1_ps(x.scale.get());
        let part = |i: usize, integers| {
            let [a, b, c, d] = [factors[0][i], factors[1][i], factors[2][i], factors[3][i]];
            let factors = _mm_set_ps(d.get(), c.get(), b.get(), a.get());
            _mm_mul_ps(_mm_mul_ps(factors, scale_x), _mm_cvtepi32_ps(sum4_i32(integers)))
        };
        sums = _mm_add_ps(sums, _mm_sub_ps(part(0, [ia, ib, ic, id]), part(1, [oa, ob, oc, od])));
    }
    bytemuck::cast(sums)
}

/// The term of a block with minimums: (scale * scale_x) * integer - (min * scale_x) * offset, where `integers` and
/// `offsets` are partial sums.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn term_with_min(scale_and_min: [F16; 2], scale_x: f32, integers: __m256i, offsets: __m256i) -> f32 {
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

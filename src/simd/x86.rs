//! The few AVX2 operations that the block dots are written in. Loads take array references, so the bytes they
//! read are proven to be there; this is the only place of `unsafe` in the kernels.

use std::arch::x86_64::*;

/// 32 bytes from memory of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference proves 32 readable bytes; `loadu` asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// 32 signed bytes from memory of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load32i(bytes: &[i8; 32]) -> __m256i {
    // SAFETY: the reference proves 32 readable bytes; `loadu` asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// 16 bytes from memory of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the reference proves 16 readable bytes; `loadu` asks for no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// 16 bytes to 32 nibbles: low ones in lanes 0..16, high ones in lanes 16..32.
#[inline]
#[target_feature(enable = "avx2")]
pub fn nibbles(bytes: &[u8; 16]) -> __m256i {
    let raw = load16(bytes);
    let both = _mm256_set_m128i(_mm_srli_epi16::<4>(raw), raw);
    _mm256_and_si256(both, _mm256_set1_epi8(15))
}

/// Exact products of unsigned `codes` and signed `input` bytes, summed in fours: 8 × i32.
/// Pair sums are i16: the caller's codes must keep `2 * max(code) * 127` below 32768.
#[inline]
#[target_feature(enable = "avx2")]
pub fn dot_u8_i8(codes: __m256i, input: __m256i) -> __m256i {
    _mm256_madd_epi16(_mm256_maddubs_epi16(codes, input), _mm256_set1_epi16(1))
}

/// Exact products of signed `codes` (any value) and signed `input` (never -128), summed in fours: 8 × i32.
/// The sign moves from the code to the input, so that the unsigned-by-signed instruction applies.
#[inline]
#[target_feature(enable = "avx2")]
pub fn dot_i8_i8(codes: __m256i, input: __m256i) -> __m256i {
    dot_u8_i8(_mm256_abs_epi8(codes), _mm256_sign_epi8(input, codes))
}

/// Sum of 8 × i32.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum_i32(v: __m256i) -> i32 {
    let v = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let v = _mm_add_epi32(v, _mm_unpackhi_epi64(v, v));
    _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32::<1>(v)))
}

/// For each index (0..16), the byte of `table`.
#[inline]
#[target_feature(enable = "avx2")]
pub fn lookup16(table: &[i8; 16], indices: __m256i) -> __m256i {
    let table = load16(bytemuck::cast_ref(table));
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), indices)
}

/// [`dot_i8_i8`] with sums of two instead of four: 16 × i16.
#[inline]
#[target_feature(enable = "avx2")]
pub fn pairs_i8_i8(codes: __m256i, input: __m256i) -> __m256i {
    _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(input, codes))
}

/// 32 bits, lowest first, to bytes: 255 where set, 0 where clear.
#[inline]
#[target_feature(enable = "avx2")]
pub fn bit_masks(bits: [u8; 4]) -> __m256i {
    // Byte i of the result looks at byte i / 8 of the bits, which every lane of four has.
    let bytes = _mm256_set_epi64x(0x0303_0303_0303_0303, 0x0202_0202_0202_0202, 0x0101_0101_0101_0101, 0);
    let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(i32::from_le_bytes(bits)), bytes);
    let selector = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    _mm256_cmpeq_epi8(_mm256_and_si256(spread, selector), selector)
}

/// Sums of the lower and the upper 4 × i32.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum_fours(v: __m256i) -> [i32; 2] {
    let twos = _mm256_add_epi32(v, _mm256_unpackhi_epi64(v, v));
    let ones = _mm256_add_epi32(twos, _mm256_shuffle_epi32::<1>(twos));
    [_mm256_cvtsi256_si32(ones), _mm256_extract_epi32::<4>(ones)]
}

/// The sum of 8 × i32 of each of four.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum_each(a: __m256i, b: __m256i, c: __m256i, d: __m256i) -> __m128i {
    let sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums))
}

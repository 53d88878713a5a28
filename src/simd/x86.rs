//! The few AVX2 operations that the block dots are written in. Loads take array references, so the bytes they
//! read are proven to be there; this is the only place of `unsafe` in the kernels.

use std::arch::asm;
use std::arch::x86_64::*;

use bytemuck::Pod;

use super::vector::{Shuffle, operations};
pub(crate) use products::Products;

pub mod products;
pub mod vnni;

/// 256 bits, AVX2.
pub(crate) struct Avx2;

macro_rules! shuffle {
    ($($vector:ty),+) => {$(
        impl Shuffle for $vector {
            operations! {
                fn lookup16(table: &[u8; 16], indices: &[u8; 16]) -> [u8; 16] {
                    bytemuck::cast(_mm_shuffle_epi8(load16(table), load16(indices)))
                }
            }
        }
    )+};
}
shuffle!(Avx2, vnni::AvxVnni, vnni::Avx512);

/// 32 bytes from memory of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference proves 32 readable bytes; `loadu` asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// 32 bytes to memory of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
pub fn store32(bytes: &mut [u8; 32], v: __m256i) {
    // SAFETY: the reference proves 32 writable bytes; `storeu` asks for no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), v) }
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

/// 8 floats from memory of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
pub fn load8f(values: &[f32; 8]) -> __m256 {
    // SAFETY: the reference proves 32 readable bytes; `loadu` asks for no alignment.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

/// 8 floats to memory of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
pub fn store8f(values: &mut [f32; 8], v: __m256) {
    // SAFETY: the reference proves 32 writable bytes; `storeu` asks for no alignment.
    unsafe { _mm256_storeu_ps(values.as_mut_ptr(), v) }
}

/// 16 bytes to memory of any alignment.
#[inline]
#[target_feature(enable = "avx2")]
pub fn store16(bytes: &mut [u8; 16], v: __m128i) {
    // SAFETY: the reference proves 16 writable bytes; `storeu` asks for no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), v) }
}

/// 8 IEEE halves from memory of any alignment, as floats. Exact.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn load8h(bytes: &[u8; 16]) -> __m256 {
    _mm256_cvtph_ps(load16(bytes))
}

/// 16 bytes to 32 nibbles: low ones in lanes 0..16, high ones in lanes 16..32.
#[inline]
#[target_feature(enable = "avx2")]
pub fn nibbles(bytes: &[u8; 16]) -> __m256i {
    let twice = _mm256_broadcastsi128_si256(load16(bytes));
    let shifted = _mm256_srlv_epi64(twice, _mm256_set_epi64x(4, 4, 0, 0));
    _mm256_and_si256(shifted, _mm256_set1_epi8(15))
}

/// 32 bits to 32 bytes, in order of significance: 0xff where the bit is set, else 0.
#[inline]
#[target_feature(enable = "avx2")]
pub fn bit_masks(bits: u32) -> __m256i {
    bit_masks_of(_mm256_set1_epi32(bits.cast_signed()), 0)
}

/// [`bit_masks`] of word `i` (0..4) of `words`, whose halves are alike.
#[inline]
#[target_feature(enable = "avx2")]
pub fn bit_masks_of(words: __m256i, i: usize) -> __m256i {
    // Lanes of eight: byte 4 i, and so on.
    let byte = |lane: u64| (0x0101_0101_0101_0101 * (4 * i as u64 + lane)).cast_signed();
    let spread = _mm256_shuffle_epi8(words, _mm256_set_epi64x(byte(3), byte(2), byte(1), byte(0)));
    // Byte i of each 8 keeps bit i only.
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
    _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit)
}

/// 16 bytes in both halves.
#[inline]
#[target_feature(enable = "avx2")]
pub fn twice(v: __m128i) -> __m256i {
    _mm256_broadcastsi128_si256(v)
}

/// Unsigned codes and signed inputs with the products of signed `codes` (any value) and `input` (never -128): the input
/// takes the codes' signs.
#[inline]
#[target_feature(enable = "avx2")]
pub fn move_signs(codes: __m256i, input: __m256i) -> (__m256i, __m256i) {
    (_mm256_abs_epi8(codes), _mm256_sign_epi8(input, codes))
}

/// `v`, of which the optimizer knows nothing: it cannot turn a chain of integer sums into a tree, which has more
/// intermediate results than registers.
#[inline]
#[target_feature(enable = "avx2")]
pub fn opaque(mut v: __m256i) -> __m256i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {v} */", v = inout(ymm_reg) v, options(nostack, preserves_flags)) };
    v
}

/// `value`, of which the optimizer knows nothing: it cannot compute it in a vector, only to take it out again.
#[inline(always)]
pub fn opaque_index(mut value: usize) -> usize {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {value} */", value = inout(reg) value, options(nostack, nomem, preserves_flags)) };
    value
}

/// Sum of 8 × i32.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum_i32(v: __m256i) -> i32 {
    let v = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let v = _mm_add_epi32(v, _mm_unpackhi_epi64(v, v));
    _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32::<1>(v)))
}

/// The sums of four vectors of 8 × i32, in order: 4 × i32. Shuffles and sums: `hadd` takes twice the time.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum4_i32(v: [__m256i; 4]) -> __m128i {
    let sums = half_sums4_i32(v);
    _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums))
}

/// The sums of the lower halves of four vectors of 8 × i32, then those of the upper ones.
#[inline]
#[target_feature(enable = "avx2")]
pub fn half_sums4_i32(v: [__m256i; 4]) -> __m256i {
    let fold = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (ab, cd) = (fold(v[0], v[1]), fold(v[2], v[3]));
    _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd))
}

/// The sums of four vectors of 16 × i16, in order: 4 × i32. Fours are summed as i16: no number may be above 8191.
#[inline]
#[target_feature(enable = "avx2")]
pub fn sum4_i16(v: [__m256i; 4]) -> __m128i {
    let fold = |a, b| _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let (ab, cd) = (_mm256_castsi256_ps(fold(v[0], v[1])), _mm256_castsi256_ps(fold(v[2], v[3])));
    let even = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(ab, cd));
    let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(ab, cd));
    let sums = _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1));
    _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums))
}

/// Four rows of weights that are read side by side.
pub struct FourRows<'a, W>([&'a [W]; 4]);

impl<'a, W> FourRows<'a, W> {
    /// The first `blocks` blocks of each row.
    #[inline(always)]
    pub fn new([a, b, c, d]: [&'a [W]; 4], blocks: usize) -> Self {
        FourRows([&a[..blocks], &b[..blocks], &c[..blocks], &d[..blocks]])
    }

    /// Block `i` of each row. Those of the next four rows are asked for.
    #[inline(always)]
    pub fn blocks(&self, i: usize) -> [&'a W; 4] {
        let [a, b, c, d] = self.0;
        prefetch_next_rows(self.0, i);
        [&a[i], &b[i], &c[i], &d[i]]
    }
}

/// Asks for what the next four rows, right behind these, have in place of these rows' blocks `i`. Rows are short and read
/// four at a time, so that the CPU's own prefetchers see the streams end before they follow them. They are asked for in the
/// second-level cache: the first one may have few loads under way, which current ones need (Sapphire Rapids, Q8_0 from
/// memory: a tenth faster than with `T0`).
#[inline(always)]
fn prefetch_next_rows<W>(rows: [&[W]; 4], i: usize) {
    let row_bytes = rows[1].as_ptr().addr().wrapping_sub(rows[0].as_ptr().addr());
    let blocks = 4 * size_of::<W>();
    let start =
        rows[0].as_ptr().cast::<i8>().wrapping_add(row_bytes.wrapping_mul(4).wrapping_add(i * blocks));
    for line in 0..blocks.div_ceil(64) {
        // SAFETY: SSE is part of x86-64, and an address that is not there does no harm.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(64 * line)) };
    }
}

/// The IEEE halves that a block begins with, as floats.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn leading_halves<B: Pod>(block: &B) -> __m128 {
    _mm_cvtph_ps(load16(head(block)))
}

/// The IEEE halves that four blocks begin with, as floats: lanes 0..4 the first one of each, 4..8 the second.
/// Three shuffles, where picking eight words one by one would take some twenty steps.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn leading_halves_of_4<B: Pod>(blocks: [&B; 4]) -> __m256 {
    let words = |i: usize| load16(head(blocks[i]));
    let (ab, cd) = (_mm_unpacklo_epi16(words(0), words(1)), _mm_unpacklo_epi16(words(2), words(3)));
    _mm256_cvtph_ps(_mm_unpacklo_epi32(ab, cd))
}

/// The first 16 bytes of a block.
#[inline]
fn head<B: Pod>(block: &B) -> &[u8; 16] {
    bytemuck::bytes_of(block).first_chunk().expect("a block is a scale and 16 bytes of codes or more")
}

/// An IEEE half as a float, in every lane.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn broadcast_half(bytes: [u8; 2]) -> __m256 {
    _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(u16::from_le_bytes(bytes)))))
}

/// The bytes of the IEEE half nearest to `value`, ties to even.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub fn half(value: f32) -> [u8; 2] {
    let halves = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(value));
    (_mm_cvtsi128_si32(halves) as u16).to_le_bytes()
}

/// For each index (0..16), the byte of `table`.
#[inline]
#[target_feature(enable = "avx2")]
pub fn lookup16(table: &[i8; 16], indices: __m256i) -> __m256i {
    let table = load16(bytemuck::cast_ref(table));
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), indices)
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

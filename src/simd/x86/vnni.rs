//! The vectors of x86-64 with VNNI: sums of four products of unsigned and signed bytes.

use std::arch::x86_64::*;

use crate::simd::vector::{Vector, first, first_mut, operations};

/// 256 bits, AVX-VNNI.
pub(crate) struct AvxVnni;

/// 512 bits, AVX-512 with VNNI.
pub(crate) struct Avx512;

impl Vector for AvxVnni {
    const LANES: usize = 8;
    const UNSIGNED: bool = true;
    type Int = __m256i;
    type Float = __m256;
    type Dots = __m256i;

    operations! {
        fn load(bytes: &[u8]) -> __m256i { _mm256_loadu_si256(first::<_, 32>(bytes).cast()) }
        fn splat(x: i32) -> __m256i { _mm256_set1_epi32(x) }
        fn add(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
        fn sub(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi32(a, b) }
        fn mul(a: __m256i, b: __m256i) -> __m256i { _mm256_mullo_epi32(a, b) }
        fn dot_pairs(a: __m256i, b: __m256i) -> __m256i { _mm256_madd_epi16(a, b) }
        fn no_dots() -> __m256i { _mm256_setzero_si256() }
        fn add_dots(dots: __m256i, codes: __m256i, inputs: __m256i) -> __m256i {
            _mm256_dpbusd_avx_epi32(dots, codes, inputs)
        }
        fn dots(dots: __m256i) -> __m256i { dots }
        fn to_float(a: __m256i) -> __m256 { _mm256_cvtepi32_ps(a) }
        fn load_f(values: &[f32]) -> __m256 { _mm256_loadu_ps(first::<_, 8>(values)) }
        fn store_f(a: __m256, out: &mut [f32]) { _mm256_storeu_ps(first_mut::<_, 8>(out), a) }
        fn splat_f(x: f32) -> __m256 { _mm256_set1_ps(x) }
        fn add_f(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        fn sub_f(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        fn mul_f(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
    }
}

impl Vector for Avx512 {
    const LANES: usize = 16;
    const UNSIGNED: bool = true;
    type Int = __m512i;
    type Float = __m512;
    type Dots = __m512i;

    operations! {
        fn load(bytes: &[u8]) -> __m512i { _mm512_loadu_si512(first::<_, 64>(bytes).cast()) }
        fn splat(x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn add(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn sub(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi32(a, b) }
        fn mul(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi32(a, b) }
        fn dot_pairs(a: __m512i, b: __m512i) -> __m512i { _mm512_madd_epi16(a, b) }
        fn no_dots() -> __m512i { _mm512_setzero_si512() }
        fn add_dots(dots: __m512i, codes: __m512i, inputs: __m512i) -> __m512i {
            _mm512_dpbusd_epi32(dots, codes, inputs)
        }
        fn dots(dots: __m512i) -> __m512i { dots }
        fn to_float(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn load_f(values: &[f32]) -> __m512 { _mm512_loadu_ps(first::<_, 16>(values)) }
        fn store_f(a: __m512, out: &mut [f32]) { _mm512_storeu_ps(first_mut::<_, 16>(out), a) }
        fn splat_f(x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn add_f(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub_f(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul_f(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
    }
}

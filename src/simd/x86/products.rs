//! Sums of products of bytes, in which the instruction sets with vectors of 32 bytes differ: the dots of rows are written
//! once over [`Products`].

use std::arch::asm;
use std::arch::x86_64::*;

use super::vnni::{Avx512, AvxVnni};
use super::{Avx2, sum4_i16, sum4_i32};
use crate::simd::vector::operations;

/// What the dots of rows ask of an instruction set. Codes are u8, inputs i8. "Sums" are partial sums of their products:
/// of two each as 16 × i16, which the caller keeps from overflowing, or of four each as 8 × i32.
///
/// An implementation may run only where its instruction set is available: its arms are listed under that `Isa`. Methods
/// are `#[inline(always)]`, so they become part of functions that are compiled for AVX2.
pub(crate) trait Products {
    /// Adds the products of 32 codes and inputs to `sums`.
    fn add(sums: __m256i, codes: __m256i, input: __m256i) -> __m256i;

    /// `sums` less 16 × i16.
    fn less(sums: __m256i, numbers: __m256i) -> __m256i;

    /// `sums` of four products each, whatever they were: 8 × i32.
    fn fours(sums: __m256i) -> __m256i;

    /// The totals of four `sums`: 4 × i32. None of 16 × i16 may be above 8191.
    fn totals(sums: [__m256i; 4]) -> __m128i;

    /// Adds to 8 × i32 the products of 32 codes and inputs, two of which, at most an i16, share one of 16 × i16 `factors`.
    fn add_scaled(integers: __m256i, codes: __m256i, input: __m256i, factors: __m256i) -> __m256i;

    /// Sums of the products of 32 codes and inputs.
    #[inline(always)]
    fn dot(codes: __m256i, input: __m256i) -> __m256i {
        // SAFETY: see the trait.
        Self::add(unsafe { _mm256_setzero_si256() }, codes, input)
    }
}

impl Products for Avx2 {
    operations! {
        fn add(sums: __m256i, codes: __m256i, input: __m256i) -> __m256i {
            _mm256_add_epi16(sums, _mm256_maddubs_epi16(codes, input))
        }
        fn less(sums: __m256i, numbers: __m256i) -> __m256i { _mm256_sub_epi16(sums, numbers) }
        fn fours(sums: __m256i) -> __m256i { _mm256_madd_epi16(sums, _mm256_set1_epi16(1)) }
        fn totals(sums: [__m256i; 4]) -> __m128i { sum4_i16(sums) }
        fn add_scaled(integers: __m256i, codes: __m256i, input: __m256i, factors: __m256i) -> __m256i {
            _mm256_add_epi32(integers, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, input), factors))
        }
    }
}

/// [`Products`] with the two instructions of VNNI, of a type that has them as `dpbusd` and `dpwssd`.
macro_rules! products {
    ($($vector:ty),+) => {$(
        impl Products for $vector {
            operations! {
                fn add(sums: __m256i, codes: __m256i, input: __m256i) -> __m256i {
                    <$vector>::dpbusd(sums, codes, input)
                }
                fn less(sums: __m256i, numbers: __m256i) -> __m256i {
                    <$vector>::dpwssd(sums, numbers, _mm256_set1_epi16(-1))
                }
                fn fours(sums: __m256i) -> __m256i { sums }
                fn totals(sums: [__m256i; 4]) -> __m128i { sum4_i32(sums) }
                fn add_scaled(integers: __m256i, codes: __m256i, input: __m256i, factors: __m256i) -> __m256i {
                    <$vector>::dpwssd(integers, _mm256_maddubs_epi16(codes, input), factors)
                }
            }
        }
    )+};
}
products!(AvxVnni, Avx512);
#[cfg(test)]
products!(EmulatedVnni);

/// The instructions of VNNI on 32 bytes in one encoding. Assembly, since the compiler's own names for them would be inlined
/// only where a whole function is compiled for VNNI, and the dots are one source for all.
macro_rules! vnni {
    ($vector:ty, $encoding:literal) => {
        impl $vector {
            /// Adds the products of unsigned and signed bytes to 8 × i32, four to each.
            ///
            /// # Safety
            /// The CPU must have the instruction.
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn dpbusd(mut sums: __m256i, codes: __m256i, input: __m256i) -> __m256i {
                // SAFETY: the caller's promise; registers only.
                unsafe {
                    asm!(concat!("{{", $encoding, "}} vpdpbusd {sums}, {codes}, {input}"),
                        sums = inout(ymm_reg) sums, codes = in(ymm_reg) codes, input = in(ymm_reg) input,
                        options(pure, nomem, nostack, preserves_flags));
                }
                sums
            }

            /// Adds the products of i16 to 8 × i32, two to each.
            ///
            /// # Safety
            /// The CPU must have the instruction.
            #[inline]
            #[target_feature(enable = "avx2")]
            unsafe fn dpwssd(mut sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the caller's promise; registers only.
                unsafe {
                    asm!(concat!("{{", $encoding, "}} vpdpwssd {sums}, {a}, {b}"),
                        sums = inout(ymm_reg) sums, a = in(ymm_reg) a, b = in(ymm_reg) b,
                        options(pure, nomem, nostack, preserves_flags));
                }
                sums
            }
        }
    };
}
vnni!(AvxVnni, "vex");
vnni!(Avx512, "evex");

/// VNNI's instructions as plain numbers, so that tests run its arms wherever there is AVX2.
#[cfg(test)]
pub(crate) struct EmulatedVnni;

#[cfg(test)]
impl EmulatedVnni {
    fn dpbusd(sums: __m256i, codes: __m256i, input: __m256i) -> __m256i {
        let (codes, input): ([[u8; 4]; 8], [[i8; 4]; 8]) = (bytemuck::cast(codes), bytemuck::cast(input));
        let mut sums: [i32; 8] = bytemuck::cast(sums);
        for (sum, (codes, input)) in sums.iter_mut().zip(codes.iter().zip(&input)) {
            *sum += codes.iter().zip(input).map(|(&code, &x)| i32::from(code) * i32::from(x)).sum::<i32>();
        }
        bytemuck::cast(sums)
    }

    fn dpwssd(sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
        let (a, b): ([[i16; 2]; 8], [[i16; 2]; 8]) = (bytemuck::cast(a), bytemuck::cast(b));
        let mut sums: [i32; 8] = bytemuck::cast(sums);
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(&b)) {
            *sum += a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum::<i32>();
        }
        bytemuck::cast(sums)
    }
}

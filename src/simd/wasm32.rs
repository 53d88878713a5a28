//! The vectors of WebAssembly.

use std::arch::wasm32::*;

use super::vector::{Shuffle, Vector, Vector128, first, first_mut, operations};

/// 128-bit vectors.
pub(crate) struct Simd128;

impl Vector for Simd128 {
    const LANES: usize = 4;
    const UNSIGNED: bool = false;
    type Int = v128;
    type Float = v128;
    /// Of two products each: the lower two lanes' and the upper two's.
    type Dots = [v128; 2];

    operations! {
        fn load(bytes: &[u8]) -> v128 { v128_load(first::<_, 16>(bytes).cast()) }
        fn splat(x: i32) -> v128 { i32x4_splat(x) }
        fn add(a: v128, b: v128) -> v128 { i32x4_add(a, b) }
        fn sub(a: v128, b: v128) -> v128 { i32x4_sub(a, b) }
        fn mul(a: v128, b: v128) -> v128 { i32x4_mul(a, b) }
        fn dot_pairs(a: v128, b: v128) -> v128 { i32x4_dot_i16x8(a, b) }
        fn no_dots() -> [v128; 2] { [i32x4_splat(0); 2] }
        fn add_dots(dots: [v128; 2], codes: v128, inputs: v128) -> [v128; 2] {{
            let low = i32x4_dot_i16x8(i16x8_extend_low_i8x16(codes), i16x8_extend_low_i8x16(inputs));
            let high = i32x4_dot_i16x8(i16x8_extend_high_i8x16(codes), i16x8_extend_high_i8x16(inputs));
            [i32x4_add(dots[0], low), i32x4_add(dots[1], high)]
        }}
        fn dots(dots: [v128; 2]) -> v128 {
            i32x4_add(
                i32x4_shuffle::<0, 2, 4, 6>(dots[0], dots[1]),
                i32x4_shuffle::<1, 3, 5, 7>(dots[0], dots[1]),
            )
        }
        fn to_float(a: v128) -> v128 { f32x4_convert_i32x4(a) }
        fn load_f(values: &[f32]) -> v128 { v128_load(first::<_, 4>(values).cast()) }
        fn store_f(a: v128, out: &mut [f32]) { v128_store(first_mut::<_, 4>(out).cast(), a) }
        fn splat_f(x: f32) -> v128 { f32x4_splat(x) }
        fn add_f(a: v128, b: v128) -> v128 { f32x4_add(a, b) }
        fn sub_f(a: v128, b: v128) -> v128 { f32x4_sub(a, b) }
        fn mul_f(a: v128, b: v128) -> v128 { f32x4_mul(a, b) }
    }
}

impl Vector128 for Simd128 {
    operations! {
        fn sub_bytes(a: v128, b: v128) -> v128 { i8x16_sub(a, b) }
        fn total(a: v128) -> i32 {{
            let a = i32x4_add(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
            i32x4_extract_lane::<0>(a) + i32x4_extract_lane::<1>(a)
        }}
    }
}

impl Shuffle for Simd128 {
    operations! {
        fn lookup16(table: &[u8; 16], indices: &[u8; 16]) -> [u8; 16] {{
            let mut out = [0; 16];
            let indices = v128_and(v128_load(indices.as_ptr().cast()), u8x16_splat(15));
            v128_store(out.as_mut_ptr().cast(), u8x16_swizzle(v128_load(table.as_ptr().cast()), indices));
            out
        }}
    }
}

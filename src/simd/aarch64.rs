//! The vectors of aarch64, of which NEON is part.

use std::arch::aarch64::*;
use std::arch::asm;

use super::vector::{Matrix, Shuffle, Vector, Vector128, first, first_mut, operations};

/// Products of bytes to i16, of which pairs are added to i32.
pub(crate) struct Neon;

/// NEON with SDOT.
pub(crate) struct Dotprod;

/// NEON with SDOT and SMMLA.
pub(crate) struct I8mm;

/// Everything but the dots, which all have in common.
macro_rules! common {
    () => {
        const LANES: usize = 4;
        const UNSIGNED: bool = false;
        type Int = int32x4_t;
        type Float = float32x4_t;

        operations! {
            fn load(bytes: &[u8]) -> int32x4_t { vreinterpretq_s32_u8(vld1q_u8(first::<_, 16>(bytes))) }
            fn splat(x: i32) -> int32x4_t { vdupq_n_s32(x) }
            fn add(a: int32x4_t, b: int32x4_t) -> int32x4_t { vaddq_s32(a, b) }
            fn sub(a: int32x4_t, b: int32x4_t) -> int32x4_t { vsubq_s32(a, b) }
            fn mul(a: int32x4_t, b: int32x4_t) -> int32x4_t { vmulq_s32(a, b) }
            fn dot_pairs(a: int32x4_t, b: int32x4_t) -> int32x4_t {{
                let (a, b) = (vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
                vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b))
            }}
            fn to_float(a: int32x4_t) -> float32x4_t { vcvtq_f32_s32(a) }
            fn load_f(values: &[f32]) -> float32x4_t { vld1q_f32(first::<_, 4>(values)) }
            fn store_f(a: float32x4_t, out: &mut [f32]) { vst1q_f32(first_mut::<_, 4>(out), a) }
            fn splat_f(x: f32) -> float32x4_t { vdupq_n_f32(x) }
            fn add_f(a: float32x4_t, b: float32x4_t) -> float32x4_t { vaddq_f32(a, b) }
            fn sub_f(a: float32x4_t, b: float32x4_t) -> float32x4_t { vsubq_f32(a, b) }
            fn mul_f(a: float32x4_t, b: float32x4_t) -> float32x4_t { vmulq_f32(a, b) }
        }
    };
}

impl Vector for Neon {
    /// Of two products each: the lower two lanes' and the upper two's.
    type Dots = [int32x4_t; 2];
    common!();

    operations! {
        fn no_dots() -> [int32x4_t; 2] { [vdupq_n_s32(0); 2] }
        fn add_dots(dots: [int32x4_t; 2], codes: int32x4_t, inputs: int32x4_t) -> [int32x4_t; 2] {{
            let (a, b) = (vreinterpretq_s8_s32(codes), vreinterpretq_s8_s32(inputs));
            let low = vpadalq_s16(dots[0], vmull_s8(vget_low_s8(a), vget_low_s8(b)));
            [low, vpadalq_s16(dots[1], vmull_high_s8(a, b))]
        }}
        fn dots(dots: [int32x4_t; 2]) -> int32x4_t { vpaddq_s32(dots[0], dots[1]) }
    }
}

impl Vector for Dotprod {
    type Dots = int32x4_t;
    common!();

    operations! {
        fn no_dots() -> int32x4_t { vdupq_n_s32(0) }
        fn add_dots(dots: int32x4_t, codes: int32x4_t, inputs: int32x4_t) -> int32x4_t {{
            let mut dots = dots;
            // The compiler's own name for the instruction is not stable.
            asm!(
                ".arch_extension dotprod",
                "sdot {dots:v}.4s, {codes:v}.16b, {inputs:v}.16b",
                dots = inout(vreg) dots, codes = in(vreg) codes, inputs = in(vreg) inputs,
                options(pure, nomem, nostack, preserves_flags),
            );
            dots
        }}
        fn dots(dots: int32x4_t) -> int32x4_t { dots }
    }
}

impl Vector for I8mm {
    type Dots = int32x4_t;
    common!();

    operations! {
        fn no_dots() -> int32x4_t { Dotprod::no_dots() }
        fn add_dots(dots: int32x4_t, codes: int32x4_t, inputs: int32x4_t) -> int32x4_t {
            Dotprod::add_dots(dots, codes, inputs)
        }
        fn dots(dots: int32x4_t) -> int32x4_t { dots }
    }
}

impl Matrix for I8mm {
    operations! {
        fn load_rows(a: &[u8], b: &[u8]) -> int32x4_t {
            vreinterpretq_s32_u8(vcombine_u8(vld1_u8(first::<_, 8>(a)), vld1_u8(first::<_, 8>(b))))
        }
        fn add_products(sums: int32x4_t, codes: int32x4_t, inputs: int32x4_t) -> int32x4_t {{
            let mut sums = sums;
            // The compiler's own name for the instruction is not stable.
            asm!(
                ".arch_extension i8mm",
                "smmla {sums:v}.4s, {codes:v}.16b, {inputs:v}.16b",
                sums = inout(vreg) sums, codes = in(vreg) codes, inputs = in(vreg) inputs,
                options(pure, nomem, nostack, preserves_flags),
            );
            sums
        }}
        fn unzip(a: int32x4_t, b: int32x4_t) -> [int32x4_t; 2] { [vuzp1q_s32(a, b), vuzp2q_s32(a, b)] }
    }
}

/// What all have in common besides.
macro_rules! common_traits {
    ($($vector:ident),+) => {$(
        impl Vector128 for $vector {
            operations! {
                fn sub_bytes(a: int32x4_t, b: int32x4_t) -> int32x4_t {
                    vreinterpretq_s32_s8(vsubq_s8(vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)))
                }
                fn total(a: int32x4_t) -> i32 { vaddvq_s32(a) }
            }
        }

        impl Shuffle for $vector {
            operations! {
                fn lookup16(table: &[u8; 16], indices: &[u8; 16]) -> [u8; 16] {{
                    let mut out = [0; 16];
                    let indices = vandq_u8(vld1q_u8(indices.as_ptr()), vdupq_n_u8(15));
                    vst1q_u8(out.as_mut_ptr(), vqtbl1q_u8(vld1q_u8(table.as_ptr()), indices));
                    out
                }}
            }
        }
    )+};
}
common_traits!(Neon, Dotprod, I8mm);

/// An IEEE half as a float.
#[inline(always)]
pub(crate) fn widen_half(bits: u16) -> f32 {
    let value;
    // SAFETY: one instruction of every aarch64 that touches registers only.
    unsafe {
        asm!("fcvt {value:s}, {bits:h}", value = out(vreg) value, bits = in(vreg) bits,
            options(pure, nomem, nostack, preserves_flags));
    }
    value
}

/// Eight IEEE halves, little-endian, as floats.
#[inline(always)]
pub(crate) fn widen_halves(bytes: &[u8; 16]) -> [f32; 8] {
    let (low, high): (float32x4_t, float32x4_t);
    // SAFETY: instructions of every aarch64; the reference proves 16 readable bytes.
    unsafe {
        asm!("fcvtl {low:v}.4s, {halves:v}.4h", "fcvtl2 {high:v}.4s, {halves:v}.8h",
            low = out(vreg) low, high = lateout(vreg) high, halves = in(vreg) vld1q_u8(bytes.as_ptr()),
            options(pure, nomem, nostack, preserves_flags));
        std::mem::transmute([low, high])
    }
}

//! Elementary functions with pinned results. The platform's `expf`, `sinf` and `powf` differ in the last bit from
//! system to system; these are plain multiplications and additions in a fixed order (or come from the pure-Rust
//! `libm`), so that every machine computes the same logits.

pub mod hadamard;
pub mod splitmix;

/// Compiles one function body once per instruction set. `fn name(isa, arguments) -> Result { body }` becomes a
/// function that dispatches on its `isa` argument; the compiler vectorizes each copy as far as that instruction
/// set allows, and since float arithmetic may not be reordered or contracted, all copies give the same bits. The
/// larger sets of x86 run the AVX2 copy; what the compiler takes for granted (NEON, SIMD128) is in the plain one.
macro_rules! per_isa {
    ($(#[$attribute:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$attribute])*
        $vis fn $name(isa: $crate::simd::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Isa::Avx2 | $crate::simd::Isa::AvxVnni | $crate::simd::Isa::Avx512 => {
                    // SAFETY: an Isa other than Scalar is only ever handed out after detection, and these have AVX2.
                    unsafe { avx2($($arg),*) }
                }
                _ => body($($arg),*),
            }
        }
    };
}
pub(crate) use per_isa;

/// e^x, within 1 ulp-class (2e-7 relative) of the exact value: 0 below -87.3, infinity above 88.7, NaN for NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a degree-7 Taylor polynomial in Horner form; 2^n by its bits.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to the nearest whole number
    const LN2_HIGH: f32 = 0.693_359_4; // 10 bits, so that n * LN2_HIGH is exact
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.3, 88.7);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * r + coefficient;
    }
    // 2^n in two halves: n reaches 128, where a single factor would overflow before p scales it down.
    // n is what `shifted` has in its low bits; a conversion would not be vectorized.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127).cast_unsigned()) << 23);
    let value = p * power(half) * power(n.wrapping_sub(half));
    let value = if x < -87.3 { 0.0 } else { value };
    let value = if x > 88.7 { f32::INFINITY } else { value };
    if x.is_nan() { x } else { value }
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x * sigmoid(x), the gate of SwiGLU.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// Hyperbolic tangent, absolute error below 2e-7.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

/// The tanh form of GELU, the gate of GeGLU: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + tanh(SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)))
}

/// Eight lanes, to which a float sum adds element `i` at lane `i % 8`, in halves: 8 to 4 to 2 to 1.
#[inline(always)]
pub fn sum_lanes(l: [f32; 8]) -> f32 {
    ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

/// What is left of a row after its chunks of eight, with `fill` in the lanes without an element.
#[inline(always)]
pub fn padded(rest: &[f32], fill: f32) -> [f32; 8] {
    let mut lanes = [fill; 8];
    lanes[..rest.len()].copy_from_slice(rest);
    lanes
}

/// Turns scores into weights in place: e^(score - max), and returns their sum.
#[inline(always)]
pub fn exp_scores(scores: &mut [[f32; 8]], max: f32) -> f32 {
    let mut lanes = [0.0f32; 8];
    for scores in scores {
        for lane in 0..8 {
            scores[lane] = exp(scores[lane] - max);
            lanes[lane] += scores[lane];
        }
    }
    sum_lanes(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    #[test]
    fn exp_is_close_to_the_exact_value() {
        let mut worst = 0.0f64;
        for i in -870_000..=880_000 {
            let x = i as f32 * 1e-4;
            let exact = libm::exp(f64::from(x));
            worst = worst.max(((f64::from(exp(x)) - exact) / exact).abs());
        }
        assert!(worst < 2.5e-7, "relative error {worst:e}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_and_gelu_are_close_to_the_exact_values() {
        for i in -20_000..=20_000 {
            let x = f64::from(i) * 1e-3;
            assert!((f64::from(tanh(x as f32)) - libm::tanh(x)).abs() < 3e-7, "tanh({x})");
            let exact = 0.5
                * x
                * (1.0 + libm::tanh((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))));
            assert!((f64::from(gelu(x as f32)) - exact).abs() < 3e-6, "gelu({x})");
        }
    }

    per_isa! {
        fn exp_scores_on(scores: &mut [[f32; 8]], max: f32) -> f32 {
            exp_scores(scores, max)
        }
    }

    #[test]
    fn every_isa_gives_the_same_bits() {
        let scores: Vec<[f32; 8]> = (0..125)
            .map(|i| std::array::from_fn(|j| libm::sin(f64::from(i * 8 + j as i32)) as f32 * 20.0))
            .collect();
        let mut expected = scores.clone();
        let expected_sum = exp_scores_on(Isa::Scalar, &mut expected, 20.0);
        for isa in Isa::available() {
            let mut found = scores.clone();
            assert_eq!(exp_scores_on(isa, &mut found, 20.0).to_bits(), expected_sum.to_bits(), "{isa:?}");
            assert_eq!(found, expected, "{isa:?}");
        }
    }
}

//! Q8_K: 256 activations in 292 bytes: an f32 scale, 256 signed codes, then the sums of the codes in sixteens;
//! value = code * scale. Only what the inputs of the formats with blocks of 256 are quantized to.
//! (ggml: `d`, `qs`, `bsums`.)

use bytemuck::{Pod, Zeroable};

use super::le::{F32, I16};
use super::{Format, quantizers};

/// 256 activations.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Step between codes; negative where the largest magnitude is a positive number's.
    pub scale: F32,
    /// -127..=127.
    pub codes: [i8; 256],
    /// Sum of codes 16 * i .. 16 * i + 16.
    pub sums: [I16; 16],
}

/// The table row.
pub static FORMAT: Format =
    Format::new::<Block>("q8_k", Some(15)).encoder::<Block>().quantizers(quantizers![
        Block;
        #[cfg(target_arch = "x86_64")] Avx2: avx2::quantize,
        #[cfg(target_arch = "aarch64")] Neon: quantize_lanes,
        #[cfg(target_arch = "wasm32")] Simd128: quantize_lanes,
    ]);

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 292;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, &code) in out.iter_mut().zip(&self.codes) {
            *out = scale * f32::from(code);
        }
    }
}

impl super::Encode for Block {
    /// The first value of the largest magnitude becomes code -127.
    fn encode(values: &[f32]) -> Self {
        let (inverse, scale) = inverse_and_scale(super::q4_0::first_extreme(values));
        let mut codes = [0; 256];
        for (code, &value) in codes.iter_mut().zip(values) {
            // Finite values never reach past 127 either way: the bound only says what a NaN becomes.
            *code = (inverse * value).round_ties_even().max(-127.0) as i8;
        }
        Block { scale: F32::new(scale), codes, sums: sums_of_16(&codes) }
    }
}

fn sums_of_16(codes: &[i8; 256]) -> [I16; 16] {
    let mut sums = [I16::default(); 16];
    for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<16>().0) {
        *sum = I16::new(codes.iter().map(|&code| i16::from(code)).sum());
    }
    sums
}

/// See [`super::q8_0::lanes`].
#[cfg(not(target_arch = "x86_64"))]
fn quantize_lanes(values: &[f32], out: &mut [Block]) {
    use super::q8_0::lanes;
    for (values, out) in values.as_chunks::<256>().0.iter().zip(out) {
        let largest = lanes::largest_magnitude(values);
        let extreme = values.iter().copied().find(|value| value.abs() == largest).unwrap_or(0.0);
        let (inverse, scale) = inverse_and_scale(extreme);
        let mut codes = [0; 256];
        for (code, value) in codes.iter_mut().zip(values) {
            *code = lanes::bounded((inverse * value).round_ties_even());
        }
        *out = Block { scale: F32::new(scale), codes, sums: sums_of_16(&codes) };
    }
}

/// What values are multiplied with to get codes, and the stored scale. Where -127 / extreme overflows the
/// reference's codes are 0.
fn inverse_and_scale(extreme: f32) -> (f32, f32) {
    if extreme == 0.0 {
        return (0.0, 0.0);
    }
    let inverse = -127.0 / extreme;
    (if inverse.is_finite() { inverse } else { 0.0 }, 1.0 / inverse)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, F32, inverse_and_scale};
    use crate::quant::q8_0::avx2::pack_codes;
    use crate::simd::x86::load8f;

    #[target_feature(enable = "avx2")]
    pub fn quantize(values: &[f32], out: &mut [Block]) {
        for (values, out) in values.as_chunks::<256>().0.iter().zip(out) {
            let (inverse, scale) = inverse_and_scale(first_extreme(values));
            let inverse = _mm256_set1_ps(inverse);
            let (groups, _) = values.as_chunks::<32>();
            let mut packed = [_mm256_setzero_si256(); 8];
            for (packed, values) in packed.iter_mut().zip(groups) {
                let (lanes, _) = values.as_chunks::<8>();
                // `max_ps` turns NaN into -127: it gives its second operand then.
                let bound = |code| _mm256_max_ps(code, _mm256_set1_ps(-127.0));
                let codes = |i: usize| _mm256_cvtps_epi32(bound(_mm256_mul_ps(load8f(&lanes[i]), inverse)));
                *packed = pack_codes([codes(0), codes(1), codes(2), codes(3)]);
            }
            *out = Block {
                scale: F32::new(scale),
                codes: bytemuck::cast(packed),
                sums: bytemuck::cast(sums_of_16(packed)),
            };
        }
    }

    /// The signed value of the first largest magnitude; NaNs are passed over. The order only matters if the
    /// largest and the smallest value are of one magnitude.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn first_extreme(values: &[f32; 256]) -> f32 {
        let (lanes, _) = values.as_chunks::<8>();
        let mut max = [_mm256_setzero_ps(); 2];
        let mut min = max;
        for pair in lanes.as_chunks::<2>().0 {
            for i in 0..2 {
                let v = load8f(&pair[i]);
                max[i] = _mm256_max_ps(v, max[i]);
                min[i] = _mm256_min_ps(v, min[i]);
            }
        }
        let max: [f32; 8] = bytemuck::cast(_mm256_max_ps(max[0], max[1]));
        let min: [f32; 8] = bytemuck::cast(_mm256_min_ps(min[0], min[1]));
        let max = max.into_iter().fold(0.0, f32::max);
        let min = min.into_iter().fold(0.0, f32::min);
        if max > -min {
            max
        } else if max < -min {
            min
        } else {
            values.iter().copied().find(|value| value.abs() == max).unwrap_or(0.0)
        }
    }

    /// The sums of 256 codes in sixteens: 16 × i16.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn sums_of_16(codes: [__m256i; 8]) -> __m256i {
        let pairs = |i: usize| _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes[i]);
        // Each step adds neighbours within 128-bit halves: the last one leaves the even sums below, the odd above.
        let fours = |i: usize| _mm256_hadd_epi16(pairs(2 * i), pairs(2 * i + 1));
        let eights = |i: usize| _mm256_hadd_epi16(fours(2 * i), fours(2 * i + 1));
        let sums = _mm256_hadd_epi16(eights(0), eights(1));
        let (even, odd) = (_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        _mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd))
    }
}

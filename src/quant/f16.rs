//! F16: IEEE halves. Inputs stay f32; see [`super::f32`] for the order of the dot.

use super::f32::dot_lanes;
use super::le::{F16, F32};
use super::{Format, arms};
use crate::simd::Isa;

/// The table row.
pub static FORMAT: Format = Format::new::<F16>("f16", Some(1)).encoder::<F16>().dot(
    &super::f32::FORMAT,
    arms![
        F16, F32;
        Scalar: dot,
        #[cfg(target_arch = "x86_64")] Avx2: avx2::dot,
        #[cfg(target_arch = "aarch64")] Neon: neon::dot,
    ],
);

impl super::Block for F16 {
    const LEN: usize = 1;
    const BYTES: usize = 2;

    fn decode(&self, out: &mut [f32]) {
        out[0] = self.get();
    }
}

impl super::Encode for F16 {
    /// Nearest, ties to even; above 65519.99 becomes an infinity.
    fn encode(values: &[f32]) -> Self {
        F16::new(values[0])
    }
}

fn dot(weights: &[F16], input: &[F32]) -> f32 {
    dot_lanes(weights, input, F16::get)
}

/// out += factor · row, multiply then add.
pub(crate) fn add_scaled(isa: Isa, out: &mut [f32], factor: f32, row: &[F16]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni | Isa::Avx512 => {
            // SAFETY: an Isa other than Scalar is only ever handed out after detection, and these have AVX2 and F16C.
            unsafe { avx2::add_scaled(out, factor, row) }
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon | Isa::Dotprod | Isa::I8mm => neon::add_scaled(out, factor, row),
        _ => out.iter_mut().zip(row).for_each(|(out, value)| *out += factor * value.get()),
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use crate::math;
    use crate::quant::le::{F16, F32};
    use crate::simd::x86::{load8f, load8h, load32, store8f};

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot(weights: &[F16], input: &[F32]) -> f32 {
        let (weight_chunks, weight_rest) = weights.as_chunks::<8>();
        let (input_chunks, input_rest) = input.as_chunks::<8>();
        let mut sums = _mm256_setzero_ps();
        for (w, x) in weight_chunks.iter().zip(input_chunks) {
            let x = _mm256_castsi256_ps(load32(bytemuck::cast_ref(x)));
            sums = _mm256_add_ps(sums, _mm256_mul_ps(load8h(bytemuck::cast_ref(w)), x));
        }
        let mut lanes = [0.0; 8];
        store8f(&mut lanes, sums);
        for (lane, (w, x)) in weight_rest.iter().zip(input_rest).enumerate() {
            lanes[lane] += w.get() * x.get();
        }
        math::sum_lanes(lanes)
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn add_scaled(out: &mut [f32], factor: f32, row: &[F16]) {
        let (out_chunks, out_rest) = out.as_chunks_mut::<8>();
        let (row_chunks, row_rest) = row.as_chunks::<8>();
        let factors = _mm256_set1_ps(factor);
        for (out, row) in out_chunks.iter_mut().zip(row_chunks) {
            let scaled = _mm256_mul_ps(factors, load8h(bytemuck::cast_ref(row)));
            store8f(out, _mm256_add_ps(load8f(out), scaled));
        }
        for (out, value) in out_rest.iter_mut().zip(row_rest) {
            *out += factor * value.get();
        }
    }
}

/// As the scalar ones, eight halves at a time.
#[cfg(target_arch = "aarch64")]
mod neon {
    use crate::math;
    use crate::quant::le::{F16, F32};
    use crate::simd::aarch64::widen_halves;

    pub fn dot(weights: &[F16], input: &[F32]) -> f32 {
        let (weight_chunks, weight_rest) = weights.as_chunks::<8>();
        let (input_chunks, input_rest) = input.as_chunks::<8>();
        let mut lanes = [0.0f32; 8];
        for (w, x) in weight_chunks.iter().zip(input_chunks) {
            let w = widen_halves(bytemuck::cast_ref(w));
            for lane in 0..8 {
                lanes[lane] += w[lane] * x[lane].get();
            }
        }
        for (lane, (w, x)) in weight_rest.iter().zip(input_rest).enumerate() {
            lanes[lane] += w.get() * x.get();
        }
        math::sum_lanes(lanes)
    }

    pub fn add_scaled(out: &mut [f32], factor: f32, row: &[F16]) {
        let (out_chunks, out_rest) = out.as_chunks_mut::<8>();
        let (row_chunks, row_rest) = row.as_chunks::<8>();
        for (out, row) in out_chunks.iter_mut().zip(row_chunks) {
            let row = widen_halves(bytemuck::cast_ref(row));
            for lane in 0..8 {
                out[lane] += factor * row[lane];
            }
        }
        for (out, value) in out_rest.iter_mut().zip(row_rest) {
            *out += factor * value.get();
        }
    }
}

//! F16: IEEE halves. Inputs stay f32; see [`super::f32`] for the order of the dot.

use super::f32::dot_lanes;
use super::le::{F16, F32};
use super::{Format, arms, decoders, quantizers};

/// The table row. Measured (see [`super::panel`]): four rows 8, panels 19 GMAC/s.
pub static FORMAT: Format = Format::new::<F16>("f16", Some(1))
    .shader(include_str!("../../wgsl/quant/f16.wgsl"))
    .encode_shader(include_str!("../../wgsl/encode/f16.wgsl"))
    .encoder::<F16>()
    .largest(65_504.0)
    .quantizers(quantizers![F16; #[cfg(target_arch = "x86_64")] Avx2: avx2::quantize])
    .decoders(decoders![
        F16;
        #[cfg(target_arch = "x86_64")] Avx2: avx2::widen,
        #[cfg(target_arch = "aarch64")] Neon: neon::widen,
    ])
    .dot(
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

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use crate::math;
    use crate::quant::le::{F16, F32};
    use crate::simd::x86::{load8f, load8h, load32, store8f, store16};

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
    pub fn quantize(values: &[f32], out: &mut [F16]) {
        let (value_chunks, value_rest) = values.as_chunks::<8>();
        let (out_chunks, out_rest) = out.as_chunks_mut::<8>();
        for (values, out) in value_chunks.iter().zip(out_chunks) {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(load8f(values));
            store16(bytemuck::cast_mut(out), halves);
        }
        for (value, out) in value_rest.iter().zip(out_rest) {
            *out = F16::new(*value);
        }
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn widen(halves: &[F16], out: &mut [f32]) {
        let (out_chunks, out_rest) = out.as_chunks_mut::<8>();
        let (half_chunks, half_rest) = halves.as_chunks::<8>();
        for (out, halves) in out_chunks.iter_mut().zip(half_chunks) {
            store8f(out, load8h(bytemuck::cast_ref(halves)));
        }
        for (out, half) in out_rest.iter_mut().zip(half_rest) {
            *out = half.get();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    /// Every half, the middle between it and the next, and the floats beside that.
    #[test]
    fn every_isa_rounds_and_widens_alike() {
        let halves: Vec<F16> = (0..=u16::MAX).map(|bits| bytemuck::cast(bits.to_le_bytes())).collect();
        let mut numbers = vec![0.0; halves.len()];
        let bytes = bytemuck::cast_slice(&halves);
        FORMAT.reader(Isa::Scalar).call(bytes, &mut numbers);
        let middles = numbers.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
        let mut values: Vec<f32> = middles.flat_map(|m| [m.next_down(), m, m.next_up()]).collect();
        values.extend(&numbers);
        values.retain(|value| !value.is_nan());
        let mut expected = vec![0; 2 * values.len()];
        FORMAT.quantize(Isa::Scalar, &values, &mut expected).unwrap();
        for isa in Isa::available() {
            let mut found = vec![0; expected.len()];
            FORMAT.quantize(isa, &values, &mut found).unwrap();
            assert!(found == expected, "{isa:?}");
            let mut widened = vec![0.0; halves.len()];
            FORMAT.reader(isa).call(bytes, &mut widened);
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(widened.iter().zip(&numbers).all(same), "{isa:?}");
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

    pub fn widen(halves: &[F16], out: &mut [f32]) {
        let (out_chunks, out_rest) = out.as_chunks_mut::<8>();
        let (half_chunks, half_rest) = halves.as_chunks::<8>();
        for (out, halves) in out_chunks.iter_mut().zip(half_chunks) {
            *out = widen_halves(bytemuck::cast_ref(halves));
        }
        for (out, half) in out_rest.iter_mut().zip(half_rest) {
            *out = half.get();
        }
    }
}

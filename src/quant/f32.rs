//! F32: plain numbers. The reference for everything else, and what norms and biases are stored in.
//!
//! The dot of the float formats runs in 8 lanes: lane `i % 8` sums its products in ascending order, multiply then
//! add without FMA, and the lanes are added in halves. That order maps to one AVX2 register or two NEON ones, so
//! every instruction set gives the same bits.

use super::le::F32;
use super::{Format, arms};

/// The table row. Measured (see [`super::panel`]): four rows 5, panels 18 GMAC/s.
pub static FORMAT: Format = Format::new::<F32>("f32", Some(0))
    .shader(include_str!("../../wgsl/quant/f32.wgsl"))
    .encode_shader(include_str!("../../wgsl/encode/f32.wgsl"))
    .encoder::<F32>()
    .dot(&FORMAT, arms![F32, F32; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: dot_avx2]);

impl super::Block for F32 {
    const LEN: usize = 1;
    const BYTES: usize = 4;

    fn decode(&self, out: &mut [f32]) {
        out[0] = self.get();
    }
}

impl super::Encode for F32 {
    fn encode(values: &[f32]) -> Self {
        F32::new(values[0])
    }
}

fn dot(weights: &[F32], input: &[F32]) -> f32 {
    dot_lanes(weights, input, |w| w.get())
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(weights: &[F32], input: &[F32]) -> f32 {
    dot_lanes(weights, input, |w| w.get())
}

/// The pinned 8-lane order, for any element that widens to f32. Inlined into functions of each instruction set, so
/// that the compiler vectorizes the one source: it may not reorder or contract float arithmetic.
#[inline(always)]
pub(crate) fn dot_lanes<W: Copy>(weights: &[W], input: &[F32], widen: impl Fn(W) -> f32) -> f32 {
    let mut lanes = [0.0f32; 8];
    let (weight_chunks, weight_rest) = weights.as_chunks::<8>();
    let (input_chunks, input_rest) = input.as_chunks::<8>();
    for (w, x) in weight_chunks.iter().zip(input_chunks) {
        for lane in 0..8 {
            lanes[lane] += widen(w[lane]) * x[lane].get();
        }
    }
    for (lane, (&w, x)) in weight_rest.iter().zip(input_rest).enumerate() {
        lanes[lane] += widen(w) * x.get();
    }
    crate::math::sum_lanes(lanes)
}

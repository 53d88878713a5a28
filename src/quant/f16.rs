//! F16: IEEE halves. Inputs stay f32; see [`super::f32`] for the order of the dot.

use super::f32::dot_lanes;
use super::le::{F16, F32};
use super::{Format, arms};

/// The table row.
pub static FORMAT: Format = Format::new::<F16>("f16", Some(1))
    .encoder::<F16>()
    .dot(&super::f32::FORMAT, arms![F16, F32; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: dot_avx2]);

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
#[target_feature(enable = "avx2")]
fn dot_avx2(weights: &[F16], input: &[F32]) -> f32 {
    dot_lanes(weights, input, F16::get)
}

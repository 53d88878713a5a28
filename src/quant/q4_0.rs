//! Q4_0: 32 weights in 18 bytes: an f16 scale, then 16 bytes of nibbles.
//! Byte j holds weight j (low nibble) and weight j + 16 (high); weight = (nibble - 8) * scale.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::{Format, arms, q8_0};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    nibbles: [u8; 16],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("q4_0", Some(2)).encoder::<Block>().dot(
    &q8_0::FORMAT,
    arms![Block, q8_0::Block; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: avx2::dot],
);

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 18;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (j, &byte) in self.nibbles.iter().enumerate() {
            out[j] = (f32::from(byte & 15) - 8.0) * scale;
            out[j + 16] = (f32::from(byte >> 4) - 8.0) * scale;
        }
    }
}

impl super::Encode for Block {
    /// The scale maps the signed value of the first largest magnitude to code 0, so that it is exact.
    fn encode(values: &[f32]) -> Self {
        let mut extreme = 0.0f32;
        for &value in values {
            if value.abs() > extreme.abs() {
                extreme = value;
            }
        }
        let scale = extreme / -8.0;
        let inverse = 1.0 / scale;
        let inverse = if inverse.is_finite() { inverse } else { 0.0 };
        let code = |value: f32| (value * inverse + 8.5).clamp(0.0, 15.0) as u8;
        let mut nibbles = [0; 16];
        for (j, byte) in nibbles.iter_mut().enumerate() {
            *byte = code(values[j]) | code(values[j + 16]) << 4;
        }
        Block { scale: F16::new(scale), nibbles }
    }
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let mut integer = 0;
        for (j, &byte) in w.nibbles.iter().enumerate() {
            integer += (i32::from(byte & 15) - 8) * i32::from(x.codes[j]);
            integer += (i32::from(byte >> 4) - 8) * i32::from(x.codes[j + 16]);
        }
        sum += (w.scale.get() * x.scale.get()) * integer as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, q8_0};
    use crate::simd::x86::{dot_i8_i8, load32i, nibbles, sum_i32};

    #[target_feature(enable = "avx2")]
    pub fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input) {
            let codes = _mm256_sub_epi8(nibbles(&w.nibbles), _mm256_set1_epi8(8));
            let integer = sum_i32(dot_i8_i8(codes, load32i(&x.codes)));
            sum += (w.scale.get() * x.scale.get()) * integer as f32;
        }
        sum
    }
}

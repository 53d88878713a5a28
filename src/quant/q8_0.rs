//! Q8_0: 32 weights in 34 bytes: an f16 scale, then 32 signed codes; weight = code * scale.
//! Also what the inputs of Q4_0, Q5_0, IQ4_NL, MXFP4 and their like are quantized to.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::{Format, arms};

/// 32 weights; also 32 activations.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Step between codes.
    pub scale: F16,
    /// -127..=127 when we wrote it; other writers may use -128.
    pub codes: [i8; 32],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("q8_0", Some(8))
    .encoder::<Block>()
    .dot(&FORMAT, arms![Block, Block; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: avx2::dot]);

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 34;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, &code) in out.iter_mut().zip(&self.codes) {
            *out = f32::from(code) * scale;
        }
    }
}

impl super::Encode for Block {
    /// Codes come from the unrounded f32 scale, and round half away from zero, as the reference's do.
    fn encode(values: &[f32]) -> Self {
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let scale = largest / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let mut codes = [0; 32];
        for (code, &value) in codes.iter_mut().zip(values) {
            *code = (value * inverse).round().clamp(-127.0, 127.0) as i8;
        }
        Block { scale: F16::new(scale), codes }
    }
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let integer: i32 = w.codes.iter().zip(&x.codes).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
        sum += (w.scale.get() * x.scale.get()) * integer as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::Block;
    use crate::simd::x86::{dot_i8_i8, load32i, sum_i32};

    #[target_feature(enable = "avx2")]
    pub fn dot(weights: &[Block], input: &[Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input) {
            let integer = sum_i32(dot_i8_i8(load32i(&w.codes), load32i(&x.codes)));
            sum += (w.scale.get() * x.scale.get()) * integer as f32;
        }
        sum
    }
}

//! BF16: the upper half of an f32. Inputs stay f32; see [`super::f32`] for the order of the dot.

use bytemuck::{Pod, Zeroable};

use super::f32::dot_lanes;
use super::le::{F32, U16};
use super::{Format, arms};

/// One number.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
struct Block(U16);

/// The table row. Measured (see [`super::panel`]): four rows 8, panels 17 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("bf16", Some(30))
    .shader(include_str!("../../wgsl/quant/bf16.wgsl"))
    .encode_shader(include_str!("../../wgsl/encode/bf16.wgsl"))
    .encoder::<Block>()
    .dot(&super::f32::FORMAT, arms![Block, F32; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: dot_avx2]);

impl Block {
    #[inline(always)]
    fn get(self) -> f32 {
        f32::from_bits(u32::from(self.0.get()) << 16)
    }
}

impl super::Block for Block {
    const LEN: usize = 1;
    const BYTES: usize = 2;

    #[inline(always)]
    fn decode(&self, out: &mut [f32]) {
        out[0] = self.get();
    }
}

impl super::Encode for Block {
    /// Nearest, ties to even; a NaN stays one.
    fn encode(values: &[f32]) -> Self {
        Block(U16::new(half::bf16::from_f32(values[0]).to_bits()))
    }
}

fn dot(weights: &[Block], input: &[F32]) -> f32 {
    dot_lanes(weights, input, Block::get)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(weights: &[Block], input: &[F32]) -> f32 {
    dot_lanes(weights, input, Block::get)
}

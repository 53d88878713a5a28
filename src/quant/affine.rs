//! Affine blocks of MLX: 64 elements in 4 + 8 b bytes: an f16 scale, an f16 bias, then codes of b bits, lowest first;
//! element = code · scale + bias. What `--kv affine4` and `affine8` hold.

use bytemuck::{Pod, Zeroable};

use super::Format;
use super::le::F16;

/// 64 elements with `N` bytes of codes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Block<const N: usize> {
    scale: F16,
    bias: F16,
    codes: [u8; N],
}

// SAFETY: all fields are plain bytes of alignment 1, so zeros are a value and there is no padding.
unsafe impl<const N: usize> Zeroable for Block<N> {}
// SAFETY: as above; any bytes are a value.
unsafe impl<const N: usize> Pod for Block<N> {}

/// 4 bits.
pub static A4: Format = row::<32>("affine4");
/// 8 bits.
pub static A8: Format = row::<64>("affine8");

const fn row<const N: usize>(name: &'static str) -> Format {
    Format::new::<Block<N>>(name, None)
        .shader(include_str!("../../wgsl/quant/affine.wgsl"))
        .encode_shader(include_str!("../../wgsl/encode/affine.wgsl"))
        .encoder::<Block<N>>()
}

impl<const N: usize> super::Block for Block<N> {
    const LEN: usize = 64;
    const BYTES: usize = 4 + N;

    #[inline(always)]
    fn decode(&self, out: &mut [f32]) {
        let (scale, bias) = (self.scale.get(), self.bias.get());
        for i in 0..64 {
            let code = if N == 64 { self.codes[i] } else { self.codes[i / 2] >> (4 * (i % 2)) & 15 };
            out[i] = f32::from(code) * scale + bias;
        }
    }
}

impl<const N: usize> super::Encode for Block<N> {
    /// The extreme of larger magnitude is a whole number of steps from zero, so that it and zero are exact; codes are
    /// chosen by the unrounded scale and bias.
    fn encode(values: &[f32]) -> Self {
        let most = if N == 64 { 255.0 } else { 15.0 };
        let min = values.iter().copied().fold(f32::INFINITY, f32::min);
        let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let width = ((max - min) / most).max(1e-7);
        let (scale, edge) = if min.abs() > max.abs() { (width, min) } else { (-width, max) };
        let steps = (edge / scale).round_ties_even();
        let (scale, bias) = if steps == 0.0 { (scale, 0.0) } else { (edge / steps, edge) };
        let mut codes = [0; N];
        for (i, &value) in values.iter().enumerate() {
            let code = ((value - bias) / scale).round_ties_even().clamp(0.0, most) as u8;
            if N == 64 {
                codes[i] = code;
            } else {
                codes[i / 2] |= code << (4 * (i % 2));
            }
        }
        Block { scale: F16::new(scale), bias: F16::new(bias), codes }
    }
}

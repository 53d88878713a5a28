//! MXFP8: 32 weights in 33 bytes: a power of two, then a signed E4M3 float each; weight = 2^(exponent - 127) * float.
//! Inputs stay f32: a code has 18 bits of range, which no integer product of bytes takes. See [`super::f32`] for the order
//! of the dot. (OCP Microscaling Formats 1.0; MLX keeps exponents and floats in two tensors.)

use bytemuck::{Pod, Zeroable};

use super::le::F32;
use super::{Format, arms};
use crate::math;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    exponent: u8,
    floats: [u8; 32],
}

/// The table row.
pub static FORMAT: Format = Format::new::<Block>("mxfp8", None)
    .shader(include_str!("../../wgsl/quant/mxfp8.wgsl"))
    .encoder::<Block>()
    .dot(&super::f32::FORMAT, arms![Block, F32; Scalar: dot, #[cfg(target_arch = "x86_64")] Avx2: dot_avx2]);

/// The number of each byte. 0x7f and 0xff are NaN; there is no infinity.
static FLOATS: [f32; 256] = floats();

const fn floats() -> [f32; 256] {
    let mut floats = [0.0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (exponent, mantissa) = ((byte as u32) >> 3 & 15, (byte as u32) & 7);
        let magnitude = match (exponent, mantissa) {
            (15, 7) => f32::NAN,
            (0, _) => mantissa as f32 / 512.0,
            _ => f32::from_bits((exponent + 127 - 7) << 23 | mantissa << 20),
        };
        floats[byte] = if byte < 128 { magnitude } else { -magnitude };
        byte += 1;
    }
    floats
}

/// 2^(exponent - 127), exactly: subnormal for 0. What OCP calls NaN, 255, is one.
#[inline(always)]
fn scale(exponent: u8) -> f32 {
    match exponent {
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(exponent) << 23),
    }
}

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 33;

    #[inline(always)]
    fn decode(&self, out: &mut [f32]) {
        let scale = scale(self.exponent);
        for (out, &byte) in out.iter_mut().zip(&self.floats) {
            *out = scale * FLOATS[usize::from(byte)];
        }
    }
}

impl super::Encode for Block {
    /// The smallest power of two by which no magnitude is above 448, the largest E4M3, then the nearest floats. (MLX on CPUs.)
    fn encode(values: &[f32]) -> Self {
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs())) / 448.0;
        let exponent = (libm::log2(f64::from(largest)) as f32).ceil().clamp(-127.0, 127.0);
        let exponent = if largest > 0.0 { (exponent + 127.0) as u8 } else { 127 };
        let floats = std::array::from_fn(|i| e4m3(values[i] / scale(exponent)));
        Block { exponent, floats }
    }
}

/// The nearest E4M3 float, ties to even; above 448 it is 448.
pub(super) fn e4m3(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs().min(448.0);
    // Subnormal, in steps of 2^-9; eight of them are the smallest normal number, as the codes go on.
    if magnitude < 1.0 / 64.0 {
        return sign | (magnitude * 512.0).round_ties_even() as u8;
    }
    let bits = magnitude.to_bits();
    let rounded = bits + (0x7_ffff + (bits >> 20 & 1));
    sign | ((rounded >> 20) - (120 << 3)) as u8
}

#[inline(always)]
fn lanes(weights: &[Block], input: &[F32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    for (w, x) in weights.iter().zip(input.as_chunks::<32>().0) {
        let mut numbers = [0.0; 32];
        super::Block::decode(w, &mut numbers);
        for (numbers, x) in numbers.as_chunks::<8>().0.iter().zip(x.as_chunks::<8>().0) {
            for lane in 0..8 {
                lanes[lane] += numbers[lane] * x[lane].get();
            }
        }
    }
    math::sum_lanes(lanes)
}

fn dot(weights: &[Block], input: &[F32]) -> f32 {
    lanes(weights, input)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(weights: &[Block], input: &[F32]) -> f32 {
    lanes(weights, input)
}

//! Q4_1: 32 weights in 20 bytes: an f16 scale, an f16 minimum, then 16 bytes of nibbles.
//! Byte j holds weight j (low nibble) and weight j + 16 (high); weight = nibble * scale + min.
//! (ggml: `d`, `m`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::k::search::{self, Steps};
use super::le::F16;
use super::parts::{self, Codes, Shuffle, Terms};
use super::{Format, arms, panel, q4_0, q8_0, q8_1};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    min: F16,
    nibbles: [u8; 16],
}

/// The table row. Measured (see [`panel`]): four rows 23, panels 60 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("q4_1", Some(3))
    .shader(include_str!("../../wgsl/quant/q4_1.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_1::FORMAT, arms![terms; Block, q8_1::Block; dot, avx2])
    .panel(panel::terms::<Block>());

impl Block {
    fn codes(&self) -> [i8; 32] {
        let mut codes = [0; 32];
        for (j, &byte) in self.nibbles.iter().enumerate() {
            codes[j] = (byte & 15).cast_signed();
            codes[j + 16] = (byte >> 4).cast_signed();
        }
        codes
    }
}

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 20;

    fn decode(&self, out: &mut [f32]) {
        let (scale, min) = (self.scale.get(), self.min.get());
        for (out, code) in out.iter_mut().zip(self.codes()) {
            *out = f32::from(code) * scale + min;
        }
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Unsigned { most: 15, bias: 0 };
    const MIN: bool = true;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        (scales[0], mins[0]) = (self.scale.get(), self.min.get());
        parts::nibbles(&self.nibbles, codes);
    }
}

impl super::Encode for Block {
    /// Code 0 is the smallest value, code 15 the largest.
    fn encode(values: &[f32]) -> Self {
        let (min, scale) = range(values, 15.0);
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let code = |value: f32| q4_0::truncate((value - min) * inverse + 0.5, 15.0, inverse);
        let mut nibbles = [0; 16];
        for (j, byte) in nibbles.iter_mut().enumerate() {
            *byte = code(values[j]) | code(values[j + 16]) << 4;
        }
        Block { scale: F16::new(scale), min: F16::new(min), nibbles }
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], energy: f32) -> Self {
        let (mut weights, mut codes) = ([0.0; 32], [0; 32]);
        search::weights(values, importance, energy, &mut weights);
        let (scale, min) = search::affine(values, &weights, &Steps::fine(15), &mut codes);
        let code = |j: usize| codes[j].cast_unsigned();
        let nibbles = std::array::from_fn(|j| code(j) | code(j + 16) << 4);
        Block { scale: F16::new(scale), min: F16::new(-min), nibbles }
    }
}

/// The smallest value, and the width of one of `steps` steps to the largest. Of zeros the first one counts, whose
/// sign is stored: `f32::min` would leave it open.
pub(super) fn range(values: &[f32], steps: f32) -> (f32, f32) {
    let min = values.iter().fold(f32::MAX, |min, &value| if value < min { value } else { min });
    let max = values.iter().fold(f32::MIN, |max, &value| if value > max { value } else { max });
    (min, (max - min) / steps)
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot + min_w * sum_x.
fn dot(weights: &[Block], input: &[q8_1::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let integer = q8_0::integer_dot(&w.codes(), &x.codes);
        sum += (w.scale.get() * x.scale.get()) * integer as f32 + w.min.get() * x.sum.get();
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Block, q8_1};
    use crate::simd::x86::{Products, nibbles};

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_1::Block]) -> f32 {
        q8_1::avx2::dot_blocks::<V, _>(weights, input, |w| nibbles(&w.nibbles))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_1::Block]) -> [f32; 4] {
        q8_1::avx2::rows4_blocks::<V, _>(rows, input, |w| nibbles(&w.nibbles))
    }
}

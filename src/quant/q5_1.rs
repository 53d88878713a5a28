//! Q5_1: 32 weights in 24 bytes: an f16 scale, an f16 minimum, 32 high bits, then 16 bytes of nibbles, the codes laid
//! out as in [`super::q5_0`]; weight = code * scale + min. (ggml: `d`, `m`, `qh`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::k::search::{self, Steps};
use super::le::{F16, U32};
use super::parts::{Codes, Shuffle, Terms};
use super::{Format, arms, panel, q4_0, q4_1, q5_0, q8_0, q8_1};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    min: F16,
    high_bits: U32,
    nibbles: [u8; 16],
}

/// The table row. Measured (see [`panel`]): four rows 17, panels 50 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("q5_1", Some(7))
    .shader(include_str!("../../wgsl/quant/q5_1.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_1::FORMAT, arms![terms; Block, q8_1::Block; dot, avx2])
    .panel(panel::terms::<Block>());

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 24;

    fn decode(&self, out: &mut [f32]) {
        let (scale, min) = (self.scale.get(), self.min.get());
        for (out, code) in out.iter_mut().zip(q5_0::unpack(self.high_bits, &self.nibbles)) {
            *out = f32::from(code) * scale + min;
        }
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Unsigned { most: 31, bias: 0 };
    const MIN: bool = true;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]) {
        (scales[0], mins[0]) = (self.scale.get(), self.min.get());
        q5_0::unpack_codes(self.high_bits, &self.nibbles, codes);
    }
}

impl super::Encode for Block {
    /// Code 0 is the smallest value, code 31 the largest.
    fn encode(values: &[f32]) -> Self {
        let (min, scale) = q4_1::range(values, 31.0);
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let (high_bits, nibbles) =
            q5_0::pack(|j| q4_0::truncate((values[j] - min) * inverse + 0.5, 31.0, inverse));
        Block { scale: F16::new(scale), min: F16::new(min), high_bits, nibbles }
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], energy: f32) -> Self {
        let (mut weights, mut codes) = ([0.0; 32], [0; 32]);
        search::weights(values, importance, energy, &mut weights);
        let (scale, min) = search::affine(values, &weights, &Steps::fine(31), &mut codes);
        let (high_bits, nibbles) = q5_0::pack(|j| codes[j].cast_unsigned());
        Block { scale: F16::new(scale), min: F16::new(-min), high_bits, nibbles }
    }
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot + min_w * sum_x.
fn dot(weights: &[Block], input: &[q8_1::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let integer = q8_0::integer_dot(&q5_0::unpack(w.high_bits, &w.nibbles), &x.codes);
        sum += (w.scale.get() * x.scale.get()) * integer as f32 + w.min.get() * x.sum.get();
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Block, q5_0, q8_1};
    use crate::simd::x86::Products;

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_1::Block]) -> f32 {
        let codes = |w: &Block| q5_0::avx2::unpack(w.high_bits, &w.nibbles);
        q8_1::avx2::dot_blocks::<V, _>(weights, input, codes)
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_1::Block]) -> [f32; 4] {
        let codes = |w: &Block| q5_0::avx2::unpack(w.high_bits, &w.nibbles);
        q8_1::avx2::rows4_blocks::<V, _>(rows, input, codes)
    }
}

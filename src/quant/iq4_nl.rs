//! IQ4_NL: 32 weights in 18 bytes: an f16 scale, then 16 bytes of nibbles.
//! Byte j holds weight j (low nibble) and weight j + 16 (high); weight = scale * `VALUES[nibble]`.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::k::lanes::{self, LANES};
use super::k::search;
use super::le::F16;
use super::parts::{self, Codes, Shuffle, Terms};
use super::{Format, arms, panel, q8_0};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    nibbles: [u8; 16],
}

/// What a nibble stands for, here and in IQ4_XS: steps that widen away from zero, as weights do.
pub(super) static VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// A run of smaller magnitudes is stored as zero.
pub(super) const SMALLEST: f32 = 1e-15;

/// The table row. Measured (see [`panel`]): four rows 18, panels 51 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("iq4_nl", Some(20))
    .shader(include_str!("../../wgsl/quant/iq4_nl.wgsl"))
    .encoder::<Block>()
    .weighted::<Block>()
    .dot(&q8_0::FORMAT, arms![terms; Block, q8_0::Block; dot, avx2])
    .panel(panel::terms::<Block>());

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 18;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (j, &byte) in self.nibbles.iter().enumerate() {
            out[j] = scale * f32::from(VALUES[usize::from(byte & 15)]);
            out[j + 16] = scale * f32::from(VALUES[usize::from(byte >> 4)]);
        }
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Signed;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], _: &mut [f32]) {
        scales[0] = self.scale.get();
        parts::table_nibbles::<S>(bytemuck::cast_ref(&VALUES), &self.nibbles, codes);
    }
}

impl super::Encode for Block {
    /// Codes as if the extreme were VALUES[0], then the scale that fits those codes best.
    fn encode(values: &[f32]) -> Self {
        let extreme = extreme(values);
        if extreme.abs() < SMALLEST {
            return Block { scale: F16::new(0.0), nibbles: pack(&[nearest(0.0); 32]) };
        }
        let inverse = 1.0 / (extreme / f32::from(VALUES[0]));
        let fit = Fit::new(values, &squares(values), inverse);
        let codes = std::array::from_fn(|i| nearest(inverse * values[i]));
        Block { scale: F16::new(fit.scale()), nibbles: pack(&codes) }
    }
}

impl super::EncodeWeighted for Block {
    fn encode_weighted(values: &[f32], importance: &[f32], _: f32) -> Self {
        let energy = values.iter().fold(0.0f32, |sum, x| sum + x * x) * (2.0 / 32.0);
        let mut weights = [0.0; 32];
        search::weights(values, importance, energy, &mut weights);
        Block::searched(values, &weights)
    }

    fn encode_for_file(values: &[f32]) -> Self {
        Block::searched(values, &squares(values))
    }
}

impl Block {
    /// The best of several scales, and the codes for it as it is before it is rounded.
    fn searched(values: &[f32], weights: &[f32]) -> Self {
        let scale = group_scale(values, weights);
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let codes = std::array::from_fn(|i| nearest(inverse * values[i]));
        Block { scale: F16::new(scale), nibbles: pack(&codes) }
    }
}

/// The signed value of the first largest magnitude.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |extreme: f32, &value| if value.abs() > extreme.abs() { value } else { extreme })
}

/// Which of [`VALUES`] is nearest; the upper one of two equally near.
pub(super) fn nearest(value: f32) -> u8 {
    if value <= f32::from(VALUES[0]) {
        return 0;
    }
    let above = VALUES.partition_point(|&known| f32::from(known) <= value).clamp(1, 15);
    let (low, high) = (f32::from(VALUES[above - 1]), f32::from(VALUES[above]));
    if value - low < high - value { above as u8 - 1 } else { above as u8 }
}

/// 32 codes to 16 bytes: code j in a low nibble, code j + 16 in the high one.
pub(super) fn pack(codes: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| codes[j] | codes[j + 16] << 4)
}

/// What errors count without importance.
pub(super) fn squares(values: &[f32]) -> [f32; 32] {
    std::array::from_fn(|i| values[i] * values[i])
}

/// The best of 16 scales for 32 values: those that map the extreme to 127, or to -127 and 7 steps to either side.
pub(super) fn group_scale(values: &[f32], weights: &[f32]) -> f32 {
    let extreme = extreme(values);
    if extreme.abs() < SMALLEST {
        return 0.0;
    }
    let lowest = f32::from(VALUES[0]);
    let mut inverses = [[1.0 / (-extreme / lowest); LANES]; 2];
    for (inverse, step) in inverses.as_flattened_mut()[1..].iter_mut().zip(-7..=7i8) {
        *inverse = (f32::from(step) + lowest) / extreme;
    }
    let sums = inverses.map(|inverses| lanes::listed_sums(lanes::isa(), values, weights, &inverses, &VALUES));
    let mut fits = sums.iter().flat_map(|[code_value, code_code]| {
        code_value.iter().zip(code_code).map(|(&code_value, &code_code)| Fit { code_value, code_code })
    });
    let Some(fit) = fits.next() else { return 0.0 };
    let mut scale = fit.scale();
    let mut best = scale * fit.code_value;
    for fit in fits {
        if fit.code_code > 0.0 && fit.code_value * fit.code_value > best * fit.code_code {
            scale = fit.scale();
            best = scale * fit.code_value;
        }
    }
    scale
}

/// Moments of a quantization, weighted by the squares of the values or by importance: the best scale for its codes is
/// `code_value / code_code`, and its squared error falls as `code_value^2 / code_code` grows.
struct Fit {
    /// Sum of weight * code * value.
    code_value: f32,
    /// Sum of weight * code^2.
    code_code: f32,
}

impl Fit {
    /// The moments of `values` when their codes are `nearest(inverse * value)`. Products in the reference's order.
    fn new(values: &[f32], weights: &[f32], inverse: f32) -> Fit {
        let mut fit = Fit { code_value: 0.0, code_code: 0.0 };
        for (&value, &weight) in values.iter().zip(weights) {
            let code = f32::from(VALUES[usize::from(nearest(inverse * value))]);
            fit.code_value += weight * code * value;
            fit.code_code += weight * code * code;
        }
        fit
    }

    fn scale(&self) -> f32 {
        self.code_value / self.code_code
    }
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        sum += (w.scale.get() * x.scale.get()) * integer_dot(&VALUES, &w.nibbles, &x.codes) as f32;
    }
    sum
}

/// The dot of 32 nibbles, which stand for `values`, with 32 input codes.
pub(super) fn integer_dot(values: &[i8; 16], nibbles: &[u8; 16], input: &[i8; 32]) -> i32 {
    let mut sum = 0;
    for (j, &byte) in nibbles.iter().enumerate() {
        sum += i32::from(values[usize::from(byte & 15)]) * i32::from(input[j]);
        sum += i32::from(values[usize::from(byte >> 4)]) * i32::from(input[j + 16]);
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, VALUES, q8_0};
    use crate::simd::x86::{Products, load32i, lookup16, move_signs, nibbles, sum_i32, sum4_i32};

    #[target_feature(enable = "avx2")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input) {
            let integer = sum_i32(V::fours(products::<V>(w, load32i(&x.codes))));
            sum += (w.scale.get() * x.scale.get()) * integer as f32;
        }
        sum
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_0::Block]) -> [f32; 4] {
        let scales = |w: [&Block; 4]| q8_0::avx2::leading_scales(w);
        let products = |w: &Block, x| V::fours(products::<V>(w, x));
        q8_0::avx2::rows4_blocks(rows, input, scales, products, |sums| sum4_i32(sums))
    }

    /// No value is -128, so the codes may take the inputs' signs, and those hold anything.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products<V: Products>(w: &Block, x: __m256i) -> __m256i {
        let (magnitudes, codes) = move_signs(x, lookup16(&VALUES, nibbles(&w.nibbles)));
        V::dot(magnitudes, codes)
    }
}

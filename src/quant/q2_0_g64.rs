//! Q2_0 in groups of 64: 64 weights in 18 bytes: an f16 scale, then 2-bit codes, four to a byte, lowest first;
//! weight = (code - 1) * scale. ggml's layout; GGUF's id 42 also means [`super::q2_0`], with 128 weights to a block.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::parts::{Codes, Shuffle, Terms};
use super::{Format, arms, panel, q2_0, q8_0};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    scale: F16,
    /// Of 32 weights each.
    codes: [[u8; 8]; 2],
}

/// The table row. Measured (see [`panel`]): four rows 16, panels 52 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("q2_0_g64", Some(42))
    .shader(include_str!("../../wgsl/quant/q2_0_g64.wgsl"))
    .encoder::<Block>()
    .dot(&q8_0::FORMAT, arms![terms; Block, q8_0::Block; dot, avx2])
    .panel(panel::terms::<Block>());

impl super::Block for Block {
    const LEN: usize = 64;
    const BYTES: usize = 18;

    fn decode(&self, out: &mut [f32]) {
        q2_0::decode(self.scale.get(), self.codes.as_flattened(), out);
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Unsigned { most: 3, bias: 1 };

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], _: &mut [f32]) {
        scales.fill(self.scale.get());
        q2_0::unpack_codes(self.codes.as_flattened(), codes);
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let mut codes = [[0; 8]; 2];
        let scale = q2_0::encode(values, codes.as_flattened_mut());
        Block { scale, codes }
    }
}

/// Input blocks (two to a block of weights) in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[q8_0::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input.as_chunks::<2>().0) {
        for (codes, x) in w.codes.iter().zip(x) {
            sum += (w.scale.get() * x.scale.get()) * q2_0::integer_dot(codes, &x.codes) as f32;
        }
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Block, q2_0, q8_0};
    use crate::simd::x86::{Products, sum_i32};

    #[target_feature(enable = "avx2")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_0::Block]) -> f32 {
        let mut sum = 0.0;
        for (w, x) in weights.iter().zip(input.as_chunks::<2>().0) {
            let scale = w.scale.get();
            for (&codes, x) in w.codes.iter().zip(x) {
                sum += (scale * x.scale.get()) * sum_i32(q2_0::avx2::products::<V>(codes, &x.codes)) as f32;
            }
        }
        sum
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_0::Block]) -> [f32; 4] {
        let sums = |w: &Block, p: usize, x| q2_0::avx2::sums::<V>(w.codes[p], x);
        let [sums, _] = q8_0::avx2::rows4_parts::<V, _, 2, false>(rows, input, sums);
        bytemuck::cast(sums)
    }
}

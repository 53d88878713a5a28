//! The dots of one or four rows on vectors of 16 bytes, for all formats of a family ([`super::parts`]): blocks are taken
//! apart to codes, which are summed as integers, then floats in the order of the scalar dot. Four rows share the loads of
//! the input. x86-64 has kernels of its own in the formats' files.
#![cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "only tests run them there"))]

use super::parts::{Parts, Scaled, TermParts, Terms};
use super::{q8_0, q8_1, q8_k};
use crate::simd::vector::Vector128;

/// 32 activations.
pub(super) trait Input {
    fn codes(&self) -> &[i8; 32];
    fn scale(&self) -> f32;
    /// Of the values; only for weights with minimums.
    fn sum(&self) -> f32;
}

impl Input for q8_0::Block {
    #[inline(always)]
    fn codes(&self) -> &[i8; 32] {
        &self.codes
    }
    #[inline(always)]
    fn scale(&self) -> f32 {
        self.scale.get()
    }
    #[inline(always)]
    fn sum(&self) -> f32 {
        0.0
    }
}

impl Input for q8_1::Block {
    #[inline(always)]
    fn codes(&self) -> &[i8; 32] {
        &self.codes
    }
    #[inline(always)]
    fn scale(&self) -> f32 {
        self.scale.get()
    }
    #[inline(always)]
    fn sum(&self) -> f32 {
        self.sum.get()
    }
}

pub(super) mod terms {
    use super::{Input, TermParts, Terms, Vector128, dots};

    pub fn dot<B: Terms, V: Vector128>(weights: &[B], input: &[impl Input]) -> f32 {
        let [sum] = rows::<B, V, 1>([weights], input);
        sum
    }

    pub fn rows4<B: Terms, V: Vector128>(rows: [&[B]; 4], input: &[impl Input]) -> [f32; 4] {
        self::rows::<B, V, 4>(rows, input)
    }

    #[inline(always)]
    fn rows<B: Terms, V: Vector128, const N: usize>(rows: [&[B]; N], input: &[impl Input]) -> [f32; N] {
        let mut parts = [const { TermParts::ZERO }; N];
        let mut sums = [[0.0f32; 4]; N];
        for (run, input) in input.chunks(8).enumerate() {
            for n in 0..N {
                parts[n].unpack::<B, V>(&rows[n][run * (256 / B::LEN)..][..32 * input.len() / B::LEN]);
            }
            for (i, x) in input.iter().enumerate() {
                for (j, inputs) in x.codes().chunks_exact(B::TERM).enumerate() {
                    let term = i * 32 / B::TERM + j;
                    let mut codes = [&parts[0].codes[..0]; N];
                    for n in 0..N {
                        codes[n] = &parts[n].codes[B::TERM * term..][..B::TERM];
                    }
                    let dots = dots::<V, N>(codes, inputs, B::CODES.bias());
                    for n in 0..N {
                        let mut value = (parts[n].scales[term] * x.scale()) * V::total(dots[n]) as f32;
                        if B::MIN {
                            value += parts[n].mins[term] * x.sum();
                        }
                        sums[n][term % B::SUMS] += value;
                    }
                }
            }
        }
        sums.map(|sums| if B::SUMS == 4 { (sums[0] + sums[1]) + (sums[2] + sums[3]) } else { sums[0] })
    }
}

pub(super) mod scaled {
    use super::{Parts, Scaled, Vector128, dots, q8_k};

    pub fn dot<B: Scaled, V: Vector128>(weights: &[B], input: &[q8_k::Block]) -> f32 {
        let [sum] = rows::<B, V, 1>([weights], input);
        sum
    }

    pub fn rows4<B: Scaled, V: Vector128>(rows: [&[B]; 4], input: &[q8_k::Block]) -> [f32; 4] {
        self::rows::<B, V, 4>(rows, input)
    }

    #[inline(always)]
    fn rows<B: Scaled, V: Vector128, const N: usize>(rows: [&[B]; N], input: &[q8_k::Block]) -> [f32; N] {
        let mut parts = [const { Parts::ZERO }; N];
        let mut sums = [0.0; N];
        for (i, x) in input.iter().enumerate() {
            let mut integers = [V::splat(0); N];
            for n in 0..N {
                rows[n][i].unpack::<V>(&mut parts[n]);
            }
            for (group, inputs) in x.codes.chunks_exact(B::GROUP).enumerate() {
                let mut codes = [&parts[0].codes[..0]; N];
                for n in 0..N {
                    codes[n] = &parts[n].codes[B::GROUP * group..][..B::GROUP];
                }
                let dots = dots::<V, N>(codes, inputs, B::CODES.bias());
                for n in 0..N {
                    let multiplier = V::splat(i32::from(parts[n].multipliers[group * B::GROUP / 16]));
                    integers[n] = V::add(integers[n], V::mul(dots[n], multiplier));
                }
            }
            for n in 0..N {
                sums[n] += term::<B>(&parts[n], x, V::total(integers[n]));
            }
        }
        sums
    }

    /// What a block adds to the sum.
    #[inline(always)]
    fn term<B: Scaled>(parts: &Parts, x: &q8_k::Block, integer: i32) -> f32 {
        let scale = x.scale.get();
        let value = (parts.scale * scale) * integer as f32;
        if !B::MIN {
            return value;
        }
        let mut offset = 0;
        for (&min, sum) in parts.mins.iter().zip(&x.sums) {
            offset += i32::from(min) * i32::from(sum.get());
        }
        value - (parts.min * scale) * offset as f32
    }
}

/// The products of `N` rows' codes, less their bias, with as many inputs, 16 or 32, in partial sums.
#[inline(always)]
fn dots<V: Vector128, const N: usize>(codes: [&[u8]; N], inputs: &[i8], bias: i16) -> [V::Int; N] {
    let bias = V::splat(i32::from_ne_bytes([bias as u8; 4]));
    let inputs: &[u8] = bytemuck::cast_slice(inputs);
    let mut dots = [V::no_dots(); N];
    for (i, inputs) in inputs.chunks_exact(16).enumerate() {
        let inputs = V::load(inputs);
        for n in 0..N {
            dots[n] = V::add_dots(dots[n], V::sub_bytes(V::load(&codes[n][16 * i..]), bias), inputs);
        }
    }
    let mut sums = [V::splat(0); N];
    for n in 0..N {
        sums[n] = V::dots(dots[n]);
    }
    sums
}

//! The dots of single rows on vectors of 16 bytes, for all formats of a family ([`super::parts`]): blocks are taken apart
//! to codes, which are summed as integers, then floats in the order of the scalar dot. AVX2 has kernels of its own in the
//! formats' files, which its successors run too.
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

pub(super) fn terms<B: Terms, V: Vector128>(weights: &[B], input: &[impl Input]) -> f32 {
    let (run, terms_of_block) = (256 / B::LEN, B::LEN / B::TERM);
    let mut parts = TermParts::ZERO;
    let mut sums = [0.0f32; 4];
    for (blocks, input) in weights.chunks(run).zip(input.chunks(8)) {
        for (i, block) in blocks.iter().enumerate() {
            block.unpack::<V>(
                &mut parts.codes[i * B::LEN..][..B::LEN],
                &mut parts.scales[i * terms_of_block..][..terms_of_block],
                &mut parts.mins[i * terms_of_block..][..terms_of_block],
            );
        }
        let input = &input[..blocks.len() * B::LEN / 32];
        for (i, x) in input.iter().enumerate() {
            for (j, codes) in x.codes().chunks_exact(B::TERM).enumerate() {
                let term = i * 32 / B::TERM + j;
                let dots =
                    add_dots::<V>(V::no_dots(), &parts.codes[B::TERM * term..], codes, B::CODES.bias());
                let integer = V::total(V::dots(dots));
                let mut value = (parts.scales[term] * x.scale()) * integer as f32;
                if B::MIN {
                    value += parts.mins[term] * x.sum();
                }
                sums[term % B::SUMS] += value;
            }
        }
    }
    if B::SUMS == 4 { (sums[0] + sums[1]) + (sums[2] + sums[3]) } else { sums[0] }
}

pub(super) fn scaled<B: Scaled, V: Vector128>(weights: &[B], input: &[q8_k::Block]) -> f32 {
    let mut parts = Parts::ZERO;
    let mut sum = 0.0;
    for (block, x) in weights.iter().zip(input) {
        block.unpack::<V>(&mut parts);
        let mut integers = V::splat(0);
        for (group, codes) in x.codes.chunks_exact(B::GROUP).enumerate() {
            let dots = add_dots::<V>(V::no_dots(), &parts.codes[B::GROUP * group..], codes, B::CODES.bias());
            let multiplier = V::splat(i32::from(parts.multipliers[group * B::GROUP / 16]));
            integers = V::add(integers, V::mul(V::dots(dots), multiplier));
        }
        let scale = x.scale.get();
        let mut value = (parts.scale * scale) * V::total(integers) as f32;
        if B::MIN {
            let mut offset = 0;
            for (&min, sum) in parts.mins.iter().zip(&x.sums) {
                offset += i32::from(min) * i32::from(sum.get());
            }
            value -= (parts.min * scale) * offset as f32;
        }
        sum += value;
    }
    sum
}

/// Adds the products of codes, less their bias, with as many inputs as there are: 16 or 32.
#[inline(always)]
fn add_dots<V: Vector128>(mut dots: V::Dots, codes: &[u8], inputs: &[i8], bias: i16) -> V::Dots {
    let bias = V::splat(i32::from_ne_bytes([bias as u8; 4]));
    let inputs: &[u8] = bytemuck::cast_slice(inputs);
    for (codes, inputs) in codes.chunks_exact(16).zip(inputs.chunks_exact(16)) {
        dots = V::add_dots(dots, V::sub_bytes(V::load(codes), bias), V::load(inputs));
    }
    dots
}

//! The kernels of all instruction sets that sum four products of bytes, or can be made to: see [`super`]. One source
//! over [`Vector`].
//!
//! Where codes are signed, what an unsigned format has above the numbers that it means is taken off when a panel is filled.
//! Where they are unsigned, signed codes are raised by 128, and what the codes are too high comes off with the inputs' sums.

use std::iter::StepBy;
use std::ops::Range;

use super::kernel::{self, Input, Routines};
use super::steps::{Steps, dots};
use super::{PANEL_COLUMNS, PANEL_ROWS, Panel, Parts, Scaled, TermParts, Terms, Tile};
use crate::quant::parts::Codes;
use crate::simd::vector::Vector;

/// What tiles need to know of a format.
#[derive(Clone, Copy)]
struct Shape {
    /// Of a term, or of weights that share a multiplier.
    steps: usize,
    min: bool,
    /// See [`bias`].
    bias: i16,
}

/// What the codes of a panel are above the numbers that they mean.
#[inline(always)]
const fn bias<V: Vector>(codes: Codes) -> i16 {
    match codes {
        _ if !V::UNSIGNED => 0,
        Codes::Unsigned { bias, .. } => bias,
        Codes::Signed => 128,
    }
}

/// Brings interleaved codes of `columns` to [`bias`].
#[inline(always)]
fn shift<V: Vector>(panel: &mut Panel, codes: Codes, columns: usize) {
    let by = (bias::<V>(codes) - codes.bias()) as u8;
    if by != 0 {
        for step in &mut panel.codes[..columns / 4] {
            for byte in step {
                *byte = byte.wrapping_add(by);
            }
        }
    }
}

/// The numbers of `V` vectors of a row of [`Panel`].
#[inline(always)]
fn load_scales<V: Vector>(values: &[f32; PANEL_ROWS], row: usize) -> V::Float {
    V::load_f(&values[row..])
}

/// The numbers of `R` vectors of a row of [`Panel`].
#[inline(always)]
fn load_rows<V: Vector, const R: usize>(values: &[f32; PANEL_ROWS], row: usize) -> [V::Float; R] {
    let mut numbers = [V::splat_f(0.0); R];
    for r in 0..R {
        numbers[r] = load_scales::<V>(values, row + r * V::LANES);
    }
    numbers
}

/// Sums of `R` vectors of rows and `T` inputs, from row `row` on.
#[inline(always)]
fn load_sums<V: Vector, const R: usize, const T: usize>(
    tiles: &[Tile; T],
    p: usize,
    row: usize,
) -> [[V::Float; R]; T] {
    let mut sums = [[V::splat_f(0.0); R]; T];
    for t in 0..T {
        for r in 0..R {
            sums[t][r] = load_scales::<V>(&tiles[t][p], row + r * V::LANES);
        }
    }
    sums
}

#[inline(always)]
fn store_sums<V: Vector, const R: usize, const T: usize>(
    sums: [[V::Float; R]; T],
    tiles: &mut [Tile; T],
    p: usize,
    row: usize,
) {
    for t in 0..T {
        for r in 0..R {
            V::store_f(sums[t][r], &mut tiles[t][p][row + r * V::LANES..]);
        }
    }
}

/// `R` vectors of rows at a time.
#[inline(always)]
fn terms_tile<V: Steps, const R: usize, const T: usize>(
    shape: Shape,
    panel: &Panel,
    terms: &StepBy<Range<usize>>,
    x: &[Input<'_>; T],
    tiles: &mut [Tile; T],
    p: usize,
) {
    for pass in 0..PANEL_ROWS / (R * V::LANES) {
        let row = pass * R * V::LANES;
        let mut sums = load_sums::<V, R, T>(tiles, p, row);
        for term in terms.clone() {
            let dots = V::steps::<R, T>(panel, x, row, term * shape.steps, shape.steps);
            let column = term * shape.steps / 8;
            let scales = load_rows::<V, R>(&panel.scales[term], row);
            let bias = V::splat(bytemuck::cast(bias_factors(shape, term)));
            // Loops without branches, which are written out: what they hold stays in registers.
            let mut values = [[V::splat_f(0.0); R]; T];
            for t in 0..T {
                let run = x[t].1;
                let scale = V::splat_f(run.scales[column]);
                let above = V::dot_pairs(V::splat(bytemuck::cast(run.code_sums[column])), bias);
                for r in 0..R {
                    let integer = if V::UNSIGNED { V::sub(dots[t][r], above) } else { dots[t][r] };
                    values[t][r] = V::mul_f(V::mul_f(scales[r], scale), V::to_float(integer));
                }
            }
            if shape.min {
                let mins = load_rows::<V, R>(&panel.mins[term], row);
                for t in 0..T {
                    let sum = V::splat_f(x[t].1.value_sums[column]);
                    for r in 0..R {
                        values[t][r] = V::add_f(values[t][r], V::mul_f(mins[r], sum));
                    }
                }
            }
            for t in 0..T {
                for r in 0..R {
                    sums[t][r] = V::add_f(sums[t][r], values[t][r]);
                }
            }
        }
        store_sums::<V, R, T>(sums, tiles, p, row);
    }
}

/// What the two sums of 16 codes are multiplied with, which together are those of a term or of two.
#[inline(always)]
fn bias_factors(shape: Shape, term: usize) -> [i16; 2] {
    match (shape.steps, term % 2) {
        (8, _) => [shape.bias; 2],
        (_, 0) => [shape.bias, 0],
        _ => [0, shape.bias],
    }
}

/// `R` vectors of rows at a time.
#[inline(always)]
fn scaled_tile<V: Steps, const R: usize, const T: usize>(
    shape: Shape,
    panel: &Panel,
    x: &[Input<'_>; T],
    tiles: &mut [Tile; T],
    p: usize,
) {
    for pass in 0..PANEL_ROWS / (R * V::LANES) {
        let row = pass * R * V::LANES;
        let mut integers = [[V::splat(0); R]; T];
        for group in 0..PANEL_COLUMNS / 4 / shape.steps {
            let dots = V::steps::<R, T>(panel, x, row, group * shape.steps, shape.steps);
            let multipliers = &panel.multipliers[group * shape.steps / 4];
            for r in 0..R {
                let multipliers = V::load(bytemuck::cast_slice(&multipliers[row + r * V::LANES..]));
                for t in 0..T {
                    let scaled = V::mul(dots[t][r], multipliers);
                    integers[t][r] = V::add(integers[t][r], scaled);
                }
            }
        }
        add_block_terms::<V, R, T>(shape, panel, x, integers, row, tiles, p);
    }
}

/// Adds what the blocks of `R` vectors of rows, whose scaled sums are `integers`, contribute to the sums of the inputs.
#[inline(always)]
fn add_block_terms<V: Vector, const R: usize, const T: usize>(
    shape: Shape,
    panel: &Panel,
    x: &[Input<'_>; T],
    mut integers: [[V::Int; R]; T],
    row: usize,
    tiles: &mut [Tile; T],
    p: usize,
) {
    let mut offsets = [[V::splat(0); R]; T];
    if shape.min || shape.bias != 0 {
        for pair in 0..PANEL_COLUMNS / 32 {
            for r in 0..R {
                let factors = V::load(bytemuck::cast_slice(&panel.offsets[pair][row + r * V::LANES..]));
                for t in 0..T {
                    let sums = V::splat(bytemuck::cast(x[t].1.code_sums[pair]));
                    offsets[t][r] = V::add(offsets[t][r], V::dot_pairs(factors, sums));
                }
            }
        }
    }
    if !shape.min {
        for t in 0..T {
            for r in 0..R {
                integers[t][r] = V::sub(integers[t][r], offsets[t][r]);
            }
        }
    }
    let scales = load_rows::<V, R>(&panel.scales[0], row);
    let mut values = [[V::splat_f(0.0); R]; T];
    for t in 0..T {
        let scale = V::splat_f(x[t].1.scales[0]);
        for r in 0..R {
            values[t][r] = V::mul_f(V::mul_f(scales[r], scale), V::to_float(integers[t][r]));
        }
    }
    if shape.min {
        let mins = load_rows::<V, R>(&panel.mins[0], row);
        for t in 0..T {
            let scale = V::splat_f(x[t].1.scales[0]);
            for r in 0..R {
                let offset = V::mul_f(V::mul_f(mins[r], scale), V::to_float(offsets[t][r]));
                values[t][r] = V::sub_f(values[t][r], offset);
            }
        }
    }
    let mut sums = load_sums::<V, R, T>(tiles, p, row);
    for t in 0..T {
        for r in 0..R {
            sums[t][r] = V::add_f(sums[t][r], values[t][r]);
        }
    }
    store_sums::<V, R, T>(sums, tiles, p, row);
}

/// Entry functions for a [`Vector`], compiled for `$features`: a tile is `$rows` vectors of rows and `$inputs` inputs.
macro_rules! kernel {
    ($vector:ty, $rows:literal, $inputs:literal, $interleave:path, $steps:ident $(, $features:literal)?) => {
        impl Steps for $vector {
            #[inline(always)]
            fn steps<const R: usize, const T: usize>(
                panel: &Panel,
                x: &[Input<'_>; T],
                row: usize,
                first: usize,
                steps: usize,
            ) -> [[Self::Int; R]; T] {
                $steps::<Self, R, T>(panel, x, row, first, steps)
            }
        }

        impl Routines for $vector {
            const INPUTS: usize = $inputs;

            $(#[target_feature(enable = $features)])?
            unsafe fn unpack_terms<B: Terms>(blocks: &[B], parts: &mut TermParts) {
                parts.unpack::<B, Self>(blocks);
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn fill_terms<B: Terms>(panel: &mut Panel, rows: &[TermParts], columns: usize) {
                let mut codes = [&rows[0].codes; PANEL_ROWS];
                for r in 1..PANEL_ROWS {
                    codes[r] = &rows[r].codes;
                }
                $interleave(panel, &codes, columns);
                shift::<Self>(panel, B::CODES, columns);
                kernel::fill_term_scales::<B>(panel, rows, columns);
            }

            unsafe fn terms_tile<B: Terms, const T: usize>(
                panel: &Panel,
                terms: StepBy<Range<usize>>,
                x: &[Input<'_>; T],
                tiles: &mut [Tile; T],
                p: usize,
            ) {
                // One for all formats.
                $(#[target_feature(enable = $features)])?
                unsafe fn tile<const T: usize>(
                    shape: Shape,
                    panel: &Panel,
                    terms: &StepBy<Range<usize>>,
                    x: &[Input<'_>; T],
                    tiles: &mut [Tile; T],
                    p: usize,
                ) {
                    terms_tile::<$vector, $rows, T>(shape, panel, terms, x, tiles, p);
                }
                let bias = bias::<Self>(B::CODES);
                let shape = Shape { steps: B::TERM / 4, min: B::MIN, bias };
                // SAFETY: the caller's promise.
                unsafe { tile(shape, panel, &terms, x, tiles, p) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn unpack_scaled<B: Scaled>(block: &B, parts: &mut Parts) {
                block.unpack::<Self>(parts);
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn fill_scaled<B: Scaled>(panel: &mut Panel, rows: &[Parts]) {
                let mut codes = [&rows[0].codes; PANEL_ROWS];
                for r in 1..PANEL_ROWS {
                    codes[r] = &rows[r].codes;
                }
                $interleave(panel, &codes, PANEL_COLUMNS);
                shift::<Self>(panel, B::CODES, PANEL_COLUMNS);
                let bias = bias::<Self>(B::CODES);
                kernel::fill_multipliers::<B>(panel, rows, bias, |multiplier| {
                    bytemuck::cast(i32::from(multiplier))
                });
            }

            unsafe fn scaled_tile<B: Scaled, const T: usize>(
                panel: &Panel,
                x: &[Input<'_>; T],
                tiles: &mut [Tile; T],
                p: usize,
            ) {
                // One for all formats.
                $(#[target_feature(enable = $features)])?
                unsafe fn tile<const T: usize>(
                    shape: Shape,
                    panel: &Panel,
                    x: &[Input<'_>; T],
                    tiles: &mut [Tile; T],
                    p: usize,
                ) {
                    scaled_tile::<$vector, $rows, T>(shape, panel, x, tiles, p);
                }
                let bias = bias::<Self>(B::CODES);
                let shape = Shape { steps: B::GROUP / 4, min: B::MIN, bias };
                // SAFETY: the caller's promise.
                unsafe { tile(shape, panel, x, tiles, p) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::avx2;
    use super::*;
    use crate::simd::x86::vnni::{Avx512, AvxVnni};

    kernel!(AvxVnni, 2, 3, avx2::interleave, dots, "avx2,f16c,avxvnni");
    kernel!(Avx512, 1, 8, avx2::interleave, dots, "avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use super::super::steps::{interleave, products};
    use super::*;
    use crate::simd::aarch64::{Dotprod, I8mm, Neon};

    kernel!(Neon, 2, 2, interleave::<4>, dots);
    kernel!(Dotprod, 4, 3, interleave::<4>, dots);
    kernel!(I8mm, 2, 6, interleave::<8>, products);
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm32 {
    use super::super::steps::interleave;
    use super::*;
    use crate::simd::wasm32::Simd128;

    kernel!(Simd128, 2, 2, interleave::<4>, dots);
}

#[cfg(test)]
mod emulated {
    use super::super::steps::{interleave, products};
    use super::*;
    use crate::simd::vector::Emulated;

    kernel!(Emulated<4, false>, 2, 2, interleave::<4>, dots);
    kernel!(Emulated<4, false, true>, 2, 6, interleave::<8>, products);
    kernel!(Emulated<8, true>, 2, 3, interleave::<4>, dots);
    kernel!(Emulated<16, true>, 1, 8, interleave::<4>, dots);
}

//! The AVX2 kernels: see [`super`].
//!
//! A step is four columns: 16 × 4 codes of weights in two registers, times four codes of an input in all lanes. Unsigned
//! codes are summed in pairs to i16 (`maddubs`), as many steps as fit, then multiplied with their group's multiplier and
//! summed in pairs to i32 (`madd`). Signed ones give their signs to the input's codes first.

use std::arch::x86_64::*;
use std::iter::StepBy;
use std::ops::Range;

use super::kernel::{self, Input, Routines, part};
use super::{PANEL_COLUMNS, PANEL_ROWS, Panel, Run, Tile};
use crate::quant::parts::{Codes, Parts, Scaled, TermParts, Terms};
use crate::simd::x86::{Avx2, load8f, load32, opaque, store8f, store32};

/// Sums of 16 rows and `T` inputs.
type Sums<V, const T: usize> = [[V; 2]; T];

impl Routines for Avx2 {
    const INPUTS: usize = 3;

    #[target_feature(enable = "avx2,f16c")]
    unsafe fn unpack_terms<B: Terms>(blocks: &[B], parts: &mut TermParts) {
        parts.unpack::<B, Self>(blocks);
    }

    #[target_feature(enable = "avx2")]
    unsafe fn fill_terms<B: Terms>(panel: &mut Panel, rows: &[TermParts], columns: usize) {
        let mut codes = [&rows[0].codes; PANEL_ROWS];
        for (codes, row) in codes.iter_mut().zip(rows) {
            *codes = &row.codes;
        }
        interleave(panel, &codes, columns);
        kernel::fill_term_scales::<B>(panel, rows, columns);
    }

    #[target_feature(enable = "avx2")]
    unsafe fn terms_tile<B: Terms, const T: usize>(
        panel: &Panel,
        terms: StepBy<Range<usize>>,
        x: &[Input<'_>; T],
        tiles: &mut [Tile; T],
        p: usize,
    ) {
        terms_tile::<B, T>(panel, terms, x, tiles, p);
    }

    #[target_feature(enable = "avx2,f16c")]
    unsafe fn unpack_scaled<B: Scaled>(block: &B, parts: &mut Parts) {
        block.unpack::<Self>(parts);
    }

    #[target_feature(enable = "avx2")]
    unsafe fn fill_scaled<B: Scaled>(panel: &mut Panel, rows: &[Parts]) {
        let mut codes = [&rows[0].codes; PANEL_ROWS];
        for (codes, row) in codes.iter_mut().zip(rows) {
            *codes = &row.codes;
        }
        interleave(panel, &codes, PANEL_COLUMNS);
        kernel::fill_multipliers::<B>(panel, rows, const { B::CODES.bias() }, |multiplier| [multiplier; 2]);
    }

    #[target_feature(enable = "avx2")]
    unsafe fn scaled_tile<B: Scaled, const T: usize>(
        panel: &Panel,
        x: &[Input<'_>; T],
        tiles: &mut [Tile; T],
        p: usize,
    ) {
        scaled_tile::<B, T>(panel, x, tiles, p);
    }
}

/// Fills the steps of `columns` of a panel, a multiple of 32: 32 bytes of each row at a time.
#[target_feature(enable = "avx2")]
pub fn interleave(panel: &mut Panel, rows: &[&[u8; 256]; PANEL_ROWS], columns: usize) {
    for half in 0..2 {
        for part in 0..columns.div_ceil(32) {
            let mut v = [_mm256_setzero_si256(); 8];
            for (r, v) in v.iter_mut().enumerate() {
                *v = load32(&rows[8 * half + r].as_chunks().0[part]);
            }
            let v = transpose(v);
            for step in 0..8 {
                store32(&mut panel.codes[8 * part + step].as_chunks_mut::<32>().0[half], v[step]);
            }
        }
    }
}

/// 8 × 8 × 32 bits: lane i of vector j to lane j of vector i.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(v: [__m256i; 8]) -> [__m256i; 8] {
    let pairs = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let ((a, b), (c, d)) = (pairs(v[0], v[1]), pairs(v[2], v[3]));
    let ((e, f), (g, h)) = (pairs(v[4], v[5]), pairs(v[6], v[7]));
    let fours = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let ((a, c), (b, d)) = (fours(a, c), fours(b, d));
    let ((e, g), (f, h)) = (fours(e, g), fours(f, h));
    let low = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
    let high = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
    [low(a, e), low(c, g), low(b, f), low(d, h), high(a, e), high(c, g), high(b, f), high(d, h)]
}

/// Adds `terms` of a panel and `T` inputs to the tiles.
#[inline]
#[target_feature(enable = "avx2")]
fn terms_tile<B: Terms, const T: usize>(
    panel: &Panel,
    terms: StepBy<Range<usize>>,
    x: &[Input<'_>; T],
    tiles: &mut [Tile; T],
    p: usize,
) {
    let steps = B::TERM / 4;
    let ones = [_mm256_set1_epi16(1); 2];
    let mut sums = [[_mm256_setzero_ps(); 2]; T];
    for t in 0..T {
        sums[t] = load_sums(&tiles[t][p]);
    }
    for term in terms {
        let mut integers = [[_mm256_setzero_si256(); 2]; T];
        let fitting = const { B::CODES.sums_in_i16(if B::TERM == 32 { 8 } else { 4 }) };
        if matches!(B::CODES, Codes::Signed) {
            add_signed(panel, x, term * steps, steps, ones, &mut integers);
        } else {
            for part in 0..steps / fitting {
                add_products(panel, x, term * steps + part * fitting, fitting, ones, &mut integers);
            }
        }
        let scales = load_sums(&panel.scales[term]);
        for t in 0..T {
            let run = x[t].1;
            let column = term * B::TERM / 32;
            let scale = _mm256_set1_ps(run.scales[column]);
            for half in 0..2 {
                let mut integer = integers[t][half];
                if const { B::CODES.bias() != 0 } {
                    integer = _mm256_sub_epi32(integer, bias::<B>(run, term));
                }
                let mut value = scale_integers(scales[half], scale, integer);
                if B::MIN {
                    let min = load8f(&panel.mins[term].as_chunks().0[half]);
                    let offset = _mm256_mul_ps(min, _mm256_set1_ps(run.value_sums[column]));
                    value = _mm256_add_ps(value, offset);
                }
                sums[t][half] = _mm256_add_ps(sums[t][half], value);
            }
        }
    }
    for (tile, sums) in tiles.iter_mut().zip(sums) {
        store_sums(&mut tile[p], sums);
    }
}

/// The codes' bias times the sum of a term's inputs, in all lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn bias<B: Terms>(run: &Run, term: usize) -> __m256i {
    let bias = const { B::CODES.bias() as i32 };
    let factors = match (B::TERM, term % 2) {
        (32, _) => bias | bias << 16,
        (_, 0) => bias,
        _ => bias << 16,
    };
    let sums = broadcast(&bytemuck::cast(run.code_sums[term * B::TERM / 32]));
    _mm256_madd_epi16(sums, _mm256_set1_epi32(factors))
}

/// Adds a panel and `T` inputs to the tiles.
#[inline]
#[target_feature(enable = "avx2")]
fn scaled_tile<B: Scaled, const T: usize>(
    panel: &Panel,
    x: &[Input<'_>; T],
    tiles: &mut [Tile; T],
    p: usize,
) {
    let mut integers = [[_mm256_setzero_si256(); 2]; T];
    let steps = B::GROUP / 4;
    let fitting = const { B::CODES.sums_in_i16(if B::GROUP == 32 { 8 } else { 4 }) };
    for group in 0..PANEL_COLUMNS / B::GROUP {
        let multipliers: &[[u8; 32]; 2] = bytemuck::cast_ref(&panel.multipliers[group * B::GROUP / 16]);
        let multipliers = [load32(&multipliers[0]), load32(&multipliers[1])];
        if matches!(B::CODES, Codes::Signed) {
            add_signed(panel, x, group * steps, steps, multipliers, &mut integers);
            continue;
        }
        for part in 0..steps / fitting {
            let first = group * steps + part * fitting;
            add_products(panel, x, first, fitting, multipliers, &mut integers);
        }
    }
    let (scales, mins) = (load_sums(&panel.scales[0]), load_sums(&panel.mins[0]));
    let offsets = bytemuck::cast_ref::<_, [[u8; 64]; 8]>(&panel.offsets);
    for t in 0..T {
        let run = x[t].1;
        let mut offset = [[_mm256_setzero_si256(); 2]];
        if const { B::MIN || B::CODES.bias() != 0 } {
            let sums: &[[u8; 4]; 8] = bytemuck::cast_ref(&run.code_sums);
            add_wide(offsets, &[(sums, run)], 0, 8, &mut offset);
        }
        let scale = _mm256_set1_ps(run.scales[0]);
        let mut sums = load_sums(&tiles[t][p]);
        for half in 0..2 {
            let (integer, offset) = (integers[t][half], offset[0][half]);
            let integer =
                if const { B::CODES.bias() != 0 } { _mm256_sub_epi32(integer, offset) } else { integer };
            let mut value = scale_integers(scales[half], scale, integer);
            if B::MIN {
                value = _mm256_sub_ps(value, scale_integers(mins[half], scale, offset));
            }
            sums[half] = _mm256_add_ps(sums[half], value);
        }
        store_sums(&mut tiles[t][p], sums);
    }
}

/// Adds the products of unsigned codes with inputs, of as many steps as sum up in an i16, times `factors`.
#[inline]
#[target_feature(enable = "avx2")]
fn add_products<const T: usize>(
    panel: &Panel,
    x: &[Input<'_>; T],
    first: usize,
    steps: usize,
    factors: [__m256i; 2],
    integers: &mut Sums<__m256i, T>,
) {
    let (codes, x) = (&panel.codes[first..first + steps], part(x, first, steps));
    if steps == 1 {
        let codes = load_step(&codes[0]);
        for t in 0..T {
            let x = broadcast(&x[t][0]);
            for half in 0..2 {
                let scaled = _mm256_madd_epi16(_mm256_maddubs_epi16(codes[half], x), factors[half]);
                integers[t][half] = opaque(_mm256_add_epi32(integers[t][half], scaled));
            }
        }
        return;
    }
    let mut pairs = [[_mm256_setzero_si256(); 2]; T];
    for (step, codes) in codes.iter().enumerate() {
        let codes = load_step(codes);
        for t in 0..T {
            let x = broadcast(&x[t][step]);
            for half in 0..2 {
                let products = _mm256_maddubs_epi16(codes[half], x);
                pairs[t][half] = opaque(_mm256_add_epi16(pairs[t][half], products));
            }
        }
    }
    for t in 0..T {
        for half in 0..2 {
            let scaled = _mm256_madd_epi16(pairs[t][half], factors[half]);
            integers[t][half] = _mm256_add_epi32(integers[t][half], scaled);
        }
    }
}

/// Adds the products of signed codes with inputs times `factors`: those of a step fill an i16.
#[inline]
#[target_feature(enable = "avx2")]
fn add_signed<const T: usize>(
    panel: &Panel,
    x: &[Input<'_>; T],
    first: usize,
    steps: usize,
    factors: [__m256i; 2],
    integers: &mut Sums<__m256i, T>,
) {
    let (codes, x) = (&panel.codes[first..first + steps], part(x, first, steps));
    for (step, codes) in codes.iter().enumerate() {
        let codes = load_step(codes);
        let magnitudes = [_mm256_abs_epi8(codes[0]), _mm256_abs_epi8(codes[1])];
        for t in 0..T {
            let x = broadcast(&x[t][step]);
            for half in 0..2 {
                let pairs = _mm256_maddubs_epi16(magnitudes[half], _mm256_sign_epi8(x, codes[half]));
                let products = _mm256_madd_epi16(pairs, factors[half]);
                integers[t][half] = opaque(_mm256_add_epi32(integers[t][half], products));
            }
        }
    }
}

/// Adds the products of 16-bit codes with 16-bit inputs.
#[inline]
#[target_feature(enable = "avx2")]
fn add_wide<const T: usize>(
    codes: &[[u8; 64]],
    x: &[Input<'_>; T],
    first: usize,
    steps: usize,
    integers: &mut Sums<__m256i, T>,
) {
    let (codes, x) = (&codes[first..first + steps], part(x, first, steps));
    for (step, codes) in codes.iter().enumerate() {
        let codes = load_step(codes);
        for t in 0..T {
            let x = broadcast(&x[t][step]);
            for half in 0..2 {
                let products = _mm256_madd_epi16(codes[half], x);
                integers[t][half] = opaque(_mm256_add_epi32(integers[t][half], products));
            }
        }
    }
}

/// (weights' scale * input's scale) * integer.
#[inline]
#[target_feature(enable = "avx2")]
fn scale_integers(weights: __m256, input: __m256, integers: __m256i) -> __m256 {
    _mm256_mul_ps(_mm256_mul_ps(weights, input), _mm256_cvtepi32_ps(integers))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_step(codes: &[u8; 64]) -> [__m256i; 2] {
    let (halves, _) = codes.as_chunks();
    [load32(&halves[0]), load32(&halves[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn broadcast(codes: &[u8; 4]) -> __m256i {
    _mm256_set1_epi32(i32::from_ne_bytes(*codes))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_sums(sums: &[f32; PANEL_ROWS]) -> [__m256; 2] {
    let (halves, _) = sums.as_chunks();
    [load8f(&halves[0]), load8f(&halves[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_sums(out: &mut [f32; PANEL_ROWS], sums: [__m256; 2]) {
    let (halves, _) = out.as_chunks_mut();
    store8f(&mut halves[0], sums[0]);
    store8f(&mut halves[1], sums[1]);
}

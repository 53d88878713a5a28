//! The integer dots of panels and inputs, over vectors of any instruction set.
//!
//! A step is four columns: 16 × 4 codes of weights times four codes of an input in all lanes. Where instructions multiply
//! matrices it is eight columns: 2 × 8 codes of weights times eight codes of two inputs.

use super::kernel::{Input, part};
use super::{PANEL_ROWS, Panel};
use crate::simd::vector::{Matrix, Vector};

/// A vector with the way in which it takes steps.
pub(super) trait Steps: Vector {
    /// The dots of `R` vectors of rows, from row `row` on, and `T` inputs over `4 * steps` columns, from `4 * first` on.
    fn steps<const R: usize, const T: usize>(
        panel: &Panel,
        x: &[Input<'_>; T],
        row: usize,
        first: usize,
        steps: usize,
    ) -> [[Self::Int; R]; T];
}

/// Fills the steps of `columns` of a panel, which are of `C` columns.
#[inline(always)]
#[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "AVX2 has one of its own"))]
pub(super) fn interleave<const C: usize>(panel: &mut Panel, rows: &[&[u8; 256]; PANEL_ROWS], columns: usize) {
    let steps = panel.codes.as_flattened_mut().chunks_exact_mut(C * PANEL_ROWS).take(columns.div_ceil(C));
    for (step, codes) in steps.enumerate() {
        for r in 0..PANEL_ROWS {
            codes.as_chunks_mut::<C>().0[r] = rows[r].as_chunks::<C>().0[step];
        }
    }
}

/// [`Steps::steps`] by the dots of four bytes.
#[inline(always)]
pub(super) fn dots<V: Vector, const R: usize, const T: usize>(
    panel: &Panel,
    x: &[Input<'_>; T],
    row: usize,
    first: usize,
    steps: usize,
) -> [[V::Int; R]; T] {
    let mut dots = [[V::no_dots(); R]; T];
    let (codes, x) = (&panel.codes[first..first + steps], part(x, first, steps));
    for step in 0..steps {
        let mut w = [V::splat(0); R];
        for r in 0..R {
            w[r] = V::load(&codes[step][4 * (row + r * V::LANES)..]);
        }
        for t in 0..T {
            let x = V::splat(i32::from_ne_bytes(x[t][step]));
            for r in 0..R {
                dots[t][r] = V::add_dots(dots[t][r], w[r], x);
            }
        }
    }
    let mut sums = [[V::splat(0); R]; T];
    for t in 0..T {
        for r in 0..R {
            sums[t][r] = V::dots(dots[t][r]);
        }
    }
    sums
}

/// [`Steps::steps`] by products of matrices: two rows and two inputs, eight columns at a time. The last of an odd number of
/// inputs is its own neighbour.
#[inline(always)]
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "only tests run it there"))]
pub(super) fn products<V: Matrix, const R: usize, const T: usize>(
    panel: &Panel,
    x: &[Input<'_>; T],
    row: usize,
    first: usize,
    steps: usize,
) -> [[V::Int; R]; T] {
    // Of rows 4 r and 4 r + 1, then of the next two.
    let mut sums = [[[V::splat(0); 2]; R]; T];
    let (codes, x) = (panel.codes[first..first + steps].as_flattened(), part(x, first, steps));
    for step in 0..steps / 2 {
        let mut w = [[V::splat(0); 2]; R];
        for r in 0..R {
            for half in 0..2 {
                w[r][half] = V::load(&codes[8 * (step * PANEL_ROWS + row + 4 * r + 2 * half)..]);
            }
        }
        for pair in 0..T.div_ceil(2) {
            let t = 2 * pair;
            let (a, b) = (x[t].as_flattened(), x[(t + 1).min(T - 1)].as_flattened());
            let x = V::load_rows(&a[8 * step..], &b[8 * step..]);
            for r in 0..R {
                for half in 0..2 {
                    sums[t][r][half] = V::add_products(sums[t][r][half], w[r][half], x);
                }
            }
        }
    }
    let mut dots = [[V::splat(0); R]; T];
    for pair in 0..T.div_ceil(2) {
        let t = 2 * pair;
        for r in 0..R {
            let [even, odd] = V::unzip(sums[t][r][0], sums[t][r][1]);
            dots[t][r] = even;
            if t + 1 < T {
                dots[t + 1][r] = odd;
            }
        }
    }
    dots
}

//! What goes over panels and inputs, whatever the instruction set, and what it asks of one.

use std::iter::StepBy;
use std::ops::Range;

use super::{
    Inputs, PANEL_COLUMNS, PANEL_ROWS, Panel, Parts, Product, Run, STEPS, Scaled, Scratch, TermParts, Terms,
    Tile,
};

/// Codes and numbers of one input.
pub(super) type Input<'a> = (&'a [[u8; 4]], &'a Run);

/// The steps of kernels for many inputs on one instruction set.
///
/// # Safety
/// The CPU must have it, for every function.
pub(super) trait Routines {
    /// Inputs that a tile takes at most: 2, 3, 6 or 8.
    const INPUTS: usize;

    /// Takes up to 256 weights apart.
    unsafe fn unpack_terms<B: Terms>(blocks: &[B], parts: &mut TermParts);
    /// Interleaves `columns` of rows, a multiple of 32.
    unsafe fn fill_terms<B: Terms>(panel: &mut Panel, rows: &[TermParts], columns: usize);
    /// Adds `terms` of a panel and `T` inputs to panel `p` of the tiles.
    unsafe fn terms_tile<B: Terms, const T: usize>(
        panel: &Panel,
        terms: StepBy<Range<usize>>,
        x: &[Input<'_>; T],
        tiles: &mut [Tile; T],
        p: usize,
    );
    /// Takes a block apart.
    unsafe fn unpack_scaled<B: Scaled>(block: &B, parts: &mut Parts);
    /// Interleaves rows.
    unsafe fn fill_scaled<B: Scaled>(panel: &mut Panel, rows: &[Parts]);
    /// Adds a panel and `T` inputs to panel `p` of the tiles.
    unsafe fn scaled_tile<B: Scaled, const T: usize>(
        panel: &Panel,
        x: &[Input<'_>; T],
        tiles: &mut [Tile; T],
        p: usize,
    );
}

/// Calls `$tile::<B, T>` for all inputs of a run of columns, as many at a time as the kernel takes.
macro_rules! for_tiles {
    ($kernel:ty, $block:ty, $inputs:expr, $run:expr, $tiles:expr, |$x:ident, $tile:ident| $call:ident($($arg:expr),*)) => {
        let (inputs, tiles): (&Inputs, &mut [Tile]) = ($inputs, $tiles);
        let (mut done, first) = (0, $run * inputs.rows);
        while done < tiles.len() {
            macro_rules! with {
                ($count:literal) => {{
                    let $x = &inputs_from::<$count>(inputs, first + done);
                    let $tile: &mut [Tile; $count] = tiles[done..].first_chunk_mut().expect("as many are left");
                    // SAFETY: the caller's promise.
                    unsafe { <$kernel>::$call::<$block, $count>($($arg),*) };
                    done += $count;
                }};
            }
            match tiles.len() - done {
                8.. if const { <$kernel>::INPUTS >= 8 } => with!(8),
                6.. if const { <$kernel>::INPUTS >= 6 } => with!(6),
                3.. if const { <$kernel>::INPUTS >= 3 } => with!(3),
                2.. => with!(2),
                _ => with!(1),
            }
        }
    };
}

/// # Safety
/// The CPU must have the instruction set of `K`.
pub(super) unsafe fn multiply_terms<B: Terms, K: Routines>(product: Product<'_>, scratch: &mut Scratch) {
    let inputs = product.inputs;
    scratch.reset(B::SUMS * inputs.rows);
    let row_len = inputs.columns / B::LEN;
    let weights: &[B] = bytemuck::cast_slice(product.weights);
    for run in 0..inputs.columns.div_ceil(PANEL_COLUMNS) {
        let columns = (inputs.columns - run * PANEL_COLUMNS).min(PANEL_COLUMNS);
        let panels = product.rows.div_ceil(PANEL_ROWS);
        for (p, panel) in scratch.panels[..panels].iter_mut().enumerate() {
            for (r, parts) in scratch.term_parts.iter_mut().enumerate() {
                let row = p * PANEL_ROWS + r;
                if row < product.rows {
                    let first = row * row_len + run * (PANEL_COLUMNS / B::LEN);
                    // SAFETY: the caller's promise.
                    unsafe { K::unpack_terms(&weights[first..][..columns / B::LEN], parts) };
                } else {
                    *parts = TermParts::ZERO;
                }
            }
            // SAFETY: the caller's promise.
            unsafe { K::fill_terms::<B>(panel, &scratch.term_parts, columns) };
        }
        for sum in 0..B::SUMS {
            let tiles = &mut scratch.tiles[sum * inputs.rows..][..inputs.rows];
            let terms = (sum..columns / B::TERM).step_by(B::SUMS);
            for (p, panel) in scratch.panels[..panels].iter().enumerate() {
                for_tiles!(K, B, inputs, run, tiles, |x, tile| terms_tile(panel, terms.clone(), x, tile, p));
            }
        }
    }
    if B::SUMS == 4 {
        let (first, rest) = scratch.tiles.split_at_mut(inputs.rows);
        for (i, tile) in first.iter_mut().enumerate() {
            for (j, sum) in tile.as_flattened_mut().iter_mut().enumerate() {
                let other = |k: usize| rest[(k - 1) * inputs.rows + i].as_flattened()[j];
                *sum = (*sum + other(1)) + (other(2) + other(3));
            }
        }
    }
}

/// # Safety
/// The CPU must have the instruction set of `K`.
pub(super) unsafe fn multiply_scaled<B: Scaled, K: Routines>(product: Product<'_>, scratch: &mut Scratch) {
    let inputs = product.inputs;
    scratch.reset(inputs.rows);
    let row_len = inputs.columns / PANEL_COLUMNS;
    let weights: &[B] = bytemuck::cast_slice(product.weights);
    let panels = product.rows.div_ceil(PANEL_ROWS);
    for run in 0..row_len {
        for (p, panel) in scratch.panels[..panels].iter_mut().enumerate() {
            for (r, parts) in scratch.parts.iter_mut().enumerate() {
                match weights.get((p * PANEL_ROWS + r) * row_len + run) {
                    // SAFETY: the caller's promise.
                    Some(block) => unsafe { K::unpack_scaled(block, parts) },
                    None => *parts = Parts::ZERO,
                }
            }
            // SAFETY: the caller's promise.
            unsafe { K::fill_scaled::<B>(panel, &scratch.parts) };
        }
        for (p, panel) in scratch.panels[..panels].iter().enumerate() {
            for_tiles!(K, B, inputs, run, &mut scratch.tiles, |x, tile| scaled_tile(panel, x, tile, p));
        }
    }
}

/// Scales and minimums of a panel.
#[inline(always)]
pub(super) fn fill_term_scales<B: Terms>(panel: &mut Panel, rows: &[TermParts], columns: usize) {
    for (r, row) in rows.iter().enumerate() {
        for term in 0..columns / B::TERM {
            panel.scales[term][r] = row.scales[term];
            if B::MIN {
                panel.mins[term][r] = row.mins[term];
            }
        }
    }
}

/// Scales, minimums and multipliers of a panel, whose codes are above what they mean by `bias`. `spread` says how a
/// multiplier is stored.
#[inline(always)]
pub(super) fn fill_multipliers<B: Scaled>(
    panel: &mut Panel,
    rows: &[Parts],
    bias: i16,
    spread: impl Fn(i16) -> [i16; 2],
) {
    for (r, row) in rows.iter().enumerate() {
        panel.scales[0][r] = row.scale;
        panel.mins[0][r] = row.min;
        for (g, &multiplier) in row.multipliers.iter().enumerate() {
            panel.multipliers[g][r] = spread(multiplier);
            panel.offsets[g / 2][r][g % 2] = if B::MIN { row.mins[g] } else { bias * multiplier };
        }
    }
}

/// `T` inputs of a run of columns, from index `first` on.
fn inputs_from<const T: usize>(inputs: &Inputs, first: usize) -> [Input<'_>; T] {
    let mut x = [(&inputs.codes[..0], &inputs.runs[first]); T];
    for t in 0..T {
        x[t] = (&inputs.codes[(first + t) * STEPS..][..STEPS], &inputs.runs[first + t]);
    }
    x
}

/// Slices of the very length of a loop, so that its bounds are checked once.
#[inline(always)]
pub(super) fn part<'a, const T: usize>(x: &[Input<'a>; T], first: usize, steps: usize) -> [&'a [[u8; 4]]; T] {
    let mut parts = [&x[0].0[..0]; T];
    for t in 0..T {
        parts[t] = &x[t].0[first..first + steps];
    }
    parts
}

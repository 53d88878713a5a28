//! Float weights × many inputs, and weights of any format decoded first, in the pinned order of [`crate::quant::f32`]:
//! 8 lanes, column i to lane i % 8, the lanes added in halves.

use super::{PANEL_ROWS, Product, Scratch};
use crate::math::sum_lanes;
#[cfg(target_arch = "x86_64")]
use crate::simd::Isa;

/// Weight rows and inputs that are multiplied at once: 12 sums of 8 lanes stay in registers.
const ROWS: usize = 4;
const INPUTS: usize = 3;

/// Sums of inputs × rows.
type Sums = [[f32; ROWS]; INPUTS];

pub(super) fn decoded(product: Product<'_>, scratch: &mut Scratch) {
    let (inputs, columns) = (product.inputs, product.inputs.columns);
    scratch.reset(inputs.rows);
    scratch.floats.resize(PANEL_ROWS * columns, 0.0);
    let row_bytes = product.weights.len() / product.rows;
    for (p, weights) in product.weights.chunks(PANEL_ROWS * row_bytes).enumerate() {
        let floats = &mut scratch.floats[..weights.len() / row_bytes * columns];
        product.format.decode(weights, floats).expect("whole rows");
        for (t, x) in inputs.floats.chunks(INPUTS * columns).enumerate() {
            let tiles = &mut scratch.tiles[INPUTS * t..];
            for (r, w) in floats.chunks(ROWS * columns).enumerate() {
                let sums = match product.isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 | Isa::AvxVnni | Isa::Avx512
                        if (w.len(), x.len()) == (4 * columns, 3 * columns) =>
                    {
                        // SAFETY: an Isa other than Scalar is only ever handed out after detection.
                        unsafe { avx2::multiply(w, x, columns) }
                    }
                    _ => multiply(w, x, columns),
                };
                for (tile, sums) in tiles.iter_mut().zip(sums).take(x.len() / columns) {
                    tile[p][ROWS * r..][..ROWS].copy_from_slice(&sums);
                }
            }
        }
    }
}

/// Up to [`ROWS`] rows of `w` with up to [`INPUTS`] of `x`.
fn multiply(w: &[f32], x: &[f32], columns: usize) -> Sums {
    let mut sums = Sums::default();
    for (sums, x) in sums.iter_mut().zip(x.chunks_exact(columns)) {
        for (sum, w) in sums.iter_mut().zip(w.chunks_exact(columns)) {
            let mut lanes = [0.0f32; 8];
            let ((w_eights, w_rest), (x_eights, x_rest)) = (w.as_chunks::<8>(), x.as_chunks::<8>());
            for (w, x) in w_eights.iter().zip(x_eights) {
                for lane in 0..8 {
                    lanes[lane] += w[lane] * x[lane];
                }
            }
            for (lane, (w, x)) in w_rest.iter().zip(x_rest).enumerate() {
                lanes[lane] += w * x;
            }
            *sum = sum_lanes(lanes);
        }
    }
    sums
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{INPUTS, ROWS, Sums, sum_lanes};
    use crate::simd::x86::{load8f, store8f};

    /// All [`ROWS`] and [`INPUTS`].
    #[target_feature(enable = "avx2")]
    pub fn multiply(w: &[f32], x: &[f32], columns: usize) -> Sums {
        let eights = columns / 8;
        let mut lanes = [[_mm256_setzero_ps(); ROWS]; INPUTS];
        let (mut rows, mut inputs) = ([&[][..]; ROWS], [&[][..]; INPUTS]);
        for r in 0..ROWS {
            rows[r] = &w[r * columns..][..8 * eights].as_chunks::<8>().0[..eights];
        }
        for t in 0..INPUTS {
            inputs[t] = &x[t * columns..][..8 * eights].as_chunks::<8>().0[..eights];
        }
        for i in 0..eights {
            let x = [load8f(&inputs[0][i]), load8f(&inputs[1][i]), load8f(&inputs[2][i])];
            for r in 0..ROWS {
                let w = load8f(&rows[r][i]);
                for t in 0..INPUTS {
                    lanes[t][r] = _mm256_add_ps(lanes[t][r], _mm256_mul_ps(w, x[t]));
                }
            }
        }
        let mut sums = Sums::default();
        for t in 0..INPUTS {
            for r in 0..ROWS {
                let mut sum = [0.0; 8];
                store8f(&mut sum, lanes[t][r]);
                for i in 8 * eights..columns {
                    sum[i - 8 * eights] += w[r * columns + i] * x[t * columns + i];
                }
                sums[t][r] = sum_lanes(sum);
            }
        }
        sums
    }
}

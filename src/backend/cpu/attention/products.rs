//! The two products of attention: queries with keys, weights with values. Same bits on every instruction set.

use crate::quant;
use crate::simd::Isa;

/// The dots of `query` with rows of its length, as many as `scores`, in the order of the f32 format.
pub fn dots(isa: Isa, query: &[f32], keys: &[f32], scores: &mut [f32]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni | Isa::Avx512 if query.len().is_multiple_of(8) => {
            // SAFETY: an Isa other than Scalar is only ever handed out after detection, and these have AVX2.
            unsafe { avx2::dots(query, keys, scores) }
        }
        _ => {
            for (score, key) in scores.iter_mut().zip(keys.chunks_exact(query.len())) {
                *score = dot(query, key);
            }
        }
    }
}

/// sums += weight · row, row by row: rows of as many numbers as there are sums.
pub fn add_weighted(isa: Isa, sums: &mut [f32], weights: &[f32], rows: &[f32]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni | Isa::Avx512 if sums.len().is_multiple_of(8) => {
            // SAFETY: an Isa other than Scalar is only ever handed out after detection, and these have AVX2.
            unsafe { avx2::add_weighted(sums, weights, rows) }
        }
        _ => {
            for (weight, row) in weights.iter().zip(rows.chunks_exact(sums.len())) {
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum += weight * value;
                }
            }
        }
    }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    quant::f32::dot_lanes(a, bytemuck::cast_slice(b), |a| a)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use crate::simd::x86::{load8f, store8f};

    /// Eight keys at a time: eight independent sums, and the query is read once.
    #[target_feature(enable = "avx2")]
    pub fn dots(query: &[f32], keys: &[f32], scores: &mut [f32]) {
        let dim = query.len();
        let (eights, rest) = scores.as_chunks_mut::<8>();
        let done = eights.len() * 8 * dim;
        for (scores, keys) in eights.iter_mut().zip(keys.chunks_exact(8 * dim)) {
            store8f(scores, dot_8(query, keys));
        }
        for (score, key) in rest.iter_mut().zip(keys[done..].chunks_exact(dim)) {
            *score = super::dot(query, key);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn dot_8(query: &[f32], keys: &[f32]) -> __m256 {
        let (query, keys) = (query.as_chunks::<8>().0, keys.as_chunks::<8>().0);
        let n = query.len();
        // Slices of one length: no index below is checked.
        let (a, b, c, d) = (&keys[..n], &keys[n..2 * n], &keys[2 * n..3 * n], &keys[3 * n..4 * n]);
        let (e, f, g, h) =
            (&keys[4 * n..5 * n], &keys[5 * n..6 * n], &keys[6 * n..7 * n], &keys[7 * n..8 * n]);
        let mut sums = [_mm256_setzero_ps(); 8];
        for i in 0..n {
            let q = load8f(&query[i]);
            let keys = [&a[i], &b[i], &c[i], &d[i], &e[i], &f[i], &g[i], &h[i]];
            for j in 0..8 {
                sums[j] = _mm256_add_ps(sums[j], _mm256_mul_ps(q, load8f(keys[j])));
            }
        }
        sum_lanes(sums)
    }

    /// [`math::sum_lanes`](crate::math::sum_lanes) of each, in order.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn sum_lanes(v: [__m256; 8]) -> __m256 {
        let a = quarters(halves(v[0], v[1]), halves(v[2], v[3]));
        let b = quarters(halves(v[4], v[5]), halves(v[6], v[7]));
        // Of 0, 2, 4, 6 in the lower half, of 1, 3, 5, 7 in the upper.
        let sums =
            _mm256_add_ps(_mm256_shuffle_ps::<0b10_00_10_00>(a, b), _mm256_shuffle_ps::<0b11_01_11_01>(a, b));
        _mm256_permutevar8x32_ps(sums, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0))
    }

    /// Eight lanes to four: those of `a`, then those of `b`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn halves(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
    }

    /// Four lanes to two, in each half: those of `a`, then those of `b`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn quarters(a: __m256, b: __m256) -> __m256 {
        let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
        let (low, high) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
        _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high))
    }

    /// In blocks of columns that stay in registers.
    #[target_feature(enable = "avx2")]
    pub fn add_weighted(sums: &mut [f32], weights: &[f32], rows: &[f32]) {
        let rows = rows.as_chunks().0;
        let sums = sums.as_chunks_mut().0;
        let eights = sums.len();
        let mut from = 0;
        while from + 8 <= eights {
            add_block::<8>(&mut sums[from..], weights, &rows[from..], eights);
            from += 8;
        }
        while from < eights {
            add_block::<1>(&mut sums[from..], weights, &rows[from..], eights);
            from += 1;
        }
    }

    /// `N` columns of eights; `rows` begins at the first of them, rows are `eights` apart.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_block<const N: usize>(sums: &mut [[f32; 8]], weights: &[f32], rows: &[[f32; 8]], eights: usize) {
        let mut lanes = [_mm256_setzero_ps(); N];
        for i in 0..N {
            lanes[i] = load8f(&sums[i]);
        }
        for at in 0..weights.len() {
            let (weight, row) = (_mm256_set1_ps(weights[at]), &rows[at * eights..at * eights + N]);
            for i in 0..N {
                lanes[i] = _mm256_add_ps(lanes[i], _mm256_mul_ps(weight, load8f(&row[i])));
            }
        }
        for i in 0..N {
            store8f(&mut sums[i], lanes[i]);
        }
    }
}

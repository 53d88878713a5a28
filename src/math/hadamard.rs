//! The Walsh-Hadamard transform, which spreads each element of a vector evenly over all of them.

use crate::math::per_isa;

mod orders;

per_isa! {
    /// y = H x / sqrt(n) in place, where n is the length, a power of two. Pairs are added and subtracted in rising distance
    /// (1, 2, 4, ...), then all is scaled once: MLX's order, whose bits these are. It is its own inverse.
    ///
    /// # Panics
    /// If the length is no power of two.
    pub fn transform(values: &mut [f32]) {
        let n = values.len();
        assert!(n.is_power_of_two(), "a power of two");
        sums(values);
        scale(values, n);
    }
}

/// Whether a vector of `n` elements can be transformed: n = m 2^k, where m is 1, 12, 20 or 28.
pub fn has_order(n: usize) -> bool {
    orders::factor(n).is_some()
}

per_isa! {
    /// [`transform`] for every n of [`has_order`]: runs of 2^k elements first, then the m elements at one place of all runs by
    /// the matrix of that order. Its matrix is not symmetric for m = 20 and 28.
    ///
    /// # Panics
    /// If the length is of no such order.
    pub fn transform_order(values: &mut [f32]) {
        let n = values.len();
        let m = orders::factor(n).expect("a length of 1, 12, 20 or 28 times a power of two");
        for run in values.chunks_exact_mut(n / m) {
            sums(run);
        }
        orders::mix(values, m);
        scale(values, n);
    }
}

#[inline(always)]
fn scale(values: &mut [f32], n: usize) {
    let scale = (1.0 / (n as f64).sqrt()) as f32;
    for value in values {
        *value *= scale;
    }
}

/// The transform without its scale.
#[inline(always)]
fn sums(values: &mut [f32]) {
    let n = values.len();
    let (eights, rest) = values.as_chunks_mut::<8>();
    for eight in eights.iter_mut() {
        *eight = transform_8(*eight);
    }
    let mut distance = 8;
    if !rest.is_empty() {
        distance = 1;
    }
    while distance < n {
        for pairs in values.chunks_exact_mut(2 * distance) {
            let (low, high) = pairs.split_at_mut(distance);
            for i in 0..distance {
                (low[i], high[i]) = (low[i] + high[i], low[i] - high[i]);
            }
        }
        distance *= 2;
    }
}

/// The distances 1, 2 and 4, whole vectors at a time.
#[inline(always)]
fn transform_8(x: [f32; 8]) -> [f32; 8] {
    let (mut a, mut b, mut c) = ([0.0; 8], [0.0; 8], [0.0; 8]);
    for i in 0..8 {
        a[i] = if i & 1 == 0 { x[i] + x[i ^ 1] } else { x[i ^ 1] - x[i] };
    }
    for i in 0..8 {
        b[i] = if i & 2 == 0 { a[i] + a[i ^ 2] } else { a[i ^ 2] - a[i] };
    }
    for i in 0..8 {
        c[i] = if i & 4 == 0 { b[i] + b[i ^ 4] } else { b[i ^ 4] - b[i] };
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    #[test]
    fn it_is_the_matrix_of_signs_and_its_own_inverse() {
        let mut random = fastrand::Rng::with_seed(1);
        for n in [1usize, 2, 4, 8, 16, 64, 128, 256, 512] {
            let x: Vec<f32> = (0..n).map(|_| random.f32() - 0.5).collect();
            let mut expected = x.clone();
            transform(Isa::Scalar, &mut expected);
            for (row, found) in expected.iter().enumerate() {
                // Entry (i, j) is -1 to the number of ones that i and j share.
                let sign =
                    |column: usize| if (row & column).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                let exact: f64 = x.iter().enumerate().map(|(j, &x)| sign(j) * f64::from(x)).sum();
                assert!((f64::from(*found) - exact / (n as f64).sqrt()).abs() < 1e-6, "{n} [{row}]");
            }
            for isa in Isa::available() {
                let mut found = x.clone();
                transform(isa, &mut found);
                assert!(found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{n} {isa:?}");
                transform(isa, &mut found);
                assert!(found.iter().zip(&x).all(|(a, b)| (a - b).abs() < 1e-6), "{n} {isa:?}");
            }
        }
    }
}

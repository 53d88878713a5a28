//! One matrix with feedback of errors, if that is better than without: what its outputs lose is compared, so that a matrix never
//! gets worse by being calibrated, whatever the text, the sums or the factorization.

use std::fmt;

use super::Method;
use super::feedback::{DAMPING, Feedback};
use super::hessian::Products;
use super::run::Rows;
use crate::backend::cpu::pool::Pool;
use crate::error::Result;
use crate::math::per_isa;
use crate::quant::Format;
use crate::simd::Isa;

/// Why a matrix is rounded without feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The model does not read it.
    NotRead,
    /// Its inputs are zero in the whole text.
    Zero,
    /// Its inputs, or the sums of their products, are no finite numbers.
    NotFinite,
    /// The sums have no Cholesky factor, even with a hundred times their mean on the diagonal.
    NoFactor,
    /// Its outputs would not lose less.
    NoGain,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fallback::NotRead => "the model does not read it",
            Fallback::Zero => "its inputs are zero",
            Fallback::NotFinite => "its inputs are no finite numbers, or too large",
            Fallback::NoFactor => "the products of its inputs have no Cholesky factor",
            Fallback::NoGain => "feedback would gain nothing",
        })
    }
}

/// Encodes matrices one after the other; those of one input share a factor.
#[derive(Debug)]
pub(super) struct Encoder<'a> {
    pool: &'a Pool,
    method: Method,
    /// The last factor, with what it is of.
    known: Option<(*const Products, &'static Format, Feedback)>,
}

impl<'a> Encoder<'a> {
    pub fn new(pool: &'a Pool, method: Method) -> Encoder<'a> {
        Encoder { pool, method, known: None }
    }

    /// The matrix whose `rows` are in `bytes`, as it is best for inputs with `products`.
    ///
    /// # Errors
    /// Those of [`Rows::encode`].
    pub fn encode(
        &mut self,
        rows: Rows,
        bytes: &[u8],
        products: Option<&Products>,
    ) -> Result<(Vec<u8>, Option<Fallback>)> {
        let pool = self.pool;
        let alone = rows.encode(pool, bytes)?;
        let Some(products) = products else { return Ok((alone, Some(Fallback::NotRead))) };
        let sum = products.trace();
        if !(sum > 0.0 && sum.is_finite()) {
            let zero = sum == 0.0 && products.skipped == 0;
            return Ok((alone, Some(if zero { Fallback::Zero } else { Fallback::NotFinite })));
        }
        let limit = loss(pool, &rows, bytes, &alone, products)?;
        let mut fallback = Fallback::NoFactor;
        for damping in DAMPING {
            let Some(feedback) = self.feedback(rows.to, products, damping)? else { continue };
            let weighted = Rows { feedback: Some(feedback), ..rows };
            let found = weighted.encode(pool, bytes)?;
            if loss(pool, &rows, bytes, &found, products)? < limit {
                return Ok((found, None));
            }
            fallback = Fallback::NoGain;
        }
        Ok((alone, Some(fallback)))
    }

    fn feedback(
        &mut self,
        to: &'static Format,
        products: &Products,
        damping: f64,
    ) -> Result<Option<&Feedback>> {
        let known = self.known.take().filter(|(of, format, feedback)| {
            std::ptr::eq(*of, products) && format.name == to.name && feedback.damping() == damping
        });
        if known.is_none() {
            let n = products.columns();
            let new = Feedback::damped(self.pool, self.method, damping, &products.values, n, to.block_len);
            let Some(new) = new else { return Ok(None) };
            self.known = Some((products, to, new.choosing(to)?));
        } else {
            self.known = known;
        }
        Ok(self.known.as_ref().map(|(_, _, feedback)| feedback))
    }
}

/// tr(E H E^T), E being the difference between the rows in `bytes` and what they became.
fn loss(pool: &Pool, rows: &Rows, bytes: &[u8], found: &[u8], products: &Products) -> Result<f64> {
    /// Rows that H is read for once.
    const ROWS: usize = 8;
    let isa = Isa::detect().unwrap_or(Isa::Scalar);
    let n = rows.columns;
    let [from, to] = [rows.from.bytes_for(n)?, rows.to.bytes_for(n)?];
    let [before, after] = [rows.from, rows.to].map(|format| format.reader(isa));
    let mut sums = vec![0.0; rows.count];
    pool.chunks_mut(&mut sums, ROWS, 1, |part, sums| {
        let (mut a, mut b) = (vec![0.0f32; sums.len() * n], vec![0.0f32; sums.len() * n]);
        let first = part * ROWS;
        before.call(&bytes[first * from..][..sums.len() * from], &mut a);
        after.call(&found[first * to..][..sums.len() * to], &mut b);
        let errors: Vec<f64> = a.iter().zip(&b).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect();
        weigh(isa, &errors, &products.values, sums);
    });
    Ok(sums.iter().sum())
}

per_isa! {
    /// Of each row e of `errors` e H e^T, of which the lower half is `hessian`.
    fn weigh(errors: &[f64], hessian: &[f64], out: &mut [f64]) {
        let n = errors.len() / out.len();
        for (i, products) in hessian.chunks_exact(n).enumerate() {
            for (errors, out) in errors.chunks_exact(n).zip(out.iter_mut()) {
                let mut lanes = [0.0; 8];
                let (errors8, rest) = errors[..i].as_chunks::<8>();
                let (products8, products_rest) = products[..i].as_chunks::<8>();
                for (errors, products) in errors8.iter().zip(products8) {
                    for lane in 0..8 {
                        lanes[lane] += errors[lane] * products[lane];
                    }
                }
                let rest: f64 = rest.iter().zip(products_rest).map(|(a, b)| a * b).sum();
                let sum: f64 = lanes.iter().sum();
                *out += errors[i] * (2.0 * (sum + rest) + errors[i] * products[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::{Activations, Cpu};
    use crate::quant::f32;

    const COLUMNS: usize = 256;

    fn noise(seed: u64, count: usize) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| random.f32() - 0.5).collect()
    }

    /// Inputs of which `inputs` are rows.
    fn products(inputs: &[f32]) -> Products {
        let cpu = Cpu::new(Some(1), None, Activations::Float).unwrap();
        let mut products = Products::new(COLUMNS);
        products.add(&cpu, inputs).unwrap();
        products
    }

    /// What becomes of 20 rows of noise as q4_0, and of the same without feedback.
    fn encoded(method: Method, products: Option<&Products>) -> (Vec<u8>, Option<Fallback>, Vec<u8>) {
        let pool = Pool::new(2).unwrap();
        let to = Format::by_name("q4_0").unwrap();
        let bytes: Vec<u8> = noise(1, 20 * COLUMNS).iter().flat_map(|value| value.to_le_bytes()).collect();
        let from = &f32::FORMAT;
        let rows =
            Rows { from, to, columns: COLUMNS, count: 20, importance: None, order: None, feedback: None };
        let (found, fallback) = Encoder::new(&pool, method).encode(rows, &bytes, products).unwrap();
        (found, fallback, rows.encode(&pool, &bytes).unwrap())
    }

    #[test]
    fn what_cannot_be_calibrated_is_rounded_and_says_why() {
        let one = |value: f32| products(&[vec![value; COLUMNS], vec![0.0; COLUMNS]].concat());
        // Each input has one column that is not zero: columns have nothing to do with each other.
        let apart: Vec<f32> =
            (0..COLUMNS * COLUMNS).map(|at| if at % (COLUMNS + 1) == 0 { 1.0 } else { 0.0 }).collect();
        let mut negative = products(&apart);
        negative.values.iter_mut().for_each(|value| *value = -*value);
        let cases = [
            (None, Fallback::NotRead),
            (Some(one(0.0)), Fallback::Zero),
            (Some(products(&[f32::NAN; COLUMNS])), Fallback::NotFinite),
            (Some(one(1e30)), Fallback::NotFinite),
            (Some(negative), Fallback::NotFinite),
        ];
        for (products, expected) in cases {
            for method in [Method::Gptq, Method::Ldlq] {
                let (found, fallback, alone) = encoded(method, products.as_ref());
                assert_eq!(fallback, Some(expected), "{method:?}");
                assert!(found == alone, "{expected:?}");
            }
        }
        let (found, fallback, alone) = encoded(Method::Ldlq, Some(&products(&apart)));
        assert_eq!(fallback, Some(Fallback::NoGain));
        assert!(found == alone);
    }

    /// Three tokens, and more than enough: better than without, by what the outputs lose.
    #[test]
    fn outputs_lose_less_than_without() {
        for inputs in [3, 40, 1000] {
            // Neighbours go together.
            let mut inputs = noise(2, inputs * COLUMNS);
            inputs.chunks_mut(COLUMNS).for_each(|row| (1..COLUMNS).for_each(|i| row[i] += 0.9 * row[i - 1]));
            let products = products(&inputs);
            for method in [Method::Gptq, Method::Ldlq] {
                let (found, fallback, alone) = encoded(method, Some(&products));
                assert_eq!(fallback, None);
                assert!(found != alone);
            }
        }
    }

    /// One direction that has -5 times the mean: ten times it has to be added.
    #[test]
    fn damping_grows_until_there_is_a_factor() {
        let n = 64;
        let mut hessian: Vec<f64> = (0..n * n).map(|at| if at % (n + 1) == 0 { 1.0 } else { 0.0 }).collect();
        hessian[7 * (n + 1)] = -5.0;
        let pool = Pool::new(1).unwrap();
        for method in [Method::Gptq, Method::Ldlq] {
            let found = |damping: f64| Feedback::damped(&pool, method, damping, &hessian, n, 32).is_some();
            assert_eq!(DAMPING.map(found), [false, false, false, true, true]);
        }
        let feedback = Feedback::ldlq(&pool, &hessian, n, 32).unwrap();
        assert_eq!(feedback.damping(), 10.0);
    }
}

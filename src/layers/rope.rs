//! Rotary position embedding: pair `i` of a head turns by position · frequency `i`.
//!
//! Frequencies are base^(-2i/dim), then scaled: `linear` divides all by a factor; `llama3` only the slow ones
//! (Llama 3.1); `yarn` interpolates the slow ones, keeps the fast ones and sharpens attention (Peng et al. 2023).
//! Angles and their sines are computed in f64 by `libm`, so that every machine agrees.

use std::f64::consts::TAU;

use crate::backend::{Backend, Rotation, Span};
use crate::error::Result;

/// How frequencies are stretched for contexts beyond the trained one.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Scaling {
    /// Not at all.
    #[default]
    None,
    /// All frequencies divided by `factor`.
    Linear {
        /// Context is stretched by this.
        factor: f64,
    },
    /// Wavelengths above `original / low` divided by `factor`, below `original / high` untouched, between them blended.
    Llama3 {
        /// Context is stretched by this.
        factor: f64,
        /// `low_freq_factor`.
        low: f64,
        /// `high_freq_factor`.
        high: f64,
        /// Context of the original training, in tokens.
        original: f64,
    },
    /// Pairs that turn more than `beta_fast` times in the original context untouched, fewer than `beta_slow`
    /// divided by `factor`, between them blended linearly by pair.
    Yarn {
        /// Context is stretched by this.
        factor: f64,
        /// Context of the original training, in tokens.
        original: f64,
        /// Turns above which a pair is kept.
        beta_fast: f64,
        /// Turns below which a pair is interpolated.
        beta_slow: f64,
        /// Cosines and sines are multiplied by this.
        attention_factor: f64,
    },
    /// Frequencies divided by these, one a pair: a file's `rope_freqs.weight`.
    Factors(Vec<f32>),
}

impl Scaling {
    /// Yarn's default attention factor, 0.1 ln(factor) + 1.
    pub fn yarn_attention_factor(factor: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * libm::log(factor) + 1.0 }
    }
}

/// The frequencies of one kind of layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians a token, one a pair.
    pub frequencies: Vec<f64>,
    /// Cosines and sines are multiplied by this.
    pub amplitude: f64,
    /// Whether a pair is elements `2i, 2i + 1` rather than `i, i + pairs`.
    pub interleaved: bool,
}

impl Rope {
    /// `dim`: rotated elements of a head, even.
    pub fn new(dim: usize, base: f64, interleaved: bool, scaling: &Scaling) -> Self {
        let plain = |pair: usize| libm::pow(base, -2.0 * pair as f64 / dim as f64);
        let frequencies = (0..dim / 2).map(|pair| scale(plain(pair), pair, dim, base, scaling)).collect();
        let amplitude = match scaling {
            Scaling::Yarn { attention_factor, .. } => *attention_factor,
            _ => 1.0,
        };
        Rope { frequencies, amplitude, interleaved }
    }

    /// Cosines and sines for the rows of `at`.
    pub fn rotation(&self, at: Span, ops: &dyn Backend) -> Result<Rotation> {
        let pairs = self.frequencies.len();
        let mut turns = ops.blank(at.len, 2 * pairs);
        for (position, row) in (at.start..).zip(turns.values_mut().chunks_exact_mut(2 * pairs)) {
            let (cos, sin) = row.split_at_mut(pairs);
            for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
                let (s, c) = libm::sincos(position as f64 * frequency);
                *cos = (c * self.amplitude) as f32;
                *sin = (s * self.amplitude) as f32;
            }
        }
        Ok(Rotation { turns: ops.hold(turns)?, interleaved: self.interleaved })
    }
}

fn scale(frequency: f64, pair: usize, dim: usize, base: f64, scaling: &Scaling) -> f64 {
    match scaling {
        Scaling::None => frequency,
        Scaling::Linear { factor } => frequency / factor,
        Scaling::Factors(factors) => frequency / f64::from(factors[pair]),
        &Scaling::Llama3 { factor, low, high, original } => {
            let wavelength = TAU / frequency;
            if wavelength > original / low {
                frequency / factor
            } else if wavelength < original / high {
                frequency
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
        &Scaling::Yarn { factor, original, beta_fast, beta_slow, .. } => {
            // The (fractional) pair that makes `turns` turns within the original context.
            let pair_of =
                |turns: f64| dim as f64 * libm::log(original / (turns * TAU)) / (2.0 * libm::log(base));
            let low = libm::floor(pair_of(beta_fast)).max(0.0);
            let high = libm::ceil(pair_of(beta_slow)).min(dim as f64 - 1.0);
            let ramp = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            frequency / factor * ramp + frequency * (1.0 - ramp)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_scales_the_slow_pairs() {
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
        let plain = Rope::new(128, 500_000.0, false, &Scaling::None).frequencies;
        let scaled = Rope::new(128, 500_000.0, false, &scaling).frequencies;
        for (pair, expected) in [
            (0, 1.0),
            (28, 0.003_211_445_99),
            (29, 0.002_166_570_76),
            (30, 0.001_371_893_57),
            (33, 0.000_312_693_75),
            (35, 9.556_212_35e-5),
            (40, 3.428_102_2e-5),
            (63, 3.068_925_99e-7),
        ] {
            let error = (scaled[pair] - expected) / expected;
            assert!(error.abs() < 1e-6, "pair {pair}: {} instead of {expected}", scaled[pair]);
        }
        let first_changed = (0..64).find(|&pair| plain[pair] != scaled[pair]);
        assert_eq!(first_changed, Some(29));
        assert!((35..64).all(|pair| (scaled[pair] * 8.0 - plain[pair]).abs() < 1e-12));
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_interpolates_slow_ones() {
        let scaling = Scaling::Yarn {
            factor: 4.0,
            original: 32768.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: Scaling::yarn_attention_factor(4.0),
        };
        let plain = Rope::new(128, 1e6, false, &Scaling::None).frequencies;
        let yarn = Rope::new(128, 1e6, false, &scaling);
        assert_eq!(yarn.frequencies[0], plain[0]);
        assert!((yarn.frequencies[63] * 4.0 - plain[63]).abs() < 1e-12);
        assert!((yarn.amplitude - 1.138_629_436).abs() < 1e-9);
    }
}

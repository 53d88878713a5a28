//! Locally typical sampling: tokens whose surprise is nearest the expected one. Meister, Pimentel, Wiher, Cotterell
//! 2022, "Locally Typical Sampling".

use super::candidates::Candidates;

/// With H = -sum(q * ln q), keeps the shortest prefix, ordered by |-ln q - H|, with sum(q) >= `p`, no fewer than
/// `min_keep`; 1 is off. Equal distances rank by id.
pub(super) fn filter(candidates: &mut Candidates, p: f32, min_keep: usize) {
    if p >= 1.0 {
        return;
    }
    // ln 0 is -infinity: such a token has infinite distance, and 0 * ln 0 counts as 0.
    let likely = candidates.probabilities().iter().filter(|q| **q > 0.0);
    let entropy = -likely.map(|&q| q * libm::log(q)).sum::<f64>();
    candidates.keep_least(|q| (-libm::log(q) - entropy).abs(), f64::from(p), min_keep);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::check;

    #[test]
    fn keeps_the_typical() {
        // q = 0.6, 0.2, 0.1, 0.1: H = 1.0889; distances 0.578, 0.521, 1.214, 1.214.
        let weights: &[f64] = &[6.0, 2.0, 1.0, 1.0];
        check(
            &[
                ((1.0, 1), weights, &[0, 1, 2, 3]),
                ((0.1, 1), weights, &[1]),
                ((0.3, 1), weights, &[0, 1]),
                ((0.85, 1), weights, &[0, 1, 2]),
                ((0.95, 1), weights, &[0, 1, 2, 3]),
                ((0.1, 3), weights, &[0, 1, 2]),
                ((0.1, 9), weights, &[0, 1, 2, 3]),
            ],
            |candidates, &(p, min_keep)| filter(candidates, p, min_keep),
        );
    }
}

//! Min-p: tokens at least p times as likely as the best. Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling
//! for Creative and Coherent LLM Outputs".

use super::candidates::Candidates;

/// Keeps logit >= max + ln(`p`), which is probability >= p * max(probability), no fewer than `min_keep`; 0 is off.
pub(super) fn filter(candidates: &mut Candidates, p: f32, min_keep: usize) {
    if p > 0.0 {
        candidates.keep_from(candidates.max() + libm::log(f64::from(p)), min_keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::check;

    #[test]
    fn keeps_what_is_close_to_the_best() {
        let weights: &[f64] = &[1.0, 10.0, 2.0, 5.0];
        check(
            &[
                ((0.0, 1), weights, &[0, 1, 2, 3]),
                ((0.09, 1), weights, &[0, 1, 2, 3]),
                ((0.11, 1), weights, &[1, 2, 3]),
                ((0.49, 1), weights, &[1, 3]),
                ((0.51, 1), weights, &[1]),
                ((1.0, 1), weights, &[1]),
                ((1.0, 1), &[7.0, 7.0, 1.0], &[0, 1]),
                ((0.51, 3), weights, &[1, 2, 3]),
            ],
            |candidates, &(p, min_keep)| filter(candidates, p, min_keep),
        );
    }
}

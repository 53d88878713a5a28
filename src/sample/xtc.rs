//! XTC, "exclude top choices": now and then removes every token that is likely enough except the least likely of
//! them. p-e-w 2024, text-generation-webui pull request 6335.

use fastrand::Rng;

use super::candidates::Candidates;
use super::uniform;

/// With chance `probability`: of the n tokens with probability >= `threshold`, drops the n - 1 best, if at least
/// `min_keep` stay. Probability 0 is off, and so is a threshold above 1/2, which two tokens cannot both reach.
pub(super) fn filter(
    candidates: &mut Candidates,
    probability: f32,
    threshold: f32,
    min_keep: usize,
    rng: &mut Rng,
) {
    if probability <= 0.0 || threshold > 0.5 || uniform(rng) >= f64::from(probability) {
        return;
    }
    candidates.sort();
    let likely = candidates.probabilities().iter().take_while(|q| **q >= f64::from(threshold)).count();
    let dropped = likely.saturating_sub(1);
    if dropped > 0 && candidates.len() - dropped >= min_keep {
        candidates.drop_best(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::check;

    #[test]
    fn drops_the_top_choices() {
        // Probabilities 0.2, 0.5, 0.25, 0.05.
        let weights: &[f64] = &[4.0, 10.0, 5.0, 1.0];
        check(
            &[
                // probability, threshold, min_keep
                ((0.0, 0.1, 1), weights, &[0, 1, 2, 3]),
                ((1.0, 0.1, 1), weights, &[0, 3]),
                ((1.0, 0.22, 1), weights, &[0, 2, 3]),
                ((1.0, 0.3, 1), weights, &[0, 1, 2, 3]),
                ((1.0, 0.51, 1), weights, &[0, 1, 2, 3]),
                ((1.0, 0.01, 1), weights, &[3]),
                ((1.0, 0.1, 3), weights, &[0, 1, 2, 3]),
            ],
            |candidates, &(probability, threshold, min_keep)| {
                filter(candidates, probability, threshold, min_keep, &mut Rng::with_seed(1));
            },
        );
    }

    #[test]
    fn happens_as_often_as_asked() {
        let mut rng = Rng::with_seed(5);
        let hits = (0..10_000)
            .filter(|_| {
                let mut candidates = Candidates::from_weights(&[1.0, 1.0]);
                filter(&mut candidates, 0.3, 0.1, 1, &mut rng);
                candidates.len() == 1
            })
            .count();
        // Four standard deviations of a binomial with n = 10,000 and p = 0.3.
        assert!(hits.abs_diff(3000) < 184, "{hits} of 10,000");
    }
}

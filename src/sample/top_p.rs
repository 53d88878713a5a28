//! Top-p (nucleus): the fewest best tokens whose probabilities add up to p. Holtzman et al. 2019,
//! "The Curious Case of Neural Text Degeneration".

use super::candidates::Candidates;

/// Keeps the shortest ranked prefix with sum(probability) >= `p`, no fewer than `min_keep`; 1 is off.
pub(super) fn filter(candidates: &mut Candidates, p: f32, min_keep: usize) {
    if p >= 1.0 {
        return;
    }
    candidates.sort();
    let mut cumulative = 0.0;
    let reached = candidates.probabilities().iter().position(|probability| {
        cumulative += probability;
        cumulative >= f64::from(p)
    });
    let count = reached.map_or(candidates.len(), |position| position + 1);
    candidates.truncate(count.max(min_keep));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::check;

    #[test]
    fn keeps_the_nucleus() {
        // Probabilities 0.1, 0.4, 0.2, 0.3.
        let weights: &[f64] = &[1.0, 4.0, 2.0, 3.0];
        check(
            &[
                ((1.0, 1), weights, &[0, 1, 2, 3]),
                ((0.0, 1), weights, &[1]),
                ((0.39, 1), weights, &[1]),
                ((0.41, 1), weights, &[1, 3]),
                ((0.69, 1), weights, &[1, 3]),
                ((0.71, 1), weights, &[1, 2, 3]),
                ((0.95, 1), weights, &[0, 1, 2, 3]),
                ((0.39, 2), weights, &[1, 3]),
                ((0.6, 1), &[1.0, 1.0, 1.0], &[0, 1]),
            ],
            |candidates, &(p, min_keep)| filter(candidates, p, min_keep),
        );
    }
}

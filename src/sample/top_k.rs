//! Top-k: the k most likely tokens. Fan, Lewis, Dauphin 2018, "Hierarchical Neural Story Generation".

use super::candidates::Candidates;

/// Keeps the `k` best, no fewer than `min_keep`; 0 is off.
pub(super) fn filter(candidates: &mut Candidates, k: usize, min_keep: usize) {
    if k > 0 {
        candidates.truncate(k.max(min_keep));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::check;

    #[test]
    fn keeps_the_k_best() {
        check(
            &[
                // k, min_keep, weights, kept
                ((0, 1), &[4.0, 1.0, 2.0], &[0, 1, 2]),
                ((1, 1), &[1.0, 4.0, 2.0], &[1]),
                ((2, 1), &[1.0, 4.0, 2.0], &[1, 2]),
                ((2, 1), &[1.0, 1.0, 1.0], &[0, 1]),
                ((1, 3), &[1.0, 4.0, 2.0, 3.0], &[1, 2, 3]),
                ((9, 1), &[1.0, 4.0, 2.0], &[0, 1, 2]),
            ],
            |candidates, &(k, min_keep)| filter(candidates, k, min_keep),
        );
    }
}

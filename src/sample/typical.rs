//! Locally typical sampling: tokens whose surprise is nearest the expected one. Meister, Pimentel, Wiher, Cotterell
//! 2022, "Locally Typical Sampling".

use super::candidates::Candidates;

/// With H = -sum(q * ln q), keeps the shortest prefix, ordered by |-ln q - H|, with sum(q) >= `p`, no fewer than
/// `min_keep`; 1 is off. Equal distances rank by id.
pub(super) fn filter(candidates: &mut Candidates, p: f32, min_keep: usize) {
    if p >= 1.0 {
        return;
    }
    let probabilities = candidates.probabilities().to_vec();
    // ln 0 is -infinity: such a token has infinite distance, and 0 * ln 0 counts as 0.
    let logs: Vec<f64> = probabilities.iter().map(|&q| libm::log(q)).collect();
    let entropy: f64 =
        -probabilities.iter().zip(&logs).filter(|(q, _)| **q > 0.0).map(|(q, ln)| q * ln).sum::<f64>();
    let ids: Vec<u32> = candidates.list().iter().map(|candidate| candidate.id()).collect();
    let distance = |position: usize| (-logs[position] - entropy).abs();
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_unstable_by(|&a, &b| distance(a).total_cmp(&distance(b)).then(ids[a].cmp(&ids[b])));
    let mut cumulative = 0.0;
    let reached = order.iter().position(|&position| {
        cumulative += probabilities[position];
        cumulative >= f64::from(p)
    });
    let count = reached.map_or(order.len(), |position| position + 1).max(min_keep).min(order.len());
    candidates.select(&order[..count]);
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

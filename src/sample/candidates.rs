//! The tokens still in the running, with their logits.

use crate::error::{Error, Result};

/// A token that may be drawn, as one integer that sorts by rank: descending logit, equal logits by ascending id, so
/// that the order is the same everywhere. High half: the logit's bits, mapped so that a greater logit is a smaller
/// integer. Low half: the id. Comparing integers makes sorting a vocabulary several times faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate(u64);

impl Candidate {
    /// `logit` is finite.
    fn new(id: u32, logit: f32) -> Self {
        // Adding zero turns -0 into +0, which is its equal.
        let bits = (logit + 0.0).to_bits();
        // IEEE 754 floats of one sign are ordered like their bits: upward if positive, downward if negative.
        let falling = if bits >> 31 == 0 { !bits & SIGN_OFF } else { bits };
        Candidate(u64::from(falling) << 32 | u64::from(id))
    }

    pub fn id(self) -> u32 {
        self.0 as u32
    }

    /// Finite.
    pub fn logit(self) -> f32 {
        let falling = (self.0 >> 32) as u32;
        f32::from_bits(if falling >> 31 == 0 { !falling & SIGN_OFF } else { falling })
    }
}

/// All bits of a float but its sign.
const SIGN_OFF: u32 = 0x7FFF_FFFF;

/// Never empty between a successful [`Candidates::fill`] and the draw: filters go through methods that keep one.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    /// Whether `list` is in rank order.
    sorted: bool,
    /// Scratch of [`Candidates::probabilities`], as long as `list`.
    weights: Vec<f64>,
    /// Scratch of [`Candidates::keep_least`]: distance, candidate, probability.
    distances: Vec<(f64, Candidate, f64)>,
}

impl Candidates {
    /// Starts over with every token whose logit is finite; -infinity means "never".
    pub fn fill(&mut self, logits: &[f32]) -> Result<()> {
        // A NaN is not less than anything. One pass that only looks is cheap: it is vectorized.
        if !logits.iter().all(|&logit| logit < f32::INFINITY) {
            return Err(no_number((0..).zip(logits.iter().copied())));
        }
        self.start((0..).zip(logits.iter().copied()))
    }

    /// As [`Candidates::fill`], with tokens and logits.
    pub fn fill_best(&mut self, best: &[(u32, f32)]) -> Result<()> {
        if !best.iter().all(|&(_, logit)| logit < f32::INFINITY) {
            return Err(no_number(best.iter().copied()));
        }
        self.start(best.iter().copied())
    }

    fn start(&mut self, logits: impl Iterator<Item = (u32, f32)>) -> Result<()> {
        self.list.clear();
        self.sorted = false;
        let possible = logits.filter(|(_, logit)| logit.is_finite());
        self.list.extend(possible.map(|(id, logit)| Candidate::new(id, logit)));
        if self.list.is_empty() {
            return Err(Error::Numeric("no token is possible: every logit is -infinity".into()));
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    #[cfg(test)]
    pub fn list(&self) -> &[Candidate] {
        &self.list
    }

    /// Puts the list into rank order.
    pub fn sort(&mut self) {
        if !self.sorted {
            self.list.sort_unstable();
            self.sorted = true;
        }
    }

    /// Keeps the `count` best, at least one, in rank order. Sorts only those: a vocabulary has 100,000 and more.
    pub fn truncate(&mut self, count: usize) {
        let count = count.max(1);
        if !self.sorted && count < self.list.len() {
            self.list.select_nth_unstable(count);
            self.list.truncate(count);
        }
        self.sort();
        self.list.truncate(count);
    }

    /// Drops the `count` best, of more than `count`, of a list in rank order.
    pub fn drop_best(&mut self, count: usize) {
        self.sort();
        self.list.drain(..count.min(self.list.len() - 1));
    }

    /// Keeps the fewest candidates whose probabilities add up to `p`, those with the least `distance` (of their
    /// probability) first and equal ones by id, no fewer than `min_keep`.
    pub fn keep_least(&mut self, distance: impl Fn(f64) -> f64, p: f64, min_keep: usize) {
        self.probabilities();
        let candidates = self.list.iter().zip(&self.weights);
        self.distances.clear();
        self.distances.extend(candidates.map(|(&candidate, &q)| (distance(q), candidate, q)));
        self.distances.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.id().cmp(&b.1.id())));
        let mut cumulative = 0.0;
        let reached = self.distances.iter().position(|(_, _, q)| {
            cumulative += q;
            cumulative >= p
        });
        let count = reached.map_or(self.list.len(), |position| position + 1).max(min_keep);
        self.list.clear();
        self.list.extend(self.distances.iter().take(count).map(|&(_, candidate, _)| candidate));
        self.sorted = false;
    }

    /// Keeps those whose logit is at least `limit`, but no fewer than the `min_keep` best.
    pub fn keep_from(&mut self, limit: f64, min_keep: usize) {
        let kept = self.list.iter().filter(|candidate| f64::from(candidate.logit()) >= limit).count();
        if kept < min_keep.max(1) {
            self.truncate(min_keep);
        } else {
            self.list.retain(|candidate| f64::from(candidate.logit()) >= limit);
        }
    }

    /// The highest logit.
    pub fn max(&self) -> f64 {
        f64::from(self.list.iter().min().expect("candidates are never empty").logit())
    }

    /// The token with the highest logit, of several the lowest id.
    pub fn best(&self) -> u32 {
        self.list.iter().min().expect("candidates are never empty").id()
    }

    /// softmax(logits) in list order, at temperature 1: the filters judge what the model said.
    pub fn probabilities(&mut self) -> &[f64] {
        let sum = self.weigh(1.0);
        self.weights.iter_mut().for_each(|weight| *weight /= sum);
        &self.weights
    }

    /// The token at `point` (0..1) of the cumulative softmax(logits / temperature). Temperature: Ackley, Hinton,
    /// Sejnowski 1985, "A learning algorithm for Boltzmann machines".
    pub fn draw(&mut self, temperature: f32, point: f64) -> u32 {
        let target = point * self.weigh(f64::from(temperature));
        let mut cumulative = 0.0;
        for (candidate, weight) in self.list.iter().zip(&self.weights) {
            cumulative += weight;
            if cumulative > target {
                return candidate.id();
            }
        }
        // The product above may round up to the whole sum.
        self.best()
    }

    /// Fills `weights` with exp((logit - max) / temperature), which cannot overflow, and gives their sum.
    fn weigh(&mut self, temperature: f64) -> f64 {
        let max = self.max();
        self.weights.clear();
        self.weights.extend(
            self.list.iter().map(|candidate| libm::exp((f64::from(candidate.logit()) - max) / temperature)),
        );
        self.weights.iter().sum()
    }
}

/// An error that names the first token whose logit can't be sampled.
fn no_number(mut logits: impl Iterator<Item = (u32, f32)>) -> Error {
    let wrong = logits.find(|&(_, logit)| logit.is_nan() || logit == f32::INFINITY);
    let (id, logit) = wrong.unwrap_or_default();
    Error::Numeric(format!("the logit of token {id} is {logit}, not a number to sample"))
}

#[cfg(test)]
impl Candidates {
    /// Candidates with the probabilities `weights` / sum, ids in order.
    pub fn from_weights(weights: &[f64]) -> Candidates {
        let logits: Vec<f32> = weights.iter().map(|weight| weight.ln() as f32).collect();
        let mut candidates = Candidates::default();
        candidates.fill(&logits).unwrap();
        candidates
    }

    /// The remaining ids, ascending.
    pub fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.list.iter().map(|candidate| candidate.id()).collect();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_cumulative_softmax() {
        // Weights 1, 2, 4, 1 at temperature 1; squared (1, 4, 16, 1) at temperature 1/2.
        let cases: [(f32, f64, u32); 9] = [
            (1.0, 0.0, 0),
            (1.0, 0.12, 0),
            (1.0, 0.13, 1),
            (1.0, 0.37, 1),
            (1.0, 0.38, 2),
            (1.0, 0.88, 3),
            (0.5, 0.95, 2), // 21/22 = 0.9545...
            (0.5, 0.96, 3),
            (1e-30, 0.999_999, 2),
        ];
        let failures: Vec<_> = cases
            .iter()
            .filter_map(|&(temperature, point, expected)| {
                let id = Candidates::from_weights(&[1.0, 2.0, 4.0, 1.0]).draw(temperature, point);
                (id != expected)
                    .then(|| format!("temperature {temperature}, point {point}: {id}, not {expected}"))
            })
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }

    #[test]
    fn candidates_sort_by_logit_and_keep_it() {
        let falling = [f32::MAX, 1.5, 1.0, f32::MIN_POSITIVE, 1e-45, 0.0, -1e-45, -1.0, -1.5, f32::MIN];
        for (position, &logit) in falling.iter().enumerate() {
            let candidate = Candidate::new(7, logit);
            assert_eq!((candidate.id(), candidate.logit()), (7, logit));
            assert!(
                falling[..position].iter().all(|&before| Candidate::new(9, before) < candidate),
                "{logit}"
            );
        }
        assert_eq!(Candidate::new(7, -0.0), Candidate::new(7, 0.0));
    }

    #[test]
    fn equal_logits_rank_by_id() {
        let mut candidates = Candidates::from_weights(&[1.0, 3.0, 2.0, 3.0, 3.0]);
        assert_eq!(candidates.best(), 1);
        candidates.truncate(2);
        assert_eq!(candidates.list.iter().map(|candidate| candidate.id()).collect::<Vec<_>>(), [1, 3]);
        // Positive and negative zero are equal too.
        candidates.fill(&[-0.0, 0.0]).unwrap();
        assert_eq!(candidates.best(), 0);
    }
}

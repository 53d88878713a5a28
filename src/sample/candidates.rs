//! The tokens still in the running, with their logits.

use std::cmp::Ordering;

use crate::error::{Error, Result};

/// A token that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub id: u32,
    /// Finite.
    pub logit: f32,
}

/// Descending logit; equal logits by ascending id, so that the order is the same everywhere.
fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).expect("fill() admits finite logits only").then(a.id.cmp(&b.id))
}

/// Never empty between a successful [`Candidates::fill`] and the draw: filters go through methods that keep one.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    /// Whether `list` is in rank order.
    sorted: bool,
    /// Scratch of [`Candidates::probabilities`], as long as `list`.
    weights: Vec<f64>,
}

impl Candidates {
    /// Starts over with every token whose logit is finite; -infinity means "never".
    pub fn fill(&mut self, logits: &[f32]) -> Result<()> {
        self.list.clear();
        self.sorted = false;
        for (id, &logit) in logits.iter().enumerate() {
            if logit.is_finite() {
                self.list.push(Candidate { id: id as u32, logit });
            } else if logit != f32::NEG_INFINITY {
                return Err(Error::Numeric(format!(
                    "the logit of token {id} is {logit}, not a number to sample"
                )));
            }
        }
        if self.list.is_empty() {
            return Err(Error::Numeric("no token is possible: every logit is -infinity".into()));
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn list(&self) -> &[Candidate] {
        &self.list
    }

    /// Puts the list into rank order.
    pub fn sort(&mut self) {
        if !self.sorted {
            self.list.sort_unstable_by(by_rank);
            self.sorted = true;
        }
    }

    /// Keeps the `count` best, at least one, in rank order. Sorts only those: a vocabulary has 100,000 and more.
    pub fn truncate(&mut self, count: usize) {
        let count = count.max(1);
        if !self.sorted && count < self.list.len() {
            self.list.select_nth_unstable_by(count, by_rank);
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

    /// Keeps the candidates at `positions` of the list, of which there is at least one.
    pub fn select(&mut self, positions: &[usize]) {
        self.weights.clear();
        let kept = positions.iter().map(|&position| self.list[position]).collect();
        self.list = kept;
        self.sorted = false;
    }

    /// Keeps those whose logit is at least `limit`, but no fewer than the `min_keep` best.
    pub fn keep_from(&mut self, limit: f64, min_keep: usize) {
        let kept = self.list.iter().filter(|candidate| f64::from(candidate.logit) >= limit).count();
        if kept < min_keep.max(1) {
            self.truncate(min_keep);
        } else {
            self.list.retain(|candidate| f64::from(candidate.logit) >= limit);
        }
    }

    /// The highest logit.
    pub fn max(&self) -> f64 {
        self.list.iter().fold(f64::NEG_INFINITY, |max, candidate| max.max(f64::from(candidate.logit)))
    }

    /// The token with the highest logit, of several the lowest id.
    pub fn best(&self) -> u32 {
        self.list.iter().min_by(|a, b| by_rank(a, b)).expect("candidates are never empty").id
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
                return candidate.id;
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
            self.list.iter().map(|candidate| libm::exp((f64::from(candidate.logit) - max) / temperature)),
        );
        self.weights.iter().sum()
    }
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
        let mut ids: Vec<u32> = self.list.iter().map(|candidate| candidate.id).collect();
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
    fn equal_logits_rank_by_id() {
        let mut candidates = Candidates::from_weights(&[1.0, 3.0, 2.0, 3.0, 3.0]);
        assert_eq!(candidates.best(), 1);
        candidates.truncate(2);
        assert_eq!(candidates.list().iter().map(|candidate| candidate.id).collect::<Vec<_>>(), [1, 3]);
        // Positive and negative zero are equal too.
        candidates.fill(&[-0.0, 0.0]).unwrap();
        assert_eq!(candidates.best(), 0);
    }
}

//! SentencePiece's unigram model: of all ways to cut a word into tokens, the one with the greatest sum of scores. Found
//! from left to right by keeping the best way to each position.

use super::fallback::Fallback;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};

/// The model.
#[derive(Debug)]
pub(super) struct Unigram {
    /// By id.
    scores: Vec<f32>,
    /// What an unknown character costs.
    unknown_score: f64,
    /// The length of the longest token, in bytes.
    longest: usize,
    fallback: Fallback,
}

/// How much worse than the worst token an unknown character is. Source: `unigram_model.cc`, kUnkPenalty.
const UNKNOWN_PENALTY: f64 = 10.0;

/// The best way to a position in the word.
#[derive(Clone, Copy, Debug)]
struct Way {
    score: f64,
    /// Where its last token begins.
    start: usize,
    /// The last token; none for a character without one.
    id: Option<u32>,
}

impl Unigram {
    /// A model with `scores` by id.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if a score is not finite.
    pub fn new(vocabulary: &Vocabulary, scores: Vec<f32>, fallback: Fallback) -> Result<Unigram> {
        if let Some(id) = scores.iter().position(|score| !score.is_finite()) {
            return Err(Error::Tokenizer(format!("the score of token {id} is not finite")));
        }
        let worst = scores.iter().copied().fold(f32::INFINITY, f32::min);
        let text_tokens = vocabulary.iter().filter(|(_, text, _)| vocabulary.text_id(text).is_some());
        let longest = text_tokens.map(|(_, text, _)| text.len()).max().unwrap_or(0);
        Ok(Unigram { scores, unknown_score: f64::from(worst) - UNKNOWN_PENALTY, longest, fallback })
    }

    /// Appends the tokens of `word` to `ids`.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if a character has no token.
    pub fn encode(&self, vocabulary: &Vocabulary, word: &str, ids: &mut Vec<u32>) -> Result<()> {
        // Positions inside a character stay without a way.
        let mut ways: Vec<Option<Way>> = vec![None; word.len() + 1];
        ways[0] = Some(Way { score: 0.0, start: 0, id: None });
        for (start, first) in word.char_indices() {
            let Some(Way { score, .. }) = ways[start] else { continue };
            let mut extend = |end: usize, id: Option<u32>, cost: f64| {
                let score = score + cost;
                if ways[end].is_none_or(|way| score > way.score) {
                    ways[end] = Some(Way { score, start, id });
                }
            };
            let after = start + first.len_utf8();
            let mut known = false;
            for end in
                (after..=word.len().min(start + self.longest)).filter(|&end| word.is_char_boundary(end))
            {
                let Some(id) = vocabulary.text_id(&word[start..end]) else { continue };
                let cost = self.scores.get(id as usize).map_or(self.unknown_score, |&score| f64::from(score));
                extend(end, Some(id), cost);
                known |= end == after;
            }
            if !known {
                extend(after, None, self.unknown_score);
            }
        }
        self.collect(vocabulary, word, &ways, ids)
    }

    /// Follows the ways back from the end.
    fn collect(
        &self,
        vocabulary: &Vocabulary,
        word: &str,
        ways: &[Option<Way>],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut pieces = Vec::new();
        let mut end = word.len();
        while end > 0 {
            let way = ways[end].expect("every character extends the way before it by itself at least");
            pieces.push((way.start..end, way.id));
            end = way.start;
        }
        let mut unknown = false;
        for (range, id) in pieces.into_iter().rev() {
            match id {
                Some(id) => {
                    ids.push(id);
                    unknown = false;
                }
                None => self.fallback.encode(vocabulary, &word[range], &mut unknown, ids)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::Kind;
    use super::*;

    /// The vocabulary of the reference's own documentation.
    const TOKENS: [(&str, f32); 9] = [
        ("<unk>", 0.0),
        ("a", 0.0),
        ("b", 0.0),
        ("c", 0.0),
        ("d", 0.0),
        ("cd", 1.0),
        ("ab", 2.0),
        ("abc", 5.0),
        ("abcd", 10.0),
    ];

    #[test]
    fn the_greatest_sum_wins() {
        let kind = |text: &str| if text == "<unk>" { Kind::Unknown } else { Kind::Normal };
        let vocabulary = Vocabulary::new(TOKENS.map(|(text, _)| (text, kind(text)))).unwrap();
        let scores = TOKENS.map(|(_, score)| score).to_vec();
        let fallback = Fallback { unknown: Some(0), fuse: true, ..Fallback::default() };
        let model = Unigram::new(&vocabulary, scores.clone(), fallback).unwrap();
        for (word, expected) in [
            ("abcdacdxx", vec![8, 1, 5, 0]),
            ("", vec![]),
            ("xé", vec![0]),
            ("<unk>a", vec![0, 1]),
            ("cabx", vec![3, 6, 0]),
        ] {
            let mut ids = Vec::new();
            model.encode(&vocabulary, word, &mut ids).unwrap();
            assert_eq!(ids, expected, "{word}");
        }
        let strict = Unigram::new(&vocabulary, scores, Fallback::default()).unwrap();
        assert!(strict.encode(&vocabulary, "x", &mut Vec::new()).is_err());
        assert!(Unigram::new(&vocabulary, vec![f32::INFINITY], Fallback::default()).is_err());
    }
}

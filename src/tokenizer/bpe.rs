//! Byte-pair encoding: a word is cut into characters, then the adjacent pair of the best rank is merged, the leftmost
//! first, until no pair is left that may be. The rank of a pair is either listed (byte-level vocabularies, tokenizer.json)
//! or that of the score of the token that it makes (SentencePiece).
//!
//! The pairs wait in a heap and the symbols are a linked list, so a word of n characters costs O(n log n) on the heap and
//! nothing on the stack: one word can be a whole document.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::fallback::Fallback;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};

/// The model.
#[derive(Debug)]
pub(super) struct Bpe {
    rule: Rule,
    /// Whether a word that is a token needs no merges.
    whole_words: bool,
    fallback: Fallback,
}

#[derive(Debug)]
enum Rule {
    /// Pairs of symbols -> rank and the symbol that they make. A symbol is a token's id or, from the length of the
    /// vocabulary on, a text that merges go through without its being a token.
    Listed { pairs: HashMap<(u32, u32), (u32, u32)>, between: HashMap<Arc<str>, u32> },
    /// By id: tokens with a greater score have a smaller rank.
    Scored(Vec<u32>),
}

/// A symbol that is neither a token nor on the way to one.
const NONE: u32 = u32::MAX;

/// A stretch of the word. Symbols are a doubly linked list in an array.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    id: u32,
    start: u32,
    /// Equal to `start` when the symbol was merged into the one before it.
    end: u32,
    previous: u32,
    next: u32,
}

/// A pair that may be merged, unless one side of it has changed since. Ordered by rank, then position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    end: u32,
    id: u32,
}

impl Bpe {
    /// A model with listed `merges`, the best first.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if they are more than can be counted.
    pub fn listed<'a>(
        vocabulary: &Vocabulary,
        merges: impl IntoIterator<Item = (&'a str, &'a str)>,
        whole_words: bool,
        fallback: Fallback,
    ) -> Result<Bpe> {
        let mut between: HashMap<Arc<str>, u32> = HashMap::new();
        let mut pairs = HashMap::new();
        let mut text = String::new();
        for (rank, (left, right)) in merges.into_iter().enumerate() {
            let rank = u32::try_from(rank).map_err(|_| Error::Tokenizer("more merges than ranks".into()))?;
            // Nothing for a control token: structure is never made of letters, nor part of what is.
            let mut symbol = |text: &str| -> Result<Option<u32>> {
                if let Some(id) = vocabulary.id(text) {
                    return Ok(vocabulary.is_text(id).then_some(id));
                }
                if let Some(&id) = between.get(text) {
                    return Ok(Some(id));
                }
                let id = u32::try_from(vocabulary.len() + between.len()).ok().filter(|&id| id != NONE);
                let id = id.ok_or_else(|| Error::Tokenizer("more merges than 32-bit ids".into()))?;
                between.insert(Arc::from(text), id);
                Ok(Some(id))
            };
            text.clear();
            text.push_str(left);
            text.push_str(right);
            if let (Some(left), Some(right), Some(made)) = (symbol(left)?, symbol(right)?, symbol(&text)?) {
                // A pair that is listed twice keeps the rank of its last line, as in the reference.
                pairs.insert((left, right), (rank, made));
            }
        }
        Ok(Bpe { rule: Rule::Listed { pairs, between }, whole_words, fallback })
    }

    /// A model of a SentencePiece vocabulary, of which `scores` are by id.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if a score is not a number.
    pub fn scored(scores: &[f32], fallback: Fallback) -> Result<Bpe> {
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(Error::Tokenizer(format!("the score of token {id} is not a number")));
        }
        let rule = Rule::Scored(scores.iter().map(|&score| rank_of(score)).collect());
        Ok(Bpe { rule, whole_words: false, fallback })
    }

    /// Appends the tokens of `word` to `ids`.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if a character has no token, or the word is 4 GiB.
    pub fn encode(&self, vocabulary: &Vocabulary, word: &str, ids: &mut Vec<u32>) -> Result<()> {
        if u32::try_from(word.len()).is_err() {
            return Err(Error::Tokenizer(format!("{} bytes without a break are too many", word.len())));
        }
        if self.whole_words
            && let Some(id) = vocabulary.text_id(word)
        {
            ids.push(id);
            return Ok(());
        }
        let mut symbols = self.characters(vocabulary, word);
        self.merge(vocabulary, word, &mut symbols);
        let mut unknown = false;
        for symbol in symbols.iter().filter(|symbol| symbol.start < symbol.end) {
            if (symbol.id as usize) < vocabulary.len() {
                ids.push(symbol.id);
                unknown = false;
            } else {
                let text = &word[symbol.start as usize..symbol.end as usize];
                self.fallback.encode(vocabulary, text, &mut unknown, ids)?;
            }
        }
        Ok(())
    }

    /// Each character as a symbol.
    fn characters(&self, vocabulary: &Vocabulary, word: &str) -> Vec<Symbol> {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(word.len());
        for (start, char) in word.char_indices() {
            let end = start + char.len_utf8();
            let index = symbols.len() as u32;
            symbols.push(Symbol {
                id: self.symbol(vocabulary, &word[start..end]),
                start: start as u32,
                end: end as u32,
                previous: index.wrapping_sub(1),
                next: index + 1,
            });
        }
        symbols
    }

    fn symbol(&self, vocabulary: &Vocabulary, text: &str) -> u32 {
        let between = || match &self.rule {
            Rule::Listed { between, .. } => between.get(text).copied(),
            Rule::Scored(_) => None,
        };
        vocabulary.text_id(text).or_else(between).unwrap_or(NONE)
    }

    /// The rank of a pair and what it makes.
    fn pair(&self, vocabulary: &Vocabulary, word: &str, left: Symbol, right: Symbol) -> Option<(u32, u32)> {
        match &self.rule {
            Rule::Listed { pairs, .. } => pairs.get(&(left.id, right.id)).copied(),
            Rule::Scored(ranks) => {
                let id = vocabulary.text_id(&word[left.start as usize..right.end as usize])?;
                Some((*ranks.get(id as usize)?, id))
            }
        }
    }

    fn merge(&self, vocabulary: &Vocabulary, word: &str, symbols: &mut [Symbol]) {
        let candidate = |symbols: &[Symbol], left: u32| -> Option<Reverse<Candidate>> {
            let first = *symbols.get(left as usize)?;
            let second = *symbols.get(first.next as usize)?;
            let (rank, id) = self.pair(vocabulary, word, first, second)?;
            Some(Reverse(Candidate { rank, left, end: second.end, id }))
        };
        let mut heap: BinaryHeap<_> =
            (0..symbols.len() as u32).filter_map(|at| candidate(symbols, at)).collect();
        while let Some(Reverse(best)) = heap.pop() {
            let left = symbols[best.left as usize];
            let Some(&right) = symbols.get(left.next as usize) else { continue };
            // Both must still be there, and what they make must be what was found then.
            let alive = left.start < left.end && right.end == best.end;
            if !alive || self.is_stale(left, right, best.id) {
                continue;
            }
            symbols[left.next as usize].end = right.start;
            symbols[best.left as usize] = Symbol { id: best.id, end: right.end, next: right.next, ..left };
            if let Some(after) = symbols.get_mut(right.next as usize) {
                after.previous = best.left;
            }
            heap.extend(candidate(symbols, left.previous));
            heap.extend(candidate(symbols, best.left));
        }
    }

    /// Whether a listed pair is no longer what it was: `a bc` may have become `ab c`, which makes the same text.
    fn is_stale(&self, left: Symbol, right: Symbol, made: u32) -> bool {
        match &self.rule {
            Rule::Listed { pairs, .. } => pairs.get(&(left.id, right.id)).is_none_or(|&(_, id)| id != made),
            Rule::Scored(_) => false,
        }
    }
}

/// Greater scores first: the bits of a float, made to sort like the number, upside down.
fn rank_of(score: f32) -> u32 {
    // Minus zero is zero.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::Kind;
    use super::*;

    fn vocabulary(tokens: &[&str]) -> Vocabulary {
        Vocabulary::new(tokens.iter().map(|&text| (text, Kind::Normal))).unwrap()
    }

    fn encode(bpe: &Bpe, vocabulary: &Vocabulary, word: &str) -> Vec<String> {
        let mut ids = Vec::new();
        bpe.encode(vocabulary, word, &mut ids).unwrap();
        ids.into_iter().map(|id| vocabulary.token(id).unwrap().to_owned()).collect()
    }

    #[test]
    fn ranks_sort_like_scores() {
        let scores = [f32::INFINITY, 3.5, 1.0, f32::MIN_POSITIVE, 0.0, -0.5, -1000.0, f32::NEG_INFINITY];
        assert!(scores.map(rank_of).is_sorted());
        assert_eq!(rank_of(0.0), rank_of(-0.0));
        assert!(Bpe::scored(&[0.0, f32::NAN], Fallback::default()).is_err());
    }

    #[test]
    fn the_best_pair_is_merged_first_and_the_leftmost_of_equals() {
        let vocabulary = vocabulary(&["a", "b", "c", "ab", "bc", "aa", "abc"]);
        let merges = [("b", "c"), ("a", "b"), ("a", "a"), ("a", "bc")];
        let listed = Bpe::listed(&vocabulary, merges, false, Fallback::default()).unwrap();
        assert_eq!(encode(&listed, &vocabulary, "abcabaaa"), ["abc", "ab", "aa", "a"]);
        let scores = [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -9.0];
        let scored = Bpe::scored(&scores, Fallback::default()).unwrap();
        assert_eq!(encode(&scored, &vocabulary, "abcabaaa"), ["abc", "ab", "aa", "a"]);
        assert_eq!(encode(&scored, &vocabulary, ""), [""; 0]);
    }

    #[test]
    fn merges_may_pass_through_texts_that_are_no_tokens() {
        let vocabulary = vocabulary(&["x", "abcd", "a", "b", "c"]);
        let merges = [("a", "b"), ("c", "d"), ("ab", "cd")];
        let bpe = Bpe::listed(&vocabulary, merges, false, Fallback::default()).unwrap();
        assert_eq!(encode(&bpe, &vocabulary, "abcdxabc"), ["abcd", "x", "a", "b", "c"]);
        let result = bpe.encode(&vocabulary, "cd", &mut Vec::new());
        assert!(matches!(result, Err(Error::Tokenizer(message)) if message.contains("\"d\"")));
    }

    #[test]
    fn a_whole_word_may_skip_the_merges() {
        let vocabulary = vocabulary(&["a", "b", "ab", "aba"]);
        for (whole_words, expected) in [(true, vec!["aba"]), (false, vec!["ab", "a"])] {
            let bpe = Bpe::listed(&vocabulary, [("a", "b")], whole_words, Fallback::default()).unwrap();
            assert_eq!(encode(&bpe, &vocabulary, "aba"), expected);
        }
    }

    #[test]
    fn text_never_merges_into_a_control_token() {
        let tokens = [
            ("<", Kind::Normal),
            ("s", Kind::Normal),
            (">", Kind::Normal),
            ("<s", Kind::Normal),
            ("<s>", Kind::Control),
        ];
        let vocabulary = Vocabulary::new(tokens).unwrap();
        let merges = [("<", "s"), ("<s", ">")];
        let listed = Bpe::listed(&vocabulary, merges, true, Fallback::default()).unwrap();
        let scored = Bpe::scored(&[0.0; 5], Fallback::default()).unwrap();
        for bpe in [listed, scored] {
            assert_eq!(encode(&bpe, &vocabulary, "<s>"), ["<s", ">"]);
        }
    }
}

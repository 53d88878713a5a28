//! Multiple choice: of several texts a model finds one the most likely. Items are lines of JSON with the fields of the data
//! sets themselves ([`READERS`]); each option is a context and what continues it, and its score is the sum of the logarithms
//! of the probabilities of the continuation's tokens, or, normalized, that over its characters.

use serde_json::Value;

use super::log_sum_exp;
use super::tasks::{Outcome, missing};
use crate::engine::Engine;
use crate::error::Result;
use crate::tokenizer::Special;

/// A question with its options.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Context and continuation of each.
    pub options: Vec<(String, String)>,
    /// The right one.
    pub answer: usize,
}

/// Reads one kind of data set.
type Reader = fn(&Value) -> Option<Item>;

/// A data set's fields, by which it is known, and what reads it; the first that fits counts.
pub static READERS: &[(&str, &[&str], Reader)] = &[
    ("hellaswag", &["activity_label", "ctx_a", "ctx_b", "endings", "label"], hellaswag),
    ("winogrande", &["sentence", "option1", "option2", "answer"], winogrande),
    ("piqa", &["goal", "sol1", "sol2", "label"], piqa),
    ("arc", &["question", "choices", "answerKey"], arc),
    ("mmlu", &["question", "choices", "answer"], mmlu),
    ("plain", &["context", "continuations", "answer"], plain),
];

impl Item {
    /// Reads one line of a data set.
    ///
    /// # Errors
    /// What is wrong: the fields fit no data set, or one of them makes no sense.
    pub fn read(line: &Value) -> Result<Item, String> {
        let has = |fields: &[&str]| fields.iter().all(|field| line.get(field).is_some());
        let Some((name, _, read)) = READERS.iter().find(|(_, fields, _)| has(fields)) else {
            return Err(missing(READERS.iter().map(|(name, fields, _)| (*name, *fields))));
        };
        let item =
            read(line).ok_or_else(|| format!("a field of {name} has not the type that it should have"))?;
        if item.options.len() < 2 || item.answer >= item.options.len() {
            return Err(format!("answer {} of {} options", item.answer, item.options.len()));
        }
        Ok(item)
    }
}

fn text<'a>(line: &'a Value, field: &str) -> Option<&'a str> {
    line.get(field)?.as_str()
}

/// A number, or the digits of one.
fn number(line: &Value, field: &str) -> Option<usize> {
    let value = line.get(field)?;
    value.as_u64().map(|number| number as usize).or_else(|| value.as_str()?.parse().ok())
}

fn texts(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

/// `[header]` becomes a full stop, other marks in brackets go: the texts are scraped.
fn hellaswag(line: &Value) -> Option<Item> {
    let clean = |text: &str| {
        let mut text = text.trim().replace(" [title]", ". ");
        while let Some((open, close)) =
            text.find('[').and_then(|open| Some((open, open + text[open..].find(']')?)))
        {
            text.replace_range(open..=close, "");
        }
        text.replace("  ", " ")
    };
    let end = text(line, "ctx_b")?;
    let mut letters = end.chars();
    let end: String = letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters.flat_map(char::to_lowercase)).collect()
    });
    let context = format!("{}: {} {end}", text(line, "activity_label")?, text(line, "ctx_a")?);
    let context = clean(&context);
    let endings = texts(line.get("endings")?)?;
    let options = endings.iter().map(|ending| (context.clone(), format!(" {}", clean(ending)))).collect();
    Some(Item { options, answer: number(line, "label")? })
}

/// The option fills the gap, and what comes behind is to be likely.
fn winogrande(line: &Value) -> Option<Item> {
    let (before, after) = text(line, "sentence")?.split_once('_')?;
    let options = ["option1", "option2"]
        .map(|option| Some((format!("{before}{}", text(line, option)?), format!(" {}", after.trim()))));
    Some(Item {
        options: options.into_iter().collect::<Option<_>>()?,
        answer: number(line, "answer")?.checked_sub(1)?,
    })
}

fn questions(question: &str, answers: &[&str]) -> Vec<(String, String)> {
    answers.iter().map(|answer| (format!("Question: {question}\nAnswer:"), format!(" {answer}"))).collect()
}

fn piqa(line: &Value) -> Option<Item> {
    let options = questions(text(line, "goal")?, &[text(line, "sol1")?, text(line, "sol2")?]);
    Some(Item { options, answer: number(line, "label")? })
}

fn arc(line: &Value) -> Option<Item> {
    let choices = line.get("choices")?;
    let labels = texts(choices.get("label")?)?;
    let options = questions(text(line, "question")?, &texts(choices.get("text")?)?);
    let key = text(line, "answerKey")?;
    Some(Item { options, answer: labels.iter().position(|label| *label == key)? })
}

/// The letter is to be likely.
fn mmlu(line: &Value) -> Option<Item> {
    let choices = texts(line.get("choices")?)?;
    let letters = || ('A'..='Z').take(choices.len());
    let mut context = text(line, "question")?.trim().to_owned();
    for (letter, choice) in letters().zip(&choices) {
        context += &format!("\n{letter}. {choice}");
    }
    context += "\nAnswer:";
    let by_letter = || letters().position(|letter| text(line, "answer") == Some(&letter.to_string()));
    let answer = number(line, "answer").or_else(by_letter)?;
    Some(Item { options: letters().map(|letter| (context.clone(), format!(" {letter}"))).collect(), answer })
}

fn plain(line: &Value) -> Option<Item> {
    let context = text(line, "context")?;
    let continuations = texts(line.get("continuations")?)?;
    let options = continuations.iter().map(|text| (context.to_owned(), (*text).to_owned())).collect();
    Some(Item { options, answer: number(line, "answer")? })
}

/// Scores the options of `item`. What they share with what the engine has read is not computed again.
///
/// # Errors
/// The engine's own; [`crate::Error::Context`] for an item that does not fit.
pub fn ask(engine: &mut Engine, item: &Item) -> Result<Outcome> {
    let mut scores = Vec::with_capacity(item.options.len());
    for (context, continuation) in &item.options {
        scores.push(likelihood(engine, context, continuation)?);
    }
    let lengths = item.options.iter().map(|(_, text)| text.trim().chars().count().max(1) as f64);
    let normalized: Vec<_> = scores.iter().zip(lengths).map(|(score, length)| score / length).collect();
    Ok(Outcome {
        correct: largest(&scores) == item.answer,
        normalized: Some(largest(&normalized) == item.answer),
        answer: largest(&scores).to_string(),
    })
}

/// The first largest.
fn largest(scores: &[f64]) -> usize {
    (1..scores.len()).fold(0, |best, index| if scores[index] > scores[best] { index } else { best })
}

/// The logarithm of the probability of `continuation` behind `context`. Where the tokens of both together are not those of
/// the context and some more, the continuation begins at the first that differs.
fn likelihood(engine: &mut Engine, context: &str, continuation: &str) -> Result<f64> {
    let tokenizer = engine.tokenizer();
    let whole = tokenizer.encode_prompt(&format!("{context}{continuation}"), Special::Text)?;
    let before = tokenizer.encode_prompt(context, Special::Text)?;
    let shared = whole.iter().zip(&before).take_while(|(a, b)| a == b).count();
    // At least one token is read and one is scored.
    let first = shared.min(whole.len().saturating_sub(1)).max(1);
    if whole.len() < 2 {
        return Ok(0.0);
    }
    let read = &whole[..first - 1];
    let known = engine.tokens().iter().zip(read).take_while(|(a, b)| a == b).count();
    engine.truncate(known);
    if known < read.len() {
        engine.append(&read[known..])?;
    }
    let logits = engine.score(&whole[first - 1..whole.len() - 1])?;
    let rows = logits.values().chunks_exact(logits.columns());
    Ok(rows.zip(&whole[first..]).map(|(row, &token)| f64::from(row[token as usize]) - log_sum_exp(row)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn data_sets_are_read_as_usual() {
        let cases = [
            (
                json!({"activity_label": "Cooking", "ctx_a": "A man [header] stirs.", "ctx_b": "he", "label": "1",
                    "endings": ["eats [title] soup.", "sleeps."]}),
                ("Cooking: A man stirs. He", " eats. soup.", 1),
            ),
            (
                json!({"sentence": "The cup fell off the shelf, as _ was high.", "option1": "the shelf",
                    "option2": "the cup", "answer": "1"}),
                ("The cup fell off the shelf, as the shelf", " was high.", 0),
            ),
            (
                json!({"goal": "Dry it.", "sol1": "Sun.", "sol2": "Rain.", "label": 0}),
                ("Question: Dry it.\nAnswer:", " Sun.", 0),
            ),
            (
                json!({"question": "Wet?", "choices": {"text": ["Sea", "Sand"], "label": ["1", "2"]}, "answerKey": "2"}),
                ("Question: Wet?\nAnswer:", " Sea", 1),
            ),
            (
                json!({"question": "Wet?", "choices": ["Sea", "Sand"], "answer": "B"}),
                ("Wet?\nA. Sea\nB. Sand\nAnswer:", " A", 1),
            ),
            (json!({"context": "a", "continuations": ["b", "c"], "answer": 0}), ("a", "b", 0)),
        ];
        for (line, (context, continuation, answer)) in cases {
            let item = Item::read(&line).unwrap();
            assert_eq!(item.options[0], (context.into(), continuation.into()));
            assert_eq!(item.answer, answer, "{line}");
        }
        for wrong in
            [json!({"question": "?"}), json!({"context": "a", "continuations": ["b", "c"], "answer": 2})]
        {
            assert!(Item::read(&wrong).is_err(), "{wrong}");
        }
    }
}

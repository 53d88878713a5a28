//! Word problems whose answer is a number, which a model writes out: as an answer of a chat, or, without a template, behind
//! four solved ones. Both, because quantization may move the first token to the end of the text, which only one shows.

use serde_json::Value;

use super::tasks::{Outcome, missing};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::sample::Sampling;

/// How problems are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a message of a chat, thinking off.
    Chat,
    /// Behind solved ones, as text.
    Raw,
}

/// A problem. `answer` ends with `#### number`, as in GSM8K.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    question: String,
    answer: String,
}

/// Solved problems before a raw one.
pub const SHOTS: usize = 4;
/// Tokens of an answer at most: of a chat, of text.
const MOST_TOKENS: [usize; 2] = [640, 320];

impl Problem {
    /// Reads one line of a data set.
    ///
    /// # Errors
    /// What is wrong.
    pub fn read(line: &Value) -> Result<Problem, String> {
        let field = |name: &str| line.get(name).and_then(Value::as_str).map(str::to_owned);
        let (Some(question), Some(answer)) = (field("question"), field("answer")) else {
            return Err(missing([("gsm", &["question", "answer"][..])].into_iter()));
        };
        match marked(&answer) {
            Some(_) => Ok(Problem { question, answer }),
            None => Err("the answer has no number behind ####".into()),
        }
    }
}

/// Has the model solve `problem`. `solved` are put before it in the raw form.
///
/// # Errors
/// The engine's own: a model without a chat template can't be asked in that form.
pub fn solve(engine: &mut Engine, problem: &Problem, form: Form, solved: &[Problem]) -> Result<Outcome> {
    let written = match form {
        Form::Chat => chat(engine, &problem.question)?,
        Form::Raw => raw(engine, &problem.question, solved)?,
    };
    let found = marked(&written).or_else(|| numbers(&written).next_back());
    Ok(Outcome {
        correct: found.is_some() && found == marked(&problem.answer),
        normalized: None,
        answer: found.map_or_else(String::new, |number| number.to_string()),
    })
}

fn greedy(max_tokens: usize) -> Sampling {
    Sampling { temperature: 0.0, max_tokens: Some(max_tokens), ..Sampling::default() }
}

fn chat(engine: &mut Engine, question: &str) -> Result<String> {
    let mut chat = engine.chat();
    chat.set_variable("enable_thinking", Value::Bool(false));
    let text = format!("{question}\nSolve step by step, then give the final number after '####'.");
    chat.send(&text, &greedy(MOST_TOKENS[0])).collect::<Result<_>>()
}

fn raw(engine: &mut Engine, question: &str, solved: &[Problem]) -> Result<String> {
    let mut prompt = String::new();
    for Problem { question, answer } in solved {
        prompt += &format!("Q: {question}\nA: {answer}\n\n");
    }
    prompt += &format!("Q: {question}\nA:");
    let sampling = Sampling { stop: vec!["Q:".into()], ..greedy(MOST_TOKENS[1]) };
    engine.generate(&prompt, &sampling)?.collect::<Result<_>>()
}

/// The number behind the first `####`.
fn marked(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("####")?;
    numbers(rest.lines().next().unwrap_or_default()).next()
}

/// All numbers, of which thousands may be apart with commas.
fn numbers(text: &str) -> impl DoubleEndedIterator<Item = f64> {
    let kept = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-');
    text.split(move |c| !kept(c)).filter_map(|word| word.replace(',', "").trim_end_matches('.').parse().ok())
}

/// Splits off the problems that are put before the others: the last ones.
///
/// # Errors
/// [`Error::Option`] if none would be left.
pub fn shots(mut problems: Vec<Problem>, form: Form) -> Result<(Vec<Problem>, Vec<Problem>)> {
    let shots = if form == Form::Raw { SHOTS } else { 0 };
    if problems.len() <= shots {
        let message =
            format!("{} problems: the raw form puts {SHOTS} solved ones before each", problems.len());
        return Err(Error::option("DATA", message));
    }
    let solved = problems.split_off(problems.len() - shots);
    Ok((problems, solved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_answers() {
        let cases = [
            ("She has 3 and 4.\n#### 7", Some(7.0)),
            ("#### $1,250.50 in all", Some(1250.5)),
            ("#### -3.\nQ: 9", Some(-3.0)),
            ("so it is 12.", None),
            ("####\n8", None),
        ];
        for (text, expected) in cases {
            assert_eq!(marked(text), expected, "{text}");
        }
        assert_eq!(numbers("from 3 to 12, or 7.").next_back(), Some(7.0));
        assert!(Problem::read(&serde_json::json!({"question": "?", "answer": "7"})).is_err());
    }
}

//! What tasks with items share: data files (a JSON object a line), results that are stored item by item and resumed, and the
//! comparison of two models by the items that both were given.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};

/// What became of one item.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Outcome {
    /// Whether the answer is right.
    pub correct: bool,
    /// Whether it is when scores are divided by the lengths of options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalized: Option<bool>,
    /// What was answered.
    pub answer: String,
}

/// What results are of. Results of another run are not gone on with.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Header {
    /// The instrument and its settings.
    pub task: String,
    /// The model's name and size.
    pub model: String,
    /// The data's hash.
    pub data: String,
}

/// Lines of a data file.
///
/// # Errors
/// [`Error::Io`], and [`Error::File`] with the line for what is no JSON or what `read` refuses.
pub fn read<T>(path: &Path, read: impl Fn(&Value) -> Result<T, String>) -> Result<(Vec<T>, String)> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let wrong = |index: usize, message: String| Error::File {
        path: path.into(),
        message: format!("line {}: {message}", index + 1),
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let item = |(index, line): (usize, &str)| {
        let value = serde_json::from_str(line).map_err(|error| wrong(index, error.to_string()))?;
        read(&value).map_err(|message| wrong(index, message))
    };
    let items = lines.map(item).collect::<Result<Vec<T>>>()?;
    if items.is_empty() {
        return Err(Error::File {
            path: path.into(),
            message: "has no items: one JSON object a line".into(),
        });
    }
    Ok((items, format!("{:032x}", twox_hash::XxHash3_128::oneshot(text.as_bytes()))))
}

/// That no data set has these fields.
pub(super) fn missing<'a>(known: impl Iterator<Item = (&'a str, &'a [&'a str])>) -> String {
    let known: Vec<_> = known.map(|(name, fields)| format!("{name} ({})", fields.join(", "))).collect();
    format!("not the fields of {}", known.join(", "))
}

/// Results, stored as they come: a line with the [`Header`], then one an item.
#[derive(Debug)]
pub struct Results {
    file: Option<(PathBuf, File)>,
    /// So far.
    pub outcomes: Vec<Outcome>,
}

impl Results {
    /// Results that are not stored.
    pub fn unstored() -> Results {
        Results { file: None, outcomes: Vec::new() }
    }

    /// Stores results in `path`; with `resume` what is there is gone on with.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::File`] if there are results of something else, or any without `resume`.
    pub fn stored(path: &Path, header: &Header, resume: bool) -> Result<Results> {
        let io = |error| Error::io(path, error);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(io)?;
        let wrong = |message: &str| Error::File { path: path.into(), message: message.into() };
        if !text.is_empty() && !resume {
            return Err(wrong("has results already: --resume goes on with them"));
        }
        // A line without an end was being written when the program was stopped.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let (found, outcomes) =
            if whole > 0 { parse(path, &text[..whole])? } else { (header.clone(), Vec::new()) };
        if found != *header {
            return Err(wrong("has results of another model, other data or other settings"));
        }
        file.set_len(whole as u64).map_err(io)?;
        file.seek(SeekFrom::End(0)).map_err(io)?;
        let mut results = Results { file: Some((path.into(), file)), outcomes };
        if whole == 0 {
            results.line(header)?;
        }
        Ok(results)
    }

    /// Adds the next item's.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn add(&mut self, outcome: Outcome) -> Result<()> {
        self.line(&outcome)?;
        self.outcomes.push(outcome);
        Ok(())
    }

    fn line(&mut self, line: &impl Serialize) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let line = serde_json::to_string(line).expect("texts and truths, of which JSON has all") + "\n";
        file.write_all(line.as_bytes()).map_err(|error| Error::io(&*path, error))
    }
}

/// Stored results.
///
/// # Errors
/// [`Error::Io`], and [`Error::File`] with the line for what are no results.
pub fn results(path: &Path) -> Result<(Header, Vec<Outcome>)> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<(Header, Vec<Outcome>)> {
    let wrong = |index: usize, error: serde_json::Error| Error::File {
        path: path.into(),
        message: format!("line {} is no result: {error}", index + 1),
    };
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().unwrap_or((0, ""));
    let header = serde_json::from_str(first).map_err(|error| wrong(0, error))?;
    let outcome = |(index, line)| serde_json::from_str(line).map_err(|error| wrong(index, error));
    Ok((header, lines.map(outcome).collect::<Result<_>>()?))
}

/// The share of what is true, and its standard error.
pub fn accuracy(correct: impl Iterator<Item = bool>) -> (f64, f64) {
    let values: Vec<f64> = correct.map(|correct| f64::from(u8::from(correct))).collect();
    (super::statistics::mean(&values), super::statistics::standard_error(&values))
}

/// Two models on the same items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Items.
    pub items: usize,
    /// The second's accuracy less the first's.
    pub difference: f64,
    /// Between these the difference is in 95 of 100 samples of as many items, drawn with replacement.
    pub interval: [f64; 2],
    /// Items that only the first or only the second has right.
    pub only: [usize; 2],
    /// How probable so uneven a split of these is if neither is better (McNemar's test, exact, two-sided).
    pub p_value: f64,
}

/// Compares two models by what was right.
///
/// # Errors
/// [`Error::Option`] if they were not given the same number of items, or none.
pub fn compare(first: &[bool], second: &[bool]) -> Result<Paired> {
    if first.len() != second.len() || first.is_empty() {
        let message = format!("{} and {} items can't be compared", first.len(), second.len());
        return Err(Error::option("RESULTS", message));
    }
    let differences: Vec<i64> =
        first.iter().zip(second).map(|(&a, &b)| i64::from(b) - i64::from(a)).collect();
    let items = differences.len();
    let of = |sum: i64| sum as f64 / items as f64;
    /// Enough that the ends of the interval are steady to a few in a thousand.
    const SAMPLES: usize = 10_000;
    let mut random = fastrand::Rng::with_seed(123);
    let mut sums: Vec<i64> =
        (0..SAMPLES).map(|_| (0..items).map(|_| differences[random.usize(..items)]).sum()).collect();
    sums.sort_unstable();
    let only = [-1, 1].map(|sign| differences.iter().filter(|&&difference| difference == sign).count());
    Ok(Paired {
        items,
        difference: of(differences.iter().sum()),
        interval: [of(sums[SAMPLES / 40]), of(sums[SAMPLES - 1 - SAMPLES / 40])],
        only,
        p_value: mcnemar(only),
    })
}

/// Twice the probability of at most the smaller of `counts` heads in as many throws, at most 1.
fn mcnemar(counts: [usize; 2]) -> f64 {
    let throws = counts[0] + counts[1];
    let fewer = counts[0].min(counts[1]);
    let mut logarithm = -(throws as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    for heads in 0..=fewer {
        sum += libm::exp(logarithm);
        logarithm += libm::log((throws - heads) as f64) - libm::log((heads + 1) as f64);
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_compared_by_items() {
        // 1 against 8: 2 * (1 + 9) / 512. None against none: nothing is known.
        assert!((mcnemar([1, 8]) - 20.0 / 512.0).abs() < 1e-12);
        assert_eq!((mcnemar([0, 0]), mcnemar([4, 4])), (1.0, 1.0));
        let first: Vec<bool> = (0..100).map(|i| i % 2 == 0).collect();
        let second: Vec<bool> = (0..100).map(|i| i % 2 == 0 || i % 5 == 0).collect();
        let found = compare(&first, &second).unwrap();
        assert_eq!((found.difference, found.only), (0.1, [0, 10]));
        assert!(found.interval[0] > 0.0 && found.interval[0] < 0.1 && found.interval[1] > 0.1, "{found:?}");
        assert!(found.p_value < 0.01);
        assert!(compare(&first, &second[1..]).is_err());
    }

    #[test]
    fn results_are_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        let header = Header { task: "choice".into(), model: "m".into(), data: "d".into() };
        let outcome = Outcome { correct: true, normalized: Some(false), answer: "1".into() };
        let mut stored = Results::stored(&path, &header, false).unwrap();
        stored.add(outcome.clone()).unwrap();
        drop(stored);
        // Killed while writing.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"corr").unwrap();
        assert!(Results::stored(&path, &header, false).is_err());
        assert!(Results::stored(&path, &Header { model: "n".into(), ..header.clone() }, true).is_err());
        let mut stored = Results::stored(&path, &header, true).unwrap();
        assert_eq!(stored.outcomes, std::slice::from_ref(&outcome));
        stored.add(outcome.clone()).unwrap();
        assert_eq!(results(&path).unwrap(), (header, vec![outcome.clone(), outcome]));
    }
}

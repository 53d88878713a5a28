//! `hadal eval choice`, `gsm` and `compare`: how many items of a data file a model has right.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use hadal::engine::{Engine, Interrupt};
use hadal::eval::tasks::{self, Header, Outcome, Results, accuracy, compare};
use hadal::eval::{choice, gsm};
use serde_json::json;

use super::{EvalModel, Output, progress};
use crate::cli::hub::ModelName;
use crate::cli::interrupt::{self, Guard, Interrupted};
use crate::cli::value;

/// Multiple choice: HellaSwag, ARC, PIQA, WinoGrande, MMLU, or items of your own
#[derive(Args, Debug)]
pub struct Choice {
    #[command(flatten)]
    task: Task,
}

/// Word problems with numbers as answers, like GSM8K
#[derive(Args, Debug)]
pub struct Gsm {
    /// How problems are put: to the chat template, or as text behind four solved ones (the file's last)
    #[arg(long, value_name = "FORM", default_value = "chat")]
    form: Form,

    #[command(flatten)]
    task: Task,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Chat,
    Raw,
}

/// Compare two models by the items of a task that both were given
#[derive(Args, Debug)]
pub struct Compare {
    /// Results of the first model, as --results stored them
    first: PathBuf,

    /// Results of the second model on the same data
    second: PathBuf,

    /// How the result is printed
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: Output,
}

#[derive(Args, Debug)]
struct Task {
    /// The items: a file with a JSON object a line; its fields tell which data set it is (see docs/quality.md)
    data: PathBuf,

    /// Items at most
    #[arg(long, value_name = "N", value_parser = value::count)]
    items: Option<usize>,

    /// Store the result of each item, to be gone on with or compared
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,

    /// Go on with the results of an earlier run
    #[arg(long, requires = "results")]
    resume: bool,

    /// Tokens that fit in the context [default: what the model was trained for, at most 8192]
    #[arg(short, long, value_name = "N", value_parser = value::count)]
    ctx_size: Option<usize>,

    #[command(flatten)]
    model: EvalModel,

    /// How the result is printed
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    output: Output,
}

/// Asks for the likeliest option of each item.
pub fn choice(arguments: &Choice) -> anyhow::Result<()> {
    let (items, data) = tasks::read(&arguments.task.data, choice::Item::read)?;
    arguments.task.run("choice", &data, &items, choice::ask)
}

/// Has each problem solved.
pub fn gsm(arguments: &Gsm) -> anyhow::Result<()> {
    let (problems, data) = tasks::read(&arguments.task.data, gsm::Problem::read)?;
    let (form, name) = match arguments.form {
        Form::Chat => (gsm::Form::Chat, "gsm chat"),
        Form::Raw => (gsm::Form::Raw, "gsm raw"),
    };
    let (problems, solved) = gsm::shots(problems, form)?;
    arguments.task.run(name, &data, &problems, |engine, problem| gsm::solve(engine, problem, form, &solved))
}

impl Task {
    fn run<T>(
        &self,
        name: &str,
        data: &str,
        items: &[T],
        mut ask: impl FnMut(&mut Engine, &T) -> hadal::Result<Outcome>,
    ) -> anyhow::Result<()> {
        let EvalModel { file, threads, numerics } = &self.model;
        let mut engine = file.open(&numerics.options(self.ctx_size, *threads)?)?;
        let items = &items[..items.len().min(self.items.unwrap_or(usize::MAX))];
        let path = self.model.file.model.as_ref().map(ModelName::path).transpose()?;
        let bytes = path.and_then(|path| Some(std::fs::metadata(path).ok()?.len()));
        let model = format!("{}, {} bytes", engine.info().name, bytes.unwrap_or(0));
        let header = Header { task: name.into(), model, data: data.into() };
        let mut results = match &self.results {
            Some(path) => Results::stored(path, &header, self.resume)?,
            None => Results::unstored(),
        };
        interrupt::listen()?;
        let interrupt = Interrupt::default();
        let guard = Guard::new(interrupt.clone());
        let progress = progress(items.len())?;
        progress.set_position(results.outcomes.len() as u64);
        for item in items.iter().skip(results.outcomes.len()) {
            let outcome = ask(&mut engine, item)?;
            if interrupt.take() {
                progress.abandon();
                return Err(Interrupted.into());
            }
            results.add(outcome)?;
            progress.set_message(format!(
                "right {:.3}",
                accuracy(results.outcomes.iter().map(|it| it.correct)).0
            ));
            progress.inc(1);
        }
        progress.finish_and_clear();
        drop(guard);
        self.output.print(&figures(&results.outcomes))
    }
}

fn figures(outcomes: &[Outcome]) -> Vec<(&'static str, serde_json::Value)> {
    let (share, error) = accuracy(outcomes.iter().map(|outcome| outcome.correct));
    let mut figures =
        vec![("items", json!(outcomes.len())), ("acc", json!(share)), ("acc_stderr", json!(error))];
    if outcomes.iter().all(|outcome| outcome.normalized.is_some()) {
        let (share, error) = accuracy(outcomes.iter().filter_map(|outcome| outcome.normalized));
        figures.extend([("acc_norm", json!(share)), ("acc_norm_stderr", json!(error))]);
    }
    figures
}

/// Prints how the second differs from the first.
pub fn compared(arguments: &Compare) -> anyhow::Result<()> {
    let read = |path: &Path| tasks::results(path);
    let ((first, before), (second, after)) = (read(&arguments.first)?, read(&arguments.second)?);
    if (&first.task, &first.data) != (&second.task, &second.data) {
        let message = "the results are of another task or other data";
        return Err(hadal::Error::option("RESULTS", message).into());
    }
    let correct = |outcomes: &[Outcome]| outcomes.iter().map(|outcome| outcome.correct).collect::<Vec<_>>();
    let found = compare(&correct(&before), &correct(&after))?;
    arguments.output.print(&[
        ("items", json!(found.items)),
        ("difference", json!(found.difference)),
        ("interval_low", json!(found.interval[0])),
        ("interval_high", json!(found.interval[1])),
        ("only_first", json!(found.only[0])),
        ("only_second", json!(found.only[1])),
        ("p_value", json!(found.p_value)),
    ])
}

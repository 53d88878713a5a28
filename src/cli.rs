//! The command line: one file and one function a command, flag groups that commands share, and the way a failure
//! is told: one line on standard error, exit code 1 (failed), 2 (wrong usage) or 130 (Ctrl-C).

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use clap::error::ErrorKind as UsageKind;
use clap::{CommandFactory, Parser, Subcommand};

mod answer;
mod bench;
mod calibrate;
mod chat;
mod completions;
mod convert;
mod doctor;
mod embed;
mod eval;
mod fit;
mod folder;
mod formats;
mod hub;
mod imatrix;
mod inspect;
mod interrupt;
mod model;
mod progress;
mod prompt;
mod quantize;
mod recipe;
mod run;
mod sampling;
mod sensitivity;
mod session;
mod table;
mod tokenize;
mod value;

use interrupt::Interrupted;

/// Runs quantized language models: one file, the same answers on every CPU.
#[derive(Debug, Parser)]
#[command(name = "hadal", version, max_term_width = 100)]
struct Program {
    /// Tell on standard error what is being done
    #[arg(short, long, global = true, display_order = 900)]
    verbose: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Chat(chat::Chat),
    Tokenize(tokenize::Tokenize),
    Inspect(inspect::Inspect),
    Quantize(quantize::Quantize),
    Recipe(recipe::RecipeArgs),
    Sensitivity(sensitivity::SensitivityArgs),
    Convert(convert::Convert),
    Embed(embed::Embed),
    Imatrix(imatrix::ImatrixArgs),
    Eval(eval::Eval),
    Pull(hub::Pull),
    List(hub::List),
    #[command(name = "rm")]
    Remove(hub::Remove),
    Bench(bench::Bench),
    Fit(fit::Fit),
    Formats(formats::Formats),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
}

/// What `hadal` alone prints.
const WELCOME: &str = "\
hadal runs quantized language models.

  hadal run \"It is a truth\"                      continue a text with the built-in Jane Austen model
  hadal chat -m SmolLM2-135M-Instruct.Q4_1.gguf  talk to a model

hadal --help lists all commands, hadal run --help all flags of one.
";

/// Flags of llama.cpp that clap cannot spell: several letters after one dash.
const LONG_WITH_ONE_DASH: &[(&str, &str)] =
    &[("-sys", "--system"), ("-ngl", "--gpu-layers"), ("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v")];

/// Runs the program and gives its exit code.
pub fn main() -> ExitCode {
    let arguments = std::env::args_os().map(|argument| {
        let spelled = LONG_WITH_ONE_DASH.iter().find(|(short, _)| argument == *short);
        spelled.map_or(argument, |(_, long)| OsString::from(long))
    });
    match Program::try_parse_from(arguments) {
        Ok(program) => report(program.run()),
        Err(usage) => report_usage(&usage),
    }
}

impl Program {
    fn run(self) -> anyhow::Result<()> {
        let messages = tracing_subscriber::fmt().with_writer(stderr).with_ansi(stderr().is_terminal());
        if self.verbose {
            messages.with_max_level(tracing::Level::DEBUG).init();
        } else {
            messages.with_max_level(tracing::Level::WARN).without_time().with_target(false).init();
        }
        match &self.command {
            None => Ok(stdout().write_all(WELCOME.as_bytes())?),
            Some(Command::Run(run)) => run::run(run),
            Some(Command::Chat(chat)) => chat::chat(chat),
            Some(Command::Tokenize(tokenize)) => tokenize::tokenize(tokenize),
            Some(Command::Inspect(inspect)) => inspect::inspect(inspect),
            Some(Command::Quantize(quantize)) => quantize::quantize(quantize),
            Some(Command::Embed(embed)) => embed::embed(embed),
            Some(Command::Recipe(recipe)) => recipe::recipe(recipe),
            Some(Command::Sensitivity(sensitivity)) => sensitivity::sensitivity(sensitivity),
            Some(Command::Imatrix(imatrix)) => imatrix::imatrix(imatrix),
            Some(Command::Convert(convert)) => convert::convert(convert),
            Some(Command::Eval(eval)) => eval::eval(eval),
            Some(Command::Pull(pull)) => hub::pull(pull),
            Some(Command::List(_)) => hub::list(),
            Some(Command::Remove(remove)) => hub::remove(remove),
            Some(Command::Bench(bench)) => bench::bench(bench),
            Some(Command::Fit(fit)) => fit::fit(fit),
            Some(Command::Formats(_)) => formats::formats(),
            Some(Command::Doctor(_)) => doctor::doctor(),
            Some(Command::Completions(completions)) => {
                completions::completions(completions, &mut Program::command())
            }
        }
    }
}

/// Tells an error in one line. A reader that went away (`| head`) is no failure.
fn report(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if error.is::<Interrupted>() {
        return ExitCode::from(130);
    }
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    };
    if error.chain().any(broken_pipe) {
        return ExitCode::SUCCESS;
    }
    say(&error);
    match error.downcast_ref::<hadal::Error>() {
        Some(hadal::Error::Option { .. }) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// Prints `error: …` on standard error, on one line. Nothing can be done if that fails.
fn say(error: &anyhow::Error) {
    let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(stderr(), "error: {text}");
}

/// Tells wrong usage in one line; help and version as clap prints them.
fn report_usage(usage: &clap::Error) -> ExitCode {
    if !usage.use_stderr() || usage.kind() == UsageKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = usage.print();
        return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
    }
    let _ = writeln!(stderr(), "error: {}", usage_line(usage));
    ExitCode::from(2)
}

/// What is wrong with the usage, on one line.
fn usage_line(usage: &clap::Error) -> String {
    let text = usage.render().to_string();
    let kept: Vec<_> = text
        .split("\n\n")
        .filter(|paragraph| {
            !paragraph.starts_with("Usage:") && !paragraph.starts_with("For more information")
        })
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let line = kept.join("; ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Program::command().debug_assert();
    }
}

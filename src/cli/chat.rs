//! `hadal chat`: a conversation in the terminal. Lines that begin with `/` are commands, see [`command::COMMANDS`].

use std::io::{Write, stderr};

use anyhow::bail;
use clap::{Args, Parser};
use hadal::Sampling;
use hadal::engine::{self, Engine, Finish};

use super::answer::{Printer, full_context, print_stats};
use super::interrupt::{self, Guard};
use super::model::ModelArgs;
use super::sampling::SamplingArgs;
use super::session::{SessionArgs, Talk};
use command::Command;
use input::{Entry, Input};

mod command;
mod input;
mod transcript;

/// Talk to a model
#[derive(Args, Debug)]
pub struct Chat {
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    system: Option<String>,

    /// Print no greeting
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    session: SessionArgs,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    sampling: SamplingArgs,
}

/// Reads messages and answers them until the input ends.
pub fn chat(arguments: &Chat) -> anyhow::Result<()> {
    let sampling = arguments.sampling.sampling()?;
    let mut engine = arguments.model.open()?;
    if engine.template().is_none() {
        let name = &engine.info().name;
        bail!(
            "{name} has no chat template, it only continues text: use hadal run, or --chat-template to give one"
        );
    }
    let mut input = Input::new()?;
    // After the editor is made, because it takes SIGINT for itself. While it reads a line the terminal sends none.
    interrupt::listen()?;
    if input.is_terminal() && !arguments.quiet {
        tell(&greeting(&engine));
    }
    let talk = arguments.session.load(&mut engine)?;
    let mut chat = engine.chat();
    chat.set_messages(talk.messages);
    if let Some(system) = &arguments.system {
        chat.set_system(system);
    }
    Session { chat, sampling, kept: &arguments.session }.converse(&mut input)
}

fn greeting(engine: &Engine) -> String {
    let info = engine.info();
    format!("{} ({}, {} tokens of context). /help lists the commands.", info.name, info.format, info.context)
}

/// Prints a line on standard error, so that standard output holds answers only.
fn tell(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

struct Session<'e> {
    chat: engine::Chat<'e>,
    sampling: Sampling,
    /// Where the conversation is kept after each answer and at the end.
    kept: &'e SessionArgs,
}

impl Session<'_> {
    fn converse(&mut self, input: &mut Input) -> anyhow::Result<()> {
        while let Entry::Text(text) = input.read()? {
            let outcome = match command::parse(&text) {
                Ok(None) if text.trim().is_empty() => Ok(()),
                Ok(None) => self.answer(command::unescaped(&text)),
                Ok(Some(Command::Exit)) => break,
                Ok(Some(command)) => self.obey(command),
                Err(message) => Err(anyhow::anyhow!(message)),
            };
            match outcome {
                // Whoever reads a pipe's other end may be gone: there is nobody left to answer.
                Err(error) if error.is::<std::io::Error>() => return Err(error),
                Err(error) => super::say(&error),
                Ok(()) => {}
            }
        }
        input.finish();
        self.keep()
    }

    fn keep(&self) -> anyhow::Result<()> {
        let talk = Talk { messages: self.chat.messages().to_vec(), ..Talk::default() };
        self.kept.save(self.chat.engine(), &talk)
    }

    /// Answers `text`. Ctrl-C keeps what there is of the answer.
    fn answer(&mut self, text: &str) -> anyhow::Result<()> {
        let _guard = Guard::new(self.chat.engine().interrupt());
        let mut reply = self.chat.send(text, &self.sampling);
        Printer::default().stream(&mut reply)?;
        let finish = reply.finish();
        drop(reply);
        if finish == Some(Finish::Context) {
            tell(&format!("{}; /clear starts over", full_context(self.chat.engine().info())));
        }
        self.keep()
    }

    fn obey(&mut self, command: Command) -> anyhow::Result<()> {
        match command {
            Command::Help => tell(&command::help()),
            Command::Exit => {}
            Command::Clear => self.chat.clear(),
            Command::Undo => {
                self.take_back()?;
            }
            Command::Regenerate => {
                let question = self.take_back()?;
                self.answer(&question)?;
            }
            Command::System(text) => self.chat.set_system(&text),
            Command::Set(name, value) => self.sampling = changed(&self.sampling, &name, &value)?,
            Command::Save(path) => transcript::save(&path, self.chat.messages())?,
            Command::Load(path) => self.chat.set_messages(transcript::load(&path)?),
            Command::Stats => match self.chat.last_stats() {
                Some(stats) => print_stats(&stats),
                None => bail!("nothing has been answered yet"),
            },
        }
        Ok(())
    }

    fn take_back(&mut self) -> anyhow::Result<String> {
        self.chat.pop().ok_or_else(|| anyhow::anyhow!("there is nothing to take back"))
    }
}

/// A sampling flag without dashes and its value, read exactly as on the command line.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Setting {
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// `sampling` with the flag `--name value`.
fn changed(sampling: &Sampling, name: &str, value: &str) -> anyhow::Result<Sampling> {
    let flag = format!("--{}={value}", name.trim_start_matches('-'));
    let setting =
        Setting::try_parse_from([flag]).map_err(|usage| anyhow::anyhow!(super::usage_line(&usage)))?;
    let mut sampling = sampling.clone();
    setting.sampling.apply(&mut sampling);
    sampling.validate()?;
    Ok(sampling)
}

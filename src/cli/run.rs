//! `hadal run`: continues a text, or answers one message if the model has a chat template.

use std::io::{Write, stderr};

use anyhow::bail;
use clap::Args;
use hadal::Sampling;
use hadal::engine::{Engine, Finish, Stats};
use hadal::tokenizer::Special;

use super::answer::{Printer, full_context, print_stats};
use super::interrupt::{self, Guard, Interrupted};
use super::model::ModelArgs;
use super::prompt::PromptArgs;
use super::sampling::SamplingArgs;
use super::session::{SessionArgs, Talk};

/// Continue a text, or answer it if the model is made for chat
#[derive(Args, Debug)]
pub struct Run {
    #[command(flatten)]
    prompt: PromptArgs,

    /// Replace \n, \t and other escapes in the text
    #[arg(short, long)]
    escape: bool,

    /// Continue the text as it is, also if the model has a chat template
    #[arg(long)]
    raw: bool,

    /// Answer the text; fails if the model has no chat template
    #[arg(long, conflicts_with = "raw")]
    chat: bool,

    /// What the model is told before the text, in a chat
    #[arg(long, value_name = "TEXT", conflicts_with = "raw", allow_hyphen_values = true)]
    system: Option<String>,

    /// Let the text contain control tokens, such as <|im_start|>; implies --raw
    #[arg(long, conflicts_with_all = ["chat", "system"])]
    special: bool,

    /// Print the text before the answer [default: unless in a chat]
    #[arg(long, overrides_with = "no_display_prompt")]
    display_prompt: bool,

    /// Print the answer only
    #[arg(long)]
    no_display_prompt: bool,

    /// Print no speed on standard error
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    session: SessionArgs,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    sampling: SamplingArgs,
}

/// What an answer took and why it ended.
type Outcome = (Stats, Option<Finish>);

/// Generates, streams to standard output, and tells the speed.
pub fn run(arguments: &Run) -> anyhow::Result<()> {
    let sampling = arguments.sampling.sampling()?;
    let prompt = arguments.prompt.read(arguments.escape)?;
    interrupt::listen()?;
    let mut engine = arguments.model.open()?;
    let chat = arguments.is_chat(&engine)?;
    let mut talk = arguments.session.load(&mut engine)?;
    let mut printer = Printer::default();
    if arguments.displays_prompt(chat) {
        printer.print(&prompt)?;
    }
    let guard = Guard::new(engine.interrupt());
    let (stats, finish) = if chat {
        answer(&mut engine, arguments.system.as_deref(), &prompt, &sampling, &mut printer, &mut talk)?
    } else {
        let special = if arguments.special { Special::Parse } else { Special::Text };
        talk.text += &prompt;
        complete(&mut engine, special, &sampling, &mut printer, &mut talk)?
    };
    drop(guard);
    arguments.session.save(&engine, &talk)?;
    if finish == Some(Finish::Context) && !arguments.quiet {
        let _ = writeln!(stderr(), "{}", full_context(engine.info()));
    }
    if !arguments.quiet {
        print_stats(&stats);
    }
    if finish == Some(Finish::Interrupted) { Err(Interrupted.into()) } else { Ok(()) }
}

impl Run {
    /// Whether the text is a message to answer.
    fn is_chat(&self, engine: &Engine) -> anyhow::Result<bool> {
        let has_template = engine.template().is_some();
        if !has_template && (self.chat || self.system.is_some()) {
            let flag = if self.chat { "--chat" } else { "--system" };
            bail!("{flag}: {} has no chat template, it only continues text", engine.info().name);
        }
        Ok(has_template && !self.raw && !self.special)
    }

    fn displays_prompt(&self, chat: bool) -> bool {
        self.display_prompt || !(chat || self.no_display_prompt)
    }
}

/// Continues the text of `talk`.
fn complete(
    engine: &mut Engine,
    special: Special,
    sampling: &Sampling,
    printer: &mut Printer,
    talk: &mut Talk,
) -> anyhow::Result<Outcome> {
    let tokens = engine.tokenizer().encode_prompt(&talk.text, special)?;
    let mut generation = engine.generate_tokens(&tokens, sampling)?;
    tracing::debug!(seed = generation.seed(), "sampling");
    let keep = |piece: &hadal::Result<String>| {
        if let Ok(piece) = piece {
            talk.text += piece;
        }
    };
    printer.stream(generation.by_ref().inspect(keep))?;
    Ok((generation.stats(), generation.finish()))
}

/// Answers `prompt`, which follows the messages of `talk`.
fn answer(
    engine: &mut Engine,
    system: Option<&str>,
    prompt: &str,
    sampling: &Sampling,
    printer: &mut Printer,
    talk: &mut Talk,
) -> anyhow::Result<Outcome> {
    let mut chat = engine.chat();
    chat.set_messages(std::mem::take(&mut talk.messages));
    if let Some(system) = system {
        chat.set_system(system);
    }
    let mut reply = chat.send(prompt, sampling);
    printer.stream(&mut reply)?;
    let outcome = (reply.stats(), reply.finish());
    drop(reply);
    talk.messages = chat.messages().to_vec();
    Ok(outcome)
}

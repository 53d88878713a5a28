//! A conversation: messages, rendered by the model's chat template before every answer. What the cache shares with
//! the rendered text is not computed again.

use super::{Engine, Finish, Generation, Stats};
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::template::{Context, Message};
use crate::tokenizer::Tokenizer;

/// A conversation with the engine's model.
#[derive(Debug)]
pub struct Chat<'e> {
    engine: &'e mut Engine,
    messages: Vec<Message>,
    stats: Option<Stats>,
    context: Context,
}

impl<'e> Chat<'e> {
    pub(super) fn new(engine: &'e mut Engine) -> Self {
        Chat { engine, messages: Vec::new(), stats: None, context: Context::default() }
    }

    /// Sets the system message, in place of an earlier one.
    #[must_use]
    pub fn system(mut self, text: &str) -> Self {
        self.set_system(text);
        self
    }

    /// Sets the system message, in place of an earlier one; an empty one removes it.
    pub fn set_system(&mut self, text: &str) {
        self.messages.retain(|message| message.role != "system");
        if !text.is_empty() {
            self.messages.insert(0, Message::system(text));
        }
    }

    /// A variable for the template, such as `enable_thinking`.
    pub fn set_variable(&mut self, name: &str, value: serde_json::Value) {
        self.context.extra.insert(name.to_owned(), value);
    }

    /// The engine, for its tokenizer and facts.
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Replaces all messages, to resume a conversation.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Forgets all messages but the system's.
    pub fn clear(&mut self) {
        self.messages.retain(|message| message.role == "system");
    }

    /// Takes the last exchange back and returns what the user said; `None` if there is none.
    pub fn pop(&mut self) -> Option<String> {
        let last = self.messages.iter().rposition(|message| message.role == "user")?;
        let message = self.messages.drain(last..).next();
        message.map(|message| message.content)
    }

    /// What the last answer took.
    pub fn last_stats(&self) -> Option<Stats> {
        self.stats
    }

    /// Says `text` and answers piece by piece. If the answer is dropped half way, what there is of it stays in the
    /// conversation; after an error the conversation is as before.
    pub fn send(&mut self, text: &str, sampling: &Sampling) -> Reply<'_> {
        self.messages.push(Message::user(text));
        let state = match self.prompt() {
            Ok(tokens) => {
                let stream = self.engine.tokenizer.stream();
                Generation::new(self.engine, &tokens, stream, sampling)
            }
            Err(error) => Err(error),
        };
        let (generation, error) = match state {
            Ok(generation) => (Some(generation), None),
            Err(error) => (None, Some(error)),
        };
        Reply {
            generation,
            error,
            messages: &mut self.messages,
            stats: &mut self.stats,
            answer: String::new(),
        }
    }

    /// The conversation as tokens, up to where the answer begins.
    fn prompt(&self) -> Result<Vec<u32>> {
        let tokenizer = self.engine.tokenizer();
        let template = self.engine.template().ok_or_else(|| {
            Error::unsupported(
                "chat",
                &self.engine.info.name,
                "the model has no chat template, only completes text",
            )
        })?;
        let shielded: Vec<Message> = self.messages.iter().map(|message| shield(message, tokenizer)).collect();
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token(id)).unwrap_or_default().to_owned();
        let context = Context {
            add_generation_prompt: true,
            bos_token: text(tokenizer.bos()),
            eos_token: text(tokenizer.eos()),
            ..self.context.clone()
        };
        tokenizer.encode_rendered(&template.render(&shielded, &context)?)
    }
}

/// An answer, piece by piece.
#[derive(Debug)]
pub struct Reply<'c> {
    generation: Option<Generation<'c>>,
    /// What went wrong before the first token.
    error: Option<Error>,
    messages: &'c mut Vec<Message>,
    stats: &'c mut Option<Stats>,
    answer: String,
}

impl Reply<'_> {
    /// Why it ended; `None` while it goes on, or after an error.
    pub fn finish(&self) -> Option<Finish> {
        self.generation.as_ref().and_then(Generation::finish)
    }

    /// What it took so far.
    pub fn stats(&self) -> Stats {
        self.generation.as_ref().map(Generation::stats).unwrap_or_default()
    }

    /// The seed of the draw, to repeat it; `None` after an error.
    pub fn seed(&self) -> Option<u64> {
        self.generation.as_ref().map(Generation::seed)
    }

    /// One step of the answer: see [`Generation::step`].
    pub async fn step(&mut self) -> Option<Result<String>> {
        if let Some(error) = self.error.take() {
            return self.fail(error);
        }
        let piece = self.generation.as_mut()?.step().await?;
        self.hear(piece)
    }

    fn hear(&mut self, piece: Result<String>) -> Option<Result<String>> {
        match piece {
            Ok(piece) => {
                self.answer.push_str(&piece);
                Some(Ok(piece))
            }
            Err(error) => self.fail(error),
        }
    }

    /// Takes the question back, so that the conversation is as before it.
    fn fail(&mut self, error: Error) -> Option<Result<String>> {
        self.generation = None;
        self.answer.clear();
        self.messages.pop();
        Some(Err(error))
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        if let Some(error) = self.error.take() {
            return self.fail(error);
        }
        let piece = self.generation.as_mut()?.next()?;
        self.hear(piece)
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if let Some(generation) = &self.generation {
            *self.stats = Some(generation.stats());
            self.messages.push(Message::assistant(&self.answer));
        } else if self.error.is_some() {
            self.messages.pop();
        }
    }
}

/// The message with the control tokens that its text spells made harmless.
fn shield(message: &Message, tokenizer: &Tokenizer) -> Message {
    Message { content: tokenizer.shield(&message.content).into_owned(), ..message.clone() }
}

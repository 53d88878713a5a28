//! Chat templates: Jinja as `transformers` sets it up, so that a model's own template gives the prompt that it was trained on.
//!
//! A template is part of a file that somebody else wrote. It can't reach anything but its arguments, and it has a budget:
//! an endless loop or a gigabyte of text is an error.

use jiff::civil::DateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value};
use serde::{Deserialize, Serialize};
use serde_json::Map;

use crate::error::{Error, Result};
use crate::file::Metadata;

mod tags;
mod tojson;

/// One turn of a chat.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool` or what the template knows.
    pub role: String,
    /// What was said.
    pub content: String,
    /// Whatever else the template reads, e.g. `tool_calls`.
    #[serde(flatten)]
    pub extra: Map<String, serde_json::Value>,
}

/// What a template is given beside the messages.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Whether the text ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// The spelling of the token that begins a text; empty if there is none.
    pub bos_token: String,
    /// The spelling of the token that ends a text; empty if there is none.
    pub eos_token: String,
    /// Descriptions of functions that the model may call, in JSON Schema.
    pub tools: Vec<serde_json::Value>,
    /// What `strftime_now` takes for the time; the clock's if there is none.
    pub now: Option<DateTime>,
    /// Further variables, e.g. `enable_thinking`. They win over those above.
    pub extra: Map<String, serde_json::Value>,
}

/// A chat template, ready to render.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
}

const KEY: &str = "tokenizer.chat_template";
const TOOL_KEY: &str = "tokenizer.chat_template.tool_use";

/// The template in general, and the one for chats with tools if the model has one.
const MAIN: &str = "chat";
const TOOL_USE: &str = "tool_use";

/// Steps of the engine, or 64 bytes of text each: a chat of a thousand turns and a megabyte takes a hundredth of it, and
/// an endless loop is over after about a second.
const FUEL: u64 = 4_000_000;

/// Macros within macros. Each takes some kilobytes of a stack that may be one megabyte.
const RECURSION: usize = 64;

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into(), extra: Map::new() }
    }

    /// What the model should know or be.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new("system", content)
    }

    /// What a person said.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new("user", content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new("assistant", content)
    }
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`Error::Template`] with the line where it breaks Jinja's syntax.
    pub fn new(source: &str) -> Result<Template> {
        let mut template = Template { environment: environment() };
        template.add(MAIN, source)?;
        Ok(template)
    }

    /// The template in the metadata of a model, if there is one. One of the name `tool_use` is used for chats with tools.
    ///
    /// # Errors
    /// As [`Template::new`], and [`Error::Key`] if it is not text.
    pub fn from_metadata(metadata: &Metadata) -> Result<Option<Template>> {
        let Some(source) = metadata.str(KEY)? else { return Ok(None) };
        let mut template = Template::new(source)?;
        if let Some(source) = metadata.str(TOOL_KEY)? {
            template.add(TOOL_USE, source)?;
        }
        Ok(Some(template))
    }

    fn add(&mut self, name: &'static str, source: &str) -> Result<()> {
        self.environment.add_template_owned(name, tags::known(source)).map_err(|error| describe(&error))
    }

    /// The chat as text.
    ///
    /// # Errors
    /// [`Error::Template`]: with the template's own words if it refuses the messages, else with what went wrong and
    /// the line.
    pub fn render(&self, messages: &[Message], context: &Context) -> Result<String> {
        let tool_use =
            if context.tools.is_empty() { None } else { self.environment.get_template(TOOL_USE).ok() };
        let template = tool_use.map_or_else(|| self.environment.get_template(MAIN), Ok);
        let template = template.map_err(|error| describe(&error))?;
        template.render(variables(messages, context)).map_err(|error| describe(&error))
    }
}

/// Jinja as `transformers` sets it up, with the methods of Python's strings, lists and dictionaries.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are Jinja's own"));
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson::tojson);
    environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
    });
    environment
}

fn variables(messages: &[Message], context: &Context) -> Value {
    let mut all: Vec<(String, Value)> = vec![
        ("messages".into(), Value::from(Serde(messages))),
        ("documents".into(), Value::from(())),
        ("add_generation_prompt".into(), Value::from(context.add_generation_prompt)),
        ("bos_token".into(), Value::from(context.bos_token.as_str())),
        ("eos_token".into(), Value::from(context.eos_token.as_str())),
    ];
    let tools = if context.tools.is_empty() { Value::from(()) } else { Value::from(Serde(&context.tools)) };
    all.push(("tools".into(), tools));
    let now = context.now;
    let strftime_now = move |format: String| strftime(now, &format);
    all.push(("strftime_now".into(), Value::from_function(strftime_now)));
    all.extend(context.extra.iter().map(|(name, value)| (name.clone(), Value::from(Serde(value)))));
    Value::from_pairs(all)
}

fn strftime(now: Option<DateTime>, format: &str) -> Result<String, minijinja::Error> {
    let wrong = |message: String| minijinja::Error::new(ErrorKind::InvalidOperation, message);
    let now = now.unwrap_or_else(|| jiff::Zoned::now().datetime());
    jiff::fmt::strtime::format(format, now).map_err(|error| wrong(format!("strftime_now: {error}")))
}

/// The text given to `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// What went wrong and where; of a refusal only its own text.
fn describe(error: &minijinja::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Refusal(text)) = error.downcast_ref() {
            return Error::Template(text.clone());
        }
        cause = error.source();
    }
    let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    Error::Template(format!("{line}{}{detail}", error.kind()))
}
